// Configuration files: config.json repeats a run bit by bit, and each mistake in a file is named.
#include "data/file.h"
#include "tests/lib/flags_fixture.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <limits.h>
#include <float.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int load(struct Fixture *x, const char *json) {
    x->error.text[0] = 0;
    return flags_load_json_text(&x->flags, "c.json", json, strlen(json), &x->error);
}

// Sets every flag away from its default, saves, and loads into fresh options.
TEST(a_saved_configuration_reads_back_exactly) {
    struct Fixture *x = *state;
    assert_int_equal(PARSE(x, "--batch", "9007199254740993", "--lr", "0.30000000000000004",
                           "--shift", "-2147483648", "--beta2", "0", "--device-mem",
                           "9007199254740991", "--dtype=fp16", "--zero=2", "--no-overlap",
                           "--quiet", "--out", "a\"\\\n\tß", "--prompt="),
                     0);
    assert_int_equal(flags_save_json(&x->flags, x->path, &x->error), 0);
    struct Options p = {0};
    struct Flags g;
    flags_init(&g, &part, 1, &p);
    if (flags_load_json(&g, x->path, &x->error))
        fail_msg("%s", x->error.text);
    const struct Options *o = &x->options;
    assert_true(p.batch == 9007199254740993u && p.memory == o->memory && p.shift == INT_MIN);
    assert_memory_equal(&p.lr, &o->lr, sizeof p.lr);
    assert_memory_equal(&p.beta2, &o->beta2, sizeof p.beta2);
    assert_true(p.dtype == 2 && p.stage == 2 && !p.overlap && p.quiet && p.layers == 0);
    assert_string_equal(p.out, o->out);
    assert_string_equal(p.prompt, "");
    for (size_t i = 0; i < NFLAG; i++)
        assert_int_equal(flags_was_set(&g, table[i].name), flags_was_set(&x->flags, table[i].name));
    flags_free(&g);
}

TEST(floats_survive_bitwise) {
    struct Fixture *x = *state;
    static const double values[] = {DBL_MIN, DBL_MAX, 0x1.fffffffffffffp-1, 1e17,
                                    0.1,     4e-300,  123456789.123456789,  6e-4};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        x->options.lr = values[i];
        assert_int_equal(flags_save_json(&x->flags, x->path, &x->error), 0);
        x->options.lr = 0;
        if (flags_load_json(&x->flags, x->path, &x->error))
            fail_msg("%.17g: %s", values[i], x->error.text);
        assert_memory_equal(&x->options.lr, &values[i], sizeof(double));
    }
}

TEST(the_line_overrides_the_file_wherever_it_stands) {
    struct Fixture *x = *state;
    static const char json[] = "{\"batch\": 3, \"lr\": 0.5, \"device-mem\": \"2Gi\", \"zero\": 1}";
    assert_int_equal(file_replace(x->path, json, strlen(json), &x->error), 0);
    const char *before[] = {"--batch", "5", "--config", x->path, NULL};
    const char *after[] = {"--config", x->path, "--batch", "5", NULL};
    for (int i = 0; i < 2; i++) {
        struct Flags g;
        struct Flags keep = x->flags;
        flags_init(&g, &part, 1, &x->options);
        x->flags = g;
        assert_int_equal(parse(x, i ? after : before), 0);
        assert_int_equal(x->options.batch, 5);
        assert_true(x->options.lr == 0.5 && x->options.memory == 2147483648u);
        assert_int_equal(x->options.stage, 1);
        assert_true(flags_was_set(&x->flags, "lr") && !flags_was_set(&x->flags, "beta2"));
        flags_free(&x->flags);
        x->flags = keep;
    }
}

