// DeepSpeed's configurations: every key of its package has a verdict; files as people have them
// become the flags that a person would have typed, or are refused by what is wrong with them, all
// of it at once; what is not JSON is refused with its line; and the shapes of its schedules are its
// own. Runs from the repository's root: tests/fixtures/deepspeed/ has the files.
#include "data/deepspeed/tree.h"
#include "tests/lib/deepspeed_line.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- keys ----

static void test_every_key_has_a_verdict(void **state) {
    (void)state;
    FILE *file = fopen(FOLDER "keys.txt", "r");
    assert_non_null(file);
    char key[256];
    size_t n = 0;
    enum DsVerdict verdict;
    while (fgets(key, sizeof key, file)) {
        key[strcspn(key, "\n")] = 0;
        if (*key == '#')
            continue;
        if (!deepspeed_verdict(key, &verdict))
            fail_msg("%s has no verdict", key);
        n++;
    }
    fclose(file);
    assert_true(n > 400);
    assert_false(deepspeed_verdict("zero_optimization.stages", &verdict));
    assert_false(deepspeed_verdict("optimizer.params.cycle_min_lr", &verdict));
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

static void test_files_are_what_is_expected(void **state) {
    (void)state;
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

static void test_what_is_not_json_is_refused_with_its_line(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"{\n\"fp16\": {\"enabled\": true},\n}", "ds.json: line 3: a comma before }"},
        {"{\"optimizer\": {\"params\": {\"betas\": [1,\n]}}}", "line 2: a comma before ]"},
        {"{\"a\": 1,\n\"a\": 2}", "line 2: \"a\" is there twice, first in line 1"},
        {"{\n// stage\n\"a\": 1}", "line 2: a comment"},
        {"{\"a\": 1 # one\n}", "line 1: a comment"},
        {"{\"a\": True}", "line 1: JSON's words are true, false and null"},
        {"{\"a\": Infinity}", "line 1: Infinity"},
        {"{\"a\": NaN}", "line 1: JSON's words"},
        {"{\"a\": 01}", "line 1: no number"},
        {"{\"a\": .5}", "line 1: '.'; expected a value"},
        {"{\"a\": 1.}", "line 1: no number"},
        {"{\"a\": 1e999}", "line 1: a number too large"},
        {"{'a': 1}", "line 1: a single quote"},
        {"{a: 1}", "line 1: 'a'; expected a key in double quotes"},
        {"{\"a\" 1}", "line 1: '1'; expected a colon"},
        {"{\"a\": 1 \"b\": 2}", "line 1: '\"'; expected a comma or }"},
        {"{\"a\": 1} {}", "line 1: '{'; expected nothing behind the object"},
        {"{\"a\": \"b\n\"}", "line 1: a line break"},
        {"{\"a\": \"b", "line 1: a text without its closing quote"},
        {"{\"a\": \"\\x\"}", "line 1: a backslash"},
        {"{\"a\": \"\\u00g0\"}", "line 1: \\u in a text"},
        {"{\"a\": \"\\ud800\"}", "line 1: half of a surrogate pair"},
        {"{\"a\": \"\\u0000\"}", "line 1: a zero in a text"},
        {"{\"a\": {", "line 1: the text ends"},
        {"", "line 1: the text ends; expected {"},
        {"[1]", "line 1: '['; expected {"},
        {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"
         "}",
         "brackets in brackets"},
        {"{\"zero_optimization.stage\": 1, \"fp16\": {}}",
         "line 1: unknown key zero_optimization.stage; did you mean zero_optimization.stage?"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refused(rows[i][0], "", rows[i][1]);
}

static void test_texts_are_read_as_json_means_them(void **state) {
    (void)state;
    static const char text[] =
        "\xef\xbb\xbf{\"a\": [1, -2.5e1, \"x\\u00e4\\ud83d\\ude00\\n\"], \"b\": {}, "
        "\"c\": {\"d\": null}}";
    struct Error e;
    struct Node *root = tree_read(text, strlen(text), "text", &e);
    assert_non_null(root);
    const struct Node *list = tree_find(root, "a");
    assert_true(list->first->number == 1 && list->first->next->number == -25);
    assert_string_equal(list->first->next->next->text, "x\xc3\xa4\xf0\x9f\x98\x80\n");
    assert_int_equal(tree_find(root, "c.d")->kind, NODE_NULL);
    assert_null(tree_find(root, "b.d"));
    char *printed = tree_print(root);
    assert_string_equal(printed, "{\"a\": [1, -2.5e1, \"x\xc3\xa4\xf0\x9f\x98\x80?\"], "
                                 "\"b\": {}, \"c\": {\"d\": null}}");
    free(printed);
    tree_free(root);
}

static void test_the_line_goes_before_defaults_and_against_keys(void **state) {
    (void)state;
    is_set("{}", "", "clip", "0");
    is_set("{}", "--clip 0.5", "clip", "0.5");
    is_set("{\"gradient_clipping\": 0.5}", "--clip 0.5", "clip", "0.5");
    is_set("{\"gradient_clipping\": \"auto\"}", "", "clip", "1");
    refused("{\"gradient_clipping\": 0.5}", "--clip 1",
            "line 1: gradient_clipping is --clip 0.5, and --clip 1 is given");
    refused("{\"gradient_clipping\": -1}", "", "gradient_clipping: '-1' is out of range");
    refused("{\"fp16\": {\"enabled\": false}}", "--dtype fp16", "--dtype fp16 is given");
    refused("{\"fp16\": {\"enabled\": true, \"consecutive_hysteresis\": true}}", "",
            "consecutive_hysteresis true is refused");
    is_set("{\"optimizer\": {\"type\": \"adam\"}}", "", "lr", "0.001");
    is_set("{\"optimizer\": {}}", "", "beta2", "0.95"); // no type: as no block, in DeepSpeed, too
    refused("{\"optimizer\": {\"params\": {\"lr\": 1}}}", "",
            "optimizer.type is missing, and without it DeepSpeed passes over optimizer.params");
    is_set("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"cosine\"}}}",
           "", "warmup-type", "log");
    refused("{\"wandb\": {\"enabled\": true}}", "",
            "leave it out, as --out has TensorBoard's events");
    is_set("{\"optimizer\": {\"type\": \"adam\"}}", "--lr 0.5", "lr", "0.5");
    is_set("{}", "", "beta2", "0.95"); // no block: the flag's own
    is_set("{\"zero_optimization\": true}", "", "zero", "1");
    is_set("{\"bfloat16\": {\"enabled\": true}}", "", "dtype", "bf16");
    is_set("{\"zero_optimization\": {\"offload_gradients\": {\"device\": \"cpu\"}}}", "",
           "offload-optimizer", "cpu");
    is_set("{\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 0}}", "", "prefetch", "0");
    refused("{\"zero_optimization\": {\"cpu_offload\": true, \"offload_optimizer\": {\"device\": "
            "\"none\"}}}",
            "",
            "offload_optimizer.device is --offload-optimizer none, and "
            "zero_optimization.cpu_offload is cpu");
    refused("{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.9]}}}", "",
            "betas: expected a list of two numbers");
    refused("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"cos_min_ratio\": 1}}}", "",
            "cos_min_ratio: WarmupLR has none");
    refused("{\"aio\": 1}", "", "aio 1: expected an object");
}

#define MICS(stage, size)                                                                          \
    "{\"zero_optimization\": {\"stage\": " #stage ", \"mics_shard_size\": " #size "}}"

// MiCS' shards, and what tells where time goes.
static void test_flags_that_deepspeed_has_other_names_for(void **state) {
    (void)state;
    is_set(MICS(3, 2), "--ranks 4", "zero-shard-size", "2");
    is_set(MICS(1, 4), "--ranks 4", "zero-shard-size", "4");
    is_set(MICS(3, -1), "--ranks 4", "zero-shard-size", "0");
    is_set(MICS(0, 0), "", "zero-shard-size", "0");
    is_set(MICS("auto", 2), "--ranks 4 --zero 2", "zero-shard-size", "2");
    refused(MICS(0, 2), "--ranks 4", "line 1: zero_optimization.mics_shard_size 2: ");
    refused(MICS("auto", 2), "--ranks 4 --zero 0", "stage 0 has no shards; expected stage 1, 2");
    refused("{\"zero_optimization\": {\"mics_shard_size\": 2}}", "", "stage 0 has no shards");
    is_set("{\"zero_optimization\": {\"mics_shard_size\": 2}}", "--ranks 2 --zero 3",
           "zero-shard-size", "2");
    refused(MICS(3, 2), "--ranks 4 --zero-shard-size 4",
            "mics_shard_size is --zero-shard-size 2, and --zero-shard-size 4 is given");
    is_set("{\"zero_optimization\": {\"stage\": 3, \"mics_hierarchical_params_gather\": true, "
           "\"stage3_gather_16bit_weights_on_model_save\": true}}",
           "", "zero-shard-size", "0");
    is_set("{\"wall_clock_breakdown\": true}", "", "breakdown", "true");
    is_set("{\"wall_clock_breakdown\": false}", "", "breakdown", "false");
    is_set("{\"wall_clock_breakdown\": false}", "--breakdown", "breakdown", "true");
    refused("{\"wall_clock_breakdown\": true}", "--no-breakdown", "--breakdown false is given");
    refused("{\"autotuning\": {\"enabled\": true}}", "", "is refused: --fit auto chooses");
    static const char decay[] = "{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
                                "{\"total_num_steps\": %s}}}";
    char *fixed = base_format(decay, "100"), *open = base_format(decay, "\"auto\"");
    refused(fixed, "--epochs 2", "total_num_steps is --steps 100, and --epochs 2 is given");
    is_set(fixed, "--epochs 0", "steps", "100");
    is_set(open, "--epochs 2", "epochs", "2");
    free(fixed);
    free(open);
}

// What --config says is as the line; what a resumed run was started with gives way.
static void test_other_files(void **state) {
    (void)state;
    static const char flags[] = "{\"clip\": 2, \"zero\": \"3\"}";
    char *folder = scratch_make();
    char *path = scratch_write(folder, "config.json", flags, strlen(flags));
    char *config = base_format("--config %s", path),
         *resume = base_format("--resume auto --out %s", folder);
    refused("{\"gradient_clipping\": 0.5}", config, "and --clip 2 is given");
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

static void test_schedules_are_deepspeeds(void **state) {
    (void)state;
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
static void test_deepspeeds_engine_is_one_step_behind(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_has_a_verdict),
        cmocka_unit_test(test_files_are_what_is_expected),
        cmocka_unit_test(test_what_is_not_json_is_refused_with_its_line),
        cmocka_unit_test(test_texts_are_read_as_json_means_them),
        cmocka_unit_test(test_the_line_goes_before_defaults_and_against_keys),
        cmocka_unit_test(test_flags_that_deepspeed_has_other_names_for),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_schedules_are_deepspeeds),
        cmocka_unit_test(test_deepspeeds_engine_is_one_step_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
