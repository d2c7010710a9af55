// What DeepSpeed passes over is no reason to refuse a configuration, and has no part in any flag.
// Its own verdicts are in passes.txt (scripts/gen/deepspeed_passes.py). What is near a key is
// refused all the same. Runs from the repository's root.
#include "tests/lib/deepspeed_line.h"
#include "tests/lib/test.h"

// The text without a part of it, and the comma before that.
static char *without(const char *text, const char *part) {
    const char *at = strstr(text, part), *end = at ? at + strlen(part) : text + strlen(text);
    int before = at ? (int)(at - text) : 0;
    if (before > 1 && text[before - 1] == ' ' && text[before - 2] == ',')
        before -= 2;
    return at ? base_format("%.*s%s", before, text, end) : base_format("{\"train_batch_size\": 1}");
}

// What is passed over has no part in any flag: but for the strange key, or as a whole.
static void expect_same_flags(struct Read *r, const char *text) {
    static const char strange[] = "\"qzxv_jkwy\": 1",
                      comments[] = "\"_comment\": \"of a person\", \"//\": \"another\", "
                                   "\"comment\": \"a third\"";
    struct Read base;
    char *rest = without(text, strstr(text, strange) ? strange : comments);
    if (read_text(&base, rest, ""))
        fail_msg("%s: %s", rest, base.e.text);
    for (size_t i = 0; i < r->flags.n; i++)
        if (strcmp(r->flags.table[i].name, "deepspeed") != 0) {
            char *value = flags_value(&base.flags, r->flags.table[i].name);
            expect_flag(r, r->flags.table[i].name, value);
            free(value);
        }
    close_line(&base);
    free(rest);
}

TEST(test_what_deepspeed_passes_over_is_no_reason_to_refuse) {
    FILE *file = fopen(FOLDER "passes.txt", "r");
    assert_non_null(file);
    char text[2048];
    int passed = 0, refused = 0;
    while (fgets(text, sizeof text, file)) {
        text[strcspn(text, "\n")] = 0;
        if (*text == '#')
            continue;
        struct Read r;
        const char *object = strchr(text, '{');
        bool passes = *text == 'p';
        int err = read_text(&r, object, "");
        if (passes && err)
            fail_msg("%s: %s", object, r.e.text);
        if (!passes && !err)
            fail_msg("%s is accepted, and DeepSpeed refuses it", object);
        if (passes)
            expect_same_flags(&r, object);
        close_line(&r);
        passed += passes;
        refused += !passes;
    }
    fclose(file);
    assert_true(passed > 80 && refused > 10);
}

// What is off stays off where the other format is "auto".
TEST(test_formats_that_are_off) {
    static const char half[] =
        "{\"fp16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": false}}";
    is_set(half, "", "dtype", "fp32");
    is_set(half, "--dtype fp16", "dtype", "fp16");
    refused(half, "--dtype bf16", "E_DEEPSPEED_KEYS bf16.enabled");
    is_set("{\"fp16\": {\"enabled\": false}, \"bf16\": {\"enabled\": \"auto\"}}", "", "dtype",
           "auto");
}

#define PARTED(tp, more) "{\"tensor_parallel\": {\"autotp_size\": " #tp "}" more "}"
#define BATCHES ", \"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4"

// autotp_size is --tp, and what is left of the ranks multiplies batches.
TEST(test_tensor_parallelism_is_tp) {
    is_set(PARTED(4, ""), "--ranks 8", "tp", "4");
    is_set(PARTED(0, ""), "--ranks 8 --tp 2", "tp", "2");
    is_set(PARTED("auto", ""), "--ranks 8 --tp 2", "tp", "2");
    refused(PARTED(4, ""), "--ranks 8 --tp 2", "E_DEEPSPEED_KEYS autotp_size");
    is_set(PARTED(4, ", \"train_micro_batch_size_per_gpu\": 3"), "--ranks 8", "global-batch", "6");
    is_set(PARTED(2, ", \"train_micro_batch_size_per_gpu\": 3"), "--ranks 8 --pp 2", "global-batch",
           "6");
    refused(PARTED(4, BATCHES ", \"gradient_accumulation_steps\": 1"), "--ranks 8",
            "E_DEEPSPEED_KEYS gradient_accumulation_steps 1");
    is_set("{\"tensor_parallel\": {\"autotp_size\": 2, \"tp\": {\"tp_size\": 2}}}", "--ranks 2",
           "tp", "2");
    refused("{\"tensor_parallel\": {\"autotp_size\": 2, \"tp\": {\"tp_size\": 4}}}", "",
            "E_DEEPSPEED_KEYS tensor_parallel.tp.tp_size 4");
}

// What DeepSpeed passes over may be a mistake all the same.
TEST(test_what_is_near_a_key_is_refused) {
    refused("{\"fp16\": {\"enabld\": true}}", "", "E_DEEPSPEED_KEYS fp16.enabled?");
    refused("{\"autotuning\": {\"enabld\": true}}", "", "E_DEEPSPEED_KEYS autotuning.enabled?");
    refused("{\"commet\": {\"enabled\": false}}", "", "E_DEEPSPEED_KEYS comet?");
    refused("{\"learning_rate\": 1e-5, \"epochs\": 3}", "", "E_DEEPSPEED_KEYS");
    refused("{\"compression_training\": {\"sparse_pruning\": {\"shared_parameters\": "
            "{\"enabled\": true}}}}",
            "", "E_DEEPSPEED_KEYS compression_training");
    refused("{\"elasticity\": {\"enabled\": \"no\"}}", "",
            "E_DEEPSPEED_KEYS elasticity.enabled \"no\"");
    is_set("{\"autotuning\": {\"arg_mappings\": {\"train_batch_size \": \"--b\"}}}", "", "zero",
           "0");
    is_set("{\"steps_per_print\": 20000000000000000}", "", "log-every", "20000000000000000");
}
