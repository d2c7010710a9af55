// Flags: what the line may say, and what each mistake is answered.
//
// Error lines are compared by the parts a user needs: the flag, the value, and what would be right.
// The configuration file is test_config.c.
#include "data/file.h"
#include "tests/lib/flags_fixture.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <limits.h>

TEST(defaults_are_set) {
    struct Fixture *x = *state;
    struct Options *o = &x->options;
    assert_int_equal(o->batch, 8);
    assert_true(o->memory == 16000000000u);
    assert_int_equal(o->shift, -3);
    assert_true(o->lr == 6e-4 && o->beta2 == 0.95);
    assert_int_equal(o->dtype, 0);
    assert_true(o->overlap && !o->quiet);
    assert_string_equal(o->out, "out");
    assert_null(o->prompt);
    for (size_t i = 0; i < NFLAG; i++)
        assert_false(flags_was_set(&x->flags, table[i].name));
}

TEST(line_sets_every_type) {
    struct Fixture *x = *state;
    struct Options *o = &x->options;
    assert_int_equal(PARSE(x, "--batch", "12", "--lr=3e-4", "--shift", "-7", "--dtype", "bf16",
                           "--zero=3", "--out", "a b", "--prompt=--x=y", "--quiet", "--no-overlap"),
                     0);
    assert_int_equal(o->batch, 12);
    assert_true(o->lr == 3e-4);
    assert_int_equal(o->shift, -7);
    assert_int_equal(o->dtype, 1);
    assert_int_equal(o->stage, 3);
    assert_string_equal(o->out, "a b");
    assert_string_equal(o->prompt, "--x=y");
    assert_true(o->quiet && !o->overlap);
    assert_true(flags_was_set(&x->flags, "batch") && flags_was_set(&x->flags, "overlap"));
    assert_false(flags_was_set(&x->flags, "layers"));
}

TEST(last_of_a_repeated_flag_wins) {
    struct Fixture *x = *state;
    assert_int_equal(
        PARSE(x, "--batch", "2", "--out=a", "--quiet", "--batch=3", "--no-quiet", "--out", ""), 0);
    assert_int_equal(x->options.batch, 3);
    assert_false(x->options.quiet);
    assert_string_equal(x->options.out, "");
}

TEST(sizes_take_suffixes) {
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"007", 7},
        {"64k", 64000},
        {"64Ki", 65536},
        {"3M", 3000000},
        {"3Mi", 3145728},
        {"2G", 2000000000},
        {"2Gi", 2147483648u},
        {"1.5k", 1500},
        {"0.5Ki", 512},
        {".25M", 250000},
        {"1T", 1000000000000u},
        {"1.000000000001T", 1000000000001u},
        {"16777215Ti", (uint64_t)16777215 << 40},
        {"24GB", 24000000000u},
        {"1.5GiB", (uint64_t)3 << 29},
        {"64kB", 64000},
        {"18446744073709551615", UINT64_MAX},
        {"18446744073709551.615k", UINT64_MAX},
    };
    static const char *const bad[] = {"",      "k",
                                      "1.5",   "1.0001k",
                                      "64K",   "64ki",
                                      "64kBB", "1e3",
                                      " 5",    "5 ",
                                      "0x10",  "5.k",
                                      "1..5k", "--5",
                                      "+-5",   "1k1",
                                      "nan",   "1Kii",
                                      "5B",    "5iB",
                                      "5,000", "1.00000000000000000000000000001k"};
    static const char *const large[] = {"18446744073709551616",
                                        "18446744073709552k",
                                        "16777216Ti",
                                        "99999999999999999999999999999999999999999999999999999",
                                        "18446744073709551614.123456789012Ti",
                                        "340282366920938463463374607431768211456.5T"};
    struct Fixture *x = *state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(PARSE(x, "--device-mem", good[i].text), 0);
        assert_true(x->options.memory == good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *word = base_format("--device-mem=%s", bad[i]);
        assert_int_equal(PARSE(x, word), -EINVAL);
        ERROR_SAYS(x, "E_FLAG_INTEGER --device-mem", bad[i], "64Ki");
        free(word);
    }
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_int_equal(PARSE(x, "--device-mem", large[i]), -EINVAL);
        ERROR_SAYS(x, "E_FLAG_INTEGER --device-mem", large[i], " 18446744073709551615");
    }
}

