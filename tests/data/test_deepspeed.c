// DeepSpeed's configurations: every key of its package has a verdict; files as people have them
// become the flags that a person would have typed, or are refused by what is wrong with them, all
// of it at once; what is not JSON is refused with its line; and the shapes of its schedules are its
// own. Runs from the repository's root: tests/fixtures/deepspeed/ has the files.
#include "data/deepspeed/rows.h"
#include "tests/lib/deepspeed_line.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- keys ----

TEST(test_every_key_has_a_verdict) {
    FILE *file = fopen(FOLDER "keys.txt", "r");
    assert_non_null(file);
    struct Read r;
    assert_int_equal(read_line(&r, "--data random"), 0);
    struct DsTables tables = ds_tables_open(&r.flags);
    char key[256];
    size_t n = 0;
    bool inside;
    while (fgets(key, sizeof key, file)) {
        key[strcspn(key, "\n")] = 0;
        if (*key == '#')
            continue;
        if (!ds_row(&tables, key, &inside))
            fail_msg("%s has no verdict", key);
        n++;
    }
    fclose(file);
    assert_true(n > 400);
    assert_null(ds_row(&tables, "zero_optimization.stages", &inside));
    assert_null(ds_row(&tables, "optimizer.params.cycle_min_lr", &inside));
    ds_tables_close(&tables);
    close_line(&r);
}

// ---- files ----

// A line of expected.txt.
static void look_at(char *text) {
    char *arrow = strstr(text, " => "), *rest = text, *name = strsep(&rest, " ");
    assert_non_null(arrow);
    *arrow = 0;
    char *expected = arrow + 4;
    char *words =
        base_format("--data random --deepspeed " FOLDER "configs/%s.json --ranks %s", name, rest);
    struct Read r;
    print_message("%s\n", name);
    int err = read_line(&r, words);
    if (*expected == '!') {
        assert_int_equal(err, -EINVAL);
        for (char *part; (part = strsep(&expected, "!"));) {
            size_t n = strlen(part += strspn(part, " "));
            if (n && part[n - 1] == ' ')
                part[n - 1] = 0;
            expect_part(&r.e, part);
        }
    } else {
        assert_string_equal(r.e.text, "");
        for (char *flag; (flag = strsep(&expected, " "));)
            expect_flag(&r, flag + 2, strsep(&expected, " "));
    }
    close_line(&r);
    free(words);
}

TEST(test_files_are_what_is_expected) {
    FILE *file = fopen(FOLDER "expected.txt", "r");
    assert_non_null(file);
    char text[512];
    int n = 0;
    while (fgets(text, sizeof text, file)) {
        text[strcspn(text, "\n")] = 0;
        if (*text == '#')
            continue;
        look_at(text);
        n++;
    }
    fclose(file);
    assert_true(n >= 30);
}

// ---- texts ----