TEST(mistakes_of_the_file_are_named) {
    static const struct {
        const char *json, *says;
    } bad[] = {
        {"", "E_JSON_SYNTAX line 1, column 1"},
        {"{\"batch\": 3,\n \"lr\" 4}", "E_JSON_SYNTAX line 2, column 7"},
        {"{} x", "E_JSON_SYNTAX"},
        {"[1]", "E_JSON_SYNTAX"},
        {"{\"bacth\": 3}", "E_CONFIG_KEY \"batch\"?"},
        {"{\"flux-capacitor\": 3}", "E_CONFIG_KEY \"flux-capacitor\""},
        {"{\"batch\": 3, \"batch\": 4}", "E_JSON_DUPLICATE_KEY \"batch\""},
        {"{\"config\": \"x\"}", "E_CONFIG_KEY \"config\""},
        {"{\"batch\": -3}", "E_FLAG_INTEGER batch: '-3'"},
        {"{\"batch\": 1.5}", "E_FLAG_INTEGER batch: '1.5'"},
        {"{\"batch\": 0}", "E_FLAG_RANGE batch: '0'"},
        {"{\"batch\": 18446744073709551616}", "E_CONFIG_VALUE batch"},
        {"{\"batch\": \"12x\"}", "E_FLAG_INTEGER batch: '12x'"},
        {"{\"batch\": true}", "E_CONFIG_VALUE batch: true"},
        {"{\"batch\": null}", "E_CONFIG_VALUE batch: null"},
        {"{\"batch\": [3]}", "E_CONFIG_VALUE batch"},
        {"{\"lr\": 1e999}", "E_FLAG_NUMBER lr: "},
        {"{\"quiet\": 1}", "E_CONFIG_VALUE quiet: 1"},
        {"{\"quiet\": \"true\"}", "E_CONFIG_VALUE quiet: true"},
        {"{\"out\": 3}", "E_CONFIG_VALUE out: 3"},
        {"{\"dtype\": \"fp8\"}", "E_FLAG_CHOICE dtype: 'fp8'"},
        {"{\"given\": \"lr\"}", "E_CONFIG_VALUE \"given\""},
        {"{\"given\": [3]}", "E_CONFIG_VALUE \"given\""},
        {"{\"given\": [\"flux\"]}", "E_CONFIG_KEY \"flux\""},
        {"{\"given\": [], \"given\": []}", "E_JSON_DUPLICATE_KEY \"given\""},
    };
    struct Fixture *x = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (load(x, bad[i].json) != -EINVAL)
            fail_msg("accepted %s", bad[i].json);
        ERROR_SAYS(x, bad[i].says, "c.json: ");
    }
    assert_int_equal(flags_load_json_text(&x->flags, "c.json", "{}\0 ", 4, &x->error), -EINVAL);
    ERROR_SAYS(x, "E_JSON_SYNTAX");
    // A flag of the line keeps its value, but what the file says of it must be right all the same.
    assert_int_equal(PARSE(x, "--batch", "2"), 0);
    assert_int_equal(load(x, "{\"batch\": \"x\"}"), -EINVAL);
    assert_int_equal(PARSE(x, "--config", "/nonexistent/c.json"), -ENOENT);
    ERROR_SAYS(x, "E_FILE_READ /nonexistent/c.json");
    assert_int_equal(PARSE(x, "--config", x->folder), -EISDIR);
}

// A run writes all flags; who resumes an old one gave of them only what it lists.
TEST(an_old_name_is_told_where_it_was_given) {
    static const struct {
        const char *json;
        bool told;
    } files[] = {{"{\"memory-cap\": 5, \"given\": []}", false},
                 {"{\"memory-cap\": 5, \"given\": [\"memory-cap\"]}", true},
                 {"{\"device-mem\": 5}", false},
                 {"{\"memory-cap\": 5}", true}};
    struct Fixture *x = *state;
    size_t i = flags_find(&x->flags, "device-mem");
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        x->flags.renamed[i] = false;
        assert_int_equal(load(x, files[k].json), 0);
        assert_int_equal(x->options.memory, 5);
        assert_int_equal(x->flags.renamed[i], files[k].told);
    }
    assert_int_equal(load(x, "{\"device-mem\": 5, \"memory-cap\": 5}"), -EINVAL);
    ERROR_SAYS(x, "E_CONFIG_KEY", "leave out \"memory-cap\"");
}

TEST(an_unwritable_folder_is_an_error_and_leaves_the_old_file) {
    struct Fixture *x = *state;
    assert_int_equal(flags_save_json(&x->flags, "/nonexistent/config.json", &x->error), -ENOENT);
    ERROR_SAYS(x, "E_FILE_WRITE /nonexistent/config.json");
    assert_int_equal(file_replace(x->path, "old", 3, &x->error), 0);
    struct rlimit usual, small = {10, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small.rlim_max = usual.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0); // no file may have more than 10 bytes
    int code = flags_save_json(&x->flags, x->path, &x->error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_int_equal(code, -EFBIG);
    char *text;
    size_t n;
    assert_int_equal(file_read(x->path, 100, &text, &n, &x->error), 0);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(file_read(x->path, 2, &text, &n, &x->error), -EFBIG);
    assert_null(text); // whose caller frees it once more
}

// Devices without an end and pipes without a writer: refused, and nobody waits.
TEST(what_is_no_file_is_not_read) {
    struct Fixture *x = *state;
    char *text;
    size_t n;
    alarm(20);
    assert_int_equal(file_read("/dev/zero", 9999, &text, &n, &x->error), -EINVAL);
    ERROR_SAYS(x, "E_FILE_KIND /dev/zero");
    assert_int_equal(mkfifo(x->path, 0600), 0);
    assert_int_equal(PARSE(x, "--config", x->path), -EINVAL);
    ERROR_SAYS(x, "E_FILE_KIND", x->path);
    alarm(0);
}

AROUND_EACH(setup, teardown);