TEST(signed_numbers_have_their_own_limits) {
    struct Fixture *x = *state;
    assert_int_equal(PARSE(x, "--shift", "-2147483648"), 0);
    assert_true(x->options.shift == INT_MIN);
    assert_int_equal(PARSE(x, "--shift", "+2147483647"), 0);
    assert_true(x->options.shift == INT_MAX);
    assert_int_equal(PARSE(x, "--shift", "9223372036854775808"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_INTEGER 9223372036854775807");
    assert_int_equal(PARSE(x, "--shift", "-9223372036854775809"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_INTEGER -9223372036854775808");
    assert_int_equal(PARSE(x, "--shift", "2147483648"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_RANGE 2147483647");
    assert_int_equal(PARSE(x, "--batch", "-4"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_INTEGER --batch", "'-4'");
}

TEST(numbers_are_whole_and_in_range) {
    struct Fixture *x = *state;
    static const char *const bad[] = {"3e-4x", "",   "nan", "inf", "0x1p3",
                                      "1,5",   " 1", "1 ",  "--",  "e5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *word = base_format("--lr=%s", bad[i]);
        assert_int_equal(PARSE(x, word), -EINVAL);
        ERROR_SAYS(x, "E_FLAG_NUMBER --lr", bad[i]);
        free(word);
    }
    assert_int_equal(PARSE(x, "--lr", "1e999"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_NUMBER --lr", "1e999");
    assert_int_equal(PARSE(x, "--lr", "1e-999"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_NUMBER --lr", "1e-999");
    assert_int_equal(PARSE(x, "--lr", "0"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_RANGE --lr", "'0'", "X>0");
    assert_int_equal(PARSE(x, "--beta2", "1"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_RANGE --beta2", "'1'", "0<=X<1");
    assert_int_equal(PARSE(x, "--beta2", "-1e-9"), -EINVAL);
    assert_int_equal(PARSE(x, "--beta2", "0", "--batch", "1", "--layers", "1000"), 0);
    assert_int_equal(PARSE(x, "--batch", "0"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_RANGE --batch", "'0'", "N>=1");
    assert_int_equal(PARSE(x, "--layers", "1001"), -EINVAL);
    assert_int_equal(PARSE(x, "--layers", "0"), 0); // the default: as the model has
}

TEST(mistakes_of_the_line_are_named) {
    struct Fixture *x = *state;
    assert_int_equal(PARSE(x, "--bacth", "4"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_UNKNOWN --bacth", "--batch?");
    assert_int_equal(PARSE(x, "--device_mem=4"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_UNKNOWN --device-mem?");
    assert_int_equal(PARSE(x, "--device", "cpu"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_UNKNOWN --device-mem?");
    assert_int_equal(PARSE(x, "--no-overlp"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_UNKNOWN --no-overlp", "--overlap?");
    assert_int_equal(PARSE(x, "--quantum-flux", "1"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_UNKNOWN --quantum-flux", "--help");
    assert_int_equal(PARSE(x, "--lr"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_NO_VALUE --lr");
    assert_int_equal(PARSE(x, "--out", "--quiet"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_NO_VALUE --out", "--quiet", "--out=VALUE");
    assert_int_equal(PARSE(x, "--dtype", "fp8"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_CHOICE --dtype", "'fp8'", "fp32|bf16|fp16");
    assert_null(strstr(x->error.text, "did you mean"));
    assert_int_equal(PARSE(x, "--dtype", "BF1"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_CHOICE 'BF1'", "fp32|bf16|fp16", "bf16?");
    assert_int_equal(PARSE(x, "--dtype", "fp32|bf16"), -EINVAL);
    assert_int_equal(PARSE(x, "--dtype", ""), -EINVAL);
    assert_int_equal(PARSE(x, "--no-lr"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_SWITCH --lr");
    assert_int_equal(PARSE(x, "--no-quiet=true"), -EINVAL);
    assert_int_equal(PARSE(x, "--quiet=maybe"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_CHOICE --quiet", "'maybe'");
    assert_int_equal(PARSE(x, "--quiet", "now"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_SWITCH 'now'", "--quiet", "--no-quiet");
    assert_int_equal(PARSE(x, "--no-quiet", "now"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_STRAY_WORD 'now'");
    assert_int_equal(PARSE(x, "--quiet", "-lr"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_STRAY_WORD '-lr'", "--lr?");
    assert_int_equal(PARSE(x, "-quiet"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_STRAY_WORD '-quiet'", "--quiet?");
    assert_int_equal(PARSE(x, "--"), -EINVAL);
    assert_int_equal(PARSE(x, ""), -EINVAL);
    assert_int_equal(PARSE(x, "--=3"), -EINVAL);
}

TEST(values_are_told_as_text) {
    struct Fixture *x = *state;
    assert_int_equal(PARSE(x, "--device-mem", "1.5k", "--lr", "6e-4", "--zero", "3"), 0);
    static const char *const expected[][2] = {
        {"device-mem", "1500"}, {"lr", "0.0006"}, {"zero", "3"},   {"prompt", ""},
        {"quiet", "false"},     {"out", "out"},   {"shift", "-3"}, {"dtype", "fp32"}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char *text = flags_value(&x->flags, expected[i][0]);
        assert_string_equal(text, expected[i][1]);
        free(text);
    }
}

TEST(names_of_others_are_answered_with_ours) {
    struct Fixture *x = *state;
    assert_int_equal(PARSE(x, "--zero_stage", "2"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_UNKNOWN --zero_stage", "--zero;");
    assert_int_equal(PARSE(x, "--stage=2"), -EINVAL);
    ERROR_SAYS(x, "E_FLAG_UNKNOWN --stage:", "--zero;");
    assert_int_equal(flags_load_json_text(&x->flags, "file", "{\"stage\": 2}", 12, &x->error),
                     -EINVAL);
    ERROR_SAYS(x, "E_CONFIG_KEY stage", "\"zero\"");
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_int_equal(flags_print_help(&x->flags, "stage", out, &x->error), 0);
    fclose(out);
    assert_non_null(strstr(text, "--stage"));
    assert_non_null(strstr(text, "  --zero 0|1|2|3"));
    free(text);
}

TEST(help_shows_every_flag_within_100_columns) {
    struct Flag wide[NFLAG + 2];
    memcpy(wide, table, sizeof table);
    wide[NFLAG] = (struct Flag){
        "recompute",
        FLAG_CHOICE,
        0,
        "none",
        "Memory",
        .words = FLAG_WORDS("none", "gelu", "attention", "block"),
        .help = "which activations are made again in the backward pass instead of being kept from "
                "the forward pass; each level keeps less than the one before it, and all of them "
                "give the same bits"};
    wide[NFLAG + 1] = (struct Flag){
        "stop", FLAG_STRING, 0, "\n", "Run", .argument = "TEXT", .help = "ends a sample"};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    char options[sizeof(struct Options) + 2 * sizeof(char *)];
    struct FlagPart all = {wide, NFLAG + 2, 0};
    struct Flags f;
    flags_init(&f, &all, 1, options);
    struct Error e;
    assert_int_equal(flags_print_help(&f, "all", out, &e), 0);
    flags_free(&f);
    fclose(out);
    size_t groups = 0, lines = 0, compared = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        assert_true(strlen(line) <= 100);
        groups += line[0] != ' ';
        compared +=
            !strcmp(line, "  --beta2 X                 AdamW's decay of v (0<=X<1, default 0.95)");
        compared +=
            !strcmp(line, "  --[no-]overlap            overlap copies and compute (default on)");
        compared += !strcmp(line, "  --stop TEXT               ends a sample (default \\n)");
    }
    assert_int_equal(compared, 3);
    assert_int_equal(groups, 4); // each heading once, although the flags of a group lie apart
    // A line for each heading and each flag; the wide one has its usage and three lines of text.
    assert_int_equal(lines, 4 + NFLAG + 2 + 3);
    free(text);
}

static char *help_of_topic(struct Fixture *x, const char *topic, int status) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_int_equal(flags_print_help(&x->flags, topic, out, &x->error), status);
    fclose(out);
    return text;
}

TEST(help_has_topics) {
    struct Fixture *x = *state;
    static const struct {
        const char *topic, *has, *has_not;
    } cases[] = {
        {"", "  memory                    --device-mem --zero --overlap\n", "capacity"},
        {"memory", "Memory\n  --device-mem BYTES", "--lr"},
        {"MEMORY", "--zero 0|1|2|3", "Training"},
        {"lr", "  --lr X                    learning rate (X>0, default 6e-4)\n", "beta2"},
        {"memory-cap", "--memory-cap is called --device-mem now\n  --device-mem BYTES", "--lr"},
        {"device-mem", "  --device-mem BYTES", "now"},
        {"all", "learning rate", "Memory\n  --lr"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = help_of_topic(x, cases[i].topic, 0);
        if (!strstr(text, cases[i].has) || strstr(text, cases[i].has_not))
            fail_msg("--help %s: %s", cases[i].topic, text);
        free(text);
    }
    free(help_of_topic(x, "memori", -EINVAL));
    ERROR_SAYS(x, "E_HELP_TOPIC memori", "run, training, model, memory, all");
}

// What was not written on the line is told with its source; names that begin alike are apart.
TEST(refusals_tell_where_values_come_from) {
    struct Fixture *x = *state;
    static const char json[] = "{\"lr\": 0.5, \"batch\": 3}";
    assert_int_equal(file_replace(x->path, json, strlen(json), &x->error), 0);
    assert_int_equal(PARSE(x, "--batch", "2", "--config", x->path), 0);
    error_set(&x->error, -EINVAL, E_FLAG_RANGE,
              "--batch 2: --lr 0.5, --beta2 0.95, --device 3, --prompt, --zero");
    flags_describe_sources(&x->flags, true, &x->error);
    char *want = base_format("--batch 2: --lr 0.5, --beta2 0.95, --device 3, --prompt, --zero "
                             "(--lr: from %s; --beta2: the default; --zero: the default)",
                             x->path);
    assert_string_equal(x->error.text, want);
    free(want);
    error_set(&x->error, -ENOMEM, E_FLAG_RANGE, "no room: --lr 0.5 --zero");
    flags_describe_sources(&x->flags, false, &x->error);
    want = base_format("no room: --lr 0.5 --zero (--lr: from %s)", x->path);
    assert_string_equal(x->error.text, want);
    free(want);
    static const char old[] = "{\"lr\": 0.5, \"batch\": 3, \"given\": [\"batch\"]}";
    assert_int_equal(flags_load_json_text(&x->flags, "old.json", old, strlen(old), &x->error), 0);
    error_set(&x->error, -EINVAL, E_FLAG_RANGE, "--lr 0.5");
    flags_describe_sources(&x->flags, true, &x->error);
    assert_string_equal(x->error.text, "--lr 0.5 (--lr: from old.json)");
    x->options.beta2 = 0.5; // derived: there is nothing to say
    error_set(&x->error, -EINVAL, E_FLAG_RANGE, "--beta2 0.5: wrong");
    flags_describe_sources(&x->flags, true, &x->error);
    assert_string_equal(x->error.text, "--beta2 0.5: wrong");
}

AROUND_EACH(setup, teardown);