TEST(test_what_is_not_json_is_refused_with_its_line) {
    static const char *const rows[][2] = {
        {"{\n\"fp16\": {\"enabled\": true},\n}", "E_JSON_SYNTAX ds.json: line 3, column"},
        {"{\"optimizer\": {\"params\": {\"betas\": [1,\n]}}}", "E_JSON_SYNTAX line 2, column 1:"},
        {"{\"a\": 1,\n\"a\": 2}", "E_JSON_DUPLICATE_KEY \"a\""},
        {"{\"fp16\": {\"a\": [{\"b\": 1, \"b\": 1}]}}", "E_JSON_DUPLICATE_KEY \"b\""},
        {"{\n// stage\n\"a\": 1}", "E_JSON_SYNTAX line 2"},
        {"{\"a\": 1 # one\n}", "E_JSON_SYNTAX line 1, column 9"},
        {"{\"a\": True}", "E_JSON_SYNTAX line 1"},
        {"{\"a\": Infinity}", "E_JSON_SYNTAX line 1"},
        {"{\"a\": .5}", "E_JSON_SYNTAX line 1"},
        {"{\"gradient_clipping\": 1e999}", "E_DEEPSPEED_KEYS gradient_clipping"},
        {"{'a': 1}", "E_JSON_SYNTAX line 1"},
        {"{\"a\": 1} {}", "E_JSON_SYNTAX line 1, column 10"},
        {"{\"a\": \"b", "E_JSON_SYNTAX line 1"},
        {"{\"a\": \"\\ud800\"}", "E_JSON_SYNTAX line 1"},
        {"{\"a\": \"\\u0000\"}", "E_ZERO_BYTE ds.json"},
        {"", "E_JSON_SYNTAX line 1"},
        {"[1]", "E_JSON_SYNTAX line 1"},
        {"{\"zero_optimization.stage\": 1, \"fp16\": {}}",
         "E_DEEPSPEED_KEYS zero_optimization.stage?"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refused(rows[i][0], "", rows[i][1]);
    is_set("\xef\xbb\xbf{\"gradient_clipping\": 2.5e-1}", "", "clip", "0.25");
}

TEST(test_the_line_goes_before_defaults_and_against_keys) {
    is_set("{}", "", "clip", "0");
    is_set("{}", "--clip 0.5", "clip", "0.5");
    is_set("{\"gradient_clipping\": 0.5}", "--clip 0.5", "clip", "0.5");
    is_set("{\"gradient_clipping\": \"auto\"}", "", "clip", "1");
    refused("{\"gradient_clipping\": 0.5}", "--clip 1", "E_DEEPSPEED_KEYS gradient_clipping");
    refused("{\"gradient_clipping\": -1}", "", "E_DEEPSPEED_KEYS gradient_clipping");
    refused("{\"fp16\": {\"enabled\": false}}", "--dtype fp16", "E_DEEPSPEED_KEYS --dtype fp16");
    refused("{\"fp16\": {\"enabled\": true, \"consecutive_hysteresis\": true}}", "",
            "E_DEEPSPEED_KEYS consecutive_hysteresis");
    is_set("{\"optimizer\": {\"type\": \"adam\"}}", "", "lr", "0.001");
    is_set("{\"optimizer\": {}}", "", "beta2", "0.95"); // no type: as no block, in DeepSpeed, too
    refused("{\"optimizer\": {\"params\": {\"lr\": 1}}}", "", "E_DEEPSPEED_KEYS optimizer.type");
    is_set("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"cosine\"}}}",
           "", "warmup-type", "log");
    refused("{\"wandb\": {\"enabled\": true}}", "", "E_DEEPSPEED_KEYS --out");
    is_set("{\"optimizer\": {\"type\": \"adam\"}}", "--lr 0.5", "lr", "0.5");
    is_set("{}", "", "beta2", "0.95"); // no block: the flag's own
    is_set("{\"zero_optimization\": true}", "", "zero", "1");
    is_set("{\"bfloat16\": {\"enabled\": true}}", "", "dtype", "bf16");
    is_set("{\"zero_optimization\": {\"offload_gradients\": {\"device\": \"cpu\"}}}", "",
           "offload-optimizer", "cpu");
    is_set("{\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 0}}", "", "prefetch", "0");
    refused("{\"zero_optimization\": {\"cpu_offload\": true, \"offload_optimizer\": {\"device\": "
            "\"none\"}}}",
            "", "E_DEEPSPEED_KEYS offload_optimizer.device");
    refused("{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.9]}}}", "",
            "E_DEEPSPEED_KEYS");
    refused("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"cos_min_ratio\": 1}}}", "",
            "E_DEEPSPEED_KEYS cos_min_ratio");
    refused("{\"aio\": 1}", "", "E_DEEPSPEED_KEYS");
}

#define MICS(stage, size)                                                                          \
    "{\"zero_optimization\": {\"stage\": " #stage ", \"mics_shard_size\": " #size "}}"

// MiCS' shards, and what tells where time goes.
TEST(test_flags_that_deepspeed_has_other_names_for) {
    is_set(MICS(3, 2), "--ranks 4", "zero-shard-size", "2");
    is_set(MICS(1, 4), "--ranks 4", "zero-shard-size", "4");
    is_set(MICS(3, -1), "--ranks 4", "zero-shard-size", "0");
    is_set(MICS(0, 0), "", "zero-shard-size", "0");
    is_set(MICS("auto", 2), "--ranks 4 --zero 2", "zero-shard-size", "2");
    refused(MICS(0, 2), "--ranks 4", "E_DEEPSPEED_KEYS zero_optimization.mics_shard_size 2");
    refused(MICS("auto", 2), "--ranks 4 --zero 0", "E_DEEPSPEED_KEYS");
    refused("{\"zero_optimization\": {\"mics_shard_size\": 2}}", "", "E_DEEPSPEED_KEYS");
    is_set("{\"zero_optimization\": {\"mics_shard_size\": 2}}", "--ranks 2 --zero 3",
           "zero-shard-size", "2");
    refused(MICS(3, 2), "--ranks 4 --zero-shard-size 4", "E_DEEPSPEED_KEYS mics_shard_size");
    is_set("{\"zero_optimization\": {\"stage\": 3, \"mics_hierarchical_params_gather\": true, "
           "\"stage3_gather_16bit_weights_on_model_save\": true}}",
           "", "zero-shard-size", "0");
    is_set("{\"wall_clock_breakdown\": true}", "", "breakdown", "true");
    is_set("{\"wall_clock_breakdown\": false}", "", "breakdown", "false");
    is_set("{\"wall_clock_breakdown\": false}", "--breakdown", "breakdown", "true");
    refused("{\"wall_clock_breakdown\": true}", "--no-breakdown",
            "E_DEEPSPEED_KEYS --breakdown false");
    refused("{\"autotuning\": {\"enabled\": true}}", "", "E_DEEPSPEED_KEYS --fit auto");
    static const char decay[] = "{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
                                "{\"total_num_steps\": %s}}}";
    char *fixed = base_format(decay, "100"), *open = base_format(decay, "\"auto\"");
    refused(fixed, "--epochs 2", "E_DEEPSPEED_KEYS total_num_steps");
    is_set(fixed, "--epochs 0", "steps", "100");
    is_set(open, "--epochs 2", "epochs", "2");
    free(fixed);
    free(open);
}

// What --config says is as the line; what a resumed run was started with gives way.
TEST(test_other_files) {
    static const char flags[] = "{\"clip\": 2, \"zero\": \"3\"}";
    char *folder = scratch_make();
    char *path = scratch_write(folder, "config.json", flags, strlen(flags));
    char *config = base_format("--config %s", path),
         *resume = base_format("--resume auto --out %s", folder);
    refused("{\"gradient_clipping\": 0.5}", config, "E_DEEPSPEED_KEYS --clip 2");
    is_set("{}", config, "zero", "3");
    is_set("{\"zero_optimization\": {\"stage\": 1}}", resume, "zero", "1");
    is_set("{\"zero_optimization\": {\"stage\": \"auto\"}}", resume, "zero", "3");
    free(config);
    free(resume);
    free(path);
    scratch_remove(folder);
    struct Read r;
    assert_int_equal(read_line(&r, "--deepspeed none.json"), -ENOENT);
    close_line(&r);
}

// ---- schedules ----

static double next_number(char **text) {
    return strtod(strsep(text, " "), NULL);
}

TEST(test_schedules_are_deepspeeds) {
    FILE *file = fopen(FOLDER "schedules.txt", "r");
    assert_non_null(file);
    char text[2048];
    int n = 0;
    while (fgets(text, sizeof text, file)) {
        if (*text == '#')
            continue;
        char *rest = text;
        const char *kind = strsep(&rest, " "), *shape = strsep(&rest, " ");
        struct LrSchedule s = {.kind = strcmp(kind, "WarmupLR") == 0 ? SCHEDULE_WARMUP_LR
                                       : strcmp(kind, "WarmupDecayLR") == 0
                                           ? SCHEDULE_WARMUP_DECAY_LR
                                           : SCHEDULE_WARMUP_COSINE_LR,
                               .linear = strcmp(shape, "linear") == 0};
        s.lr = next_number(&rest);
        s.min_lr = next_number(&rest);
        s.warmup = (uint64_t)next_number(&rest);
        s.steps = (uint64_t)next_number(&rest);
        for (uint64_t i = 0; i < 25; i++) {
            double theirs = next_number(&rest), ours = schedule_lr(&s, i);
            if (fabs(theirs - ours) > 1e-15)
                fail_msg("%s %s, iteration %d: %.17g, and theirs is %.17g", kind, shape, (int)i,
                         ours, theirs);
        }
        n++;
    }
    fclose(file);
    assert_int_equal(n, 80);
}

// A line of first_steps.txt: kind, warm-up, who, rates of steps 1 to 5.
static void read_rates(const char *text, double rates[5]) {
    const char *at = text + 46;
    for (int i = 0; i < 5; i++) {
        char *end;
        rates[i] = strtod(at, &end);
        assert_true(end > at);
        at = end;
    }
}

// Ours are the run's; DeepSpeed's engine is one step behind them.
TEST(test_deepspeeds_engine_is_one_step_behind) {
    FILE *file = fopen(FOLDER "first_steps.txt", "r");
    assert_non_null(file);
    char text[256];
    double theirs[5], ours[5];
    int n = 0;
    assert_non_null(fgets(text, sizeof text, file));
    while (fgets(text, sizeof text, file)) {
        assert_non_null(strstr(text, "DeepSpeed's engine"));
        read_rates(text, theirs);
        assert_non_null(fgets(text, sizeof text, file));
        assert_non_null(strstr(text, " ./train "));
        read_rates(text, ours);
        struct LrSchedule s = {.kind = strncmp(text, "WarmupLR", 8) == 0 ? SCHEDULE_WARMUP_LR
                                       : strncmp(text, "WarmupDecay", 11) == 0
                                           ? SCHEDULE_WARMUP_DECAY_LR
                                           : SCHEDULE_WARMUP_COSINE_LR,
                               .linear = strstr(text, " linear ") != NULL,
                               .lr = 0.1,
                               .warmup = 10,
                               .steps = 20};
        for (uint64_t i = 0; i < 5; i++) {
            assert_true(fabs(schedule_lr(&s, i) - ours[i]) < 1e-5);
            assert_true(fabs(theirs[i] - (i ? ours[i - 1] : 0)) < 1e-5);
        }
        n++;
    }
    fclose(file);
    assert_int_equal(n, 6);
}
