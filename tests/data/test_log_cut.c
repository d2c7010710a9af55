// What a resume keeps of the log: lines that are whole, steps that rise, and a word of what is
// missing. (More of the log: test_log.c.)
#include "test_log.h"

static void resume_from_step_0_keeps_the_first_validation(void **state) {
    struct Fixture *x = *state;
    static const char old[] = "{\"step\":0,\"val_loss\":9}\n{\"step\":1,\"loss\":9}\n";
    assert_int_equal(file_replace(x->path, old, strlen(old), &x->error), 0);
    open_log(x, 0);
    expect_log(x, "{\"step\":0,\"val_loss\":9}\n");
    appender_close(&x->log, &x->error);
    open_log(x, RUNLOG_FRESH);
    expect_log(x, "");
}

// What a resume after step `last_step` keeps of a log of `old`, and what it says of it.
static void expect_cut(struct Fixture *x, const char *old, int64_t last_step, const char *kept,
                       const char *said) {
    char heard[512], *expected = base_format(said, x->path, x->path);
    FILE *told = tmpfile();
    int usual = dup(STDERR_FILENO);
    assert_non_null(told);
    if (old)
        assert_int_equal(file_replace(x->path, old, strlen(old), &x->error), 0);
    else
        unlink(x->path);
    log_level = LOG_NORMAL;
    assert_int_equal(dup2(fileno(told), STDERR_FILENO), STDERR_FILENO);
    open_log(x, last_step);
    assert_int_equal(dup2(usual, STDERR_FILENO), STDERR_FILENO);
    log_level = LOG_QUIET;
    close(usual);
    rewind(told);
    heard[fread(heard, 1, sizeof heard - 1, told)] = 0;
    fclose(told);
    assert_string_equal(heard, expected);
    free(expected);
    expect_log(x, kept);
    assert_int_equal(appender_close(&x->log, &x->error), 0);
}

#define S(n) "{\"step\":" #n ",\"loss\":1}\n"
#define V(n) "{\"step\":" #n ",\"val_loss\":1}\n"

// Lines of other kinds come behind later steps, and again where a run that is done goes on.
static void resume_says_nothing_of_a_whole_log(void **state) {
    struct Fixture *x = *state;
    static const char whole[] = V(0) S(1) S(2) "{\"step\":1,\"breakdown\":{}}\n" S(3) V(3) V(3);
    expect_cut(x, whole, 3, whole, "");
    expect_cut(x, V(0) S(1) S(2) S(3) V(3), 2, V(0) S(1) S(2), "");
}

static void resume_tells_what_is_missing(void **state) {
    struct Fixture *x = *state;
    expect_cut(x, S(1) S(2) S(4) S(5), 5, S(1) S(2) S(4) S(5), "%s lacks step 3 (of 1 to 5)\n");
    expect_cut(x, V(0) S(2) S(5), 6, V(0) S(2) S(5),
               "%s lacks 4 steps, the first is 1 (of 1 to 6)\n");
    expect_cut(x, S(1) S(2), 3, S(1) S(2), "%s lacks step 3 (of 1 to 3)\n");
    expect_cut(x, NULL, 3, "", "%s lacks 3 steps, the first is 1 (of 1 to 3)\n");
    // A step that another number made a later one.
    expect_cut(x, S(1) S(17) S(3), 3, S(1) S(3), "%s lacks step 2 (of 1 to 3)\n");
}

static void resume_drops_what_is_no_object(void **state) {
    struct Fixture *x = *state;
    expect_cut(x, S(1) "{\"step\":2,\"loss\":1}x\n" S(3), 3, S(1) S(3),
               "%s: dropped 1 line that cannot be read, line 2\n%s lacks step 2 (of 1 to 3)\n");
    expect_cut(x, S(1) "{\"step\":1,\"step\":2}\n{\"step\":1.5}\n" S(2), 2, S(1) S(2),
               "%s: dropped 2 lines that cannot be read, the first is line 2\n");
}

// As few go as can.
static void resume_drops_steps_out_of_order(void **state) {
    struct Fixture *x = *state;
    static const char one[] = "%s: dropped 1 line of steps that stand twice or out of order, ";
    char *said = base_format("%sstep 2 in line 4\n", one);
    expect_cut(x, S(1) S(2) V(2) S(2) S(3), 3, S(1) S(2) V(2) S(3), said);
    free(said);
    said = base_format("%sstep 6 in line 2\n%%s lacks step 2 (of 1 to 6)\n", one);
    expect_cut(x, S(1) S(6) S(3) S(4) S(5) S(6), 6, S(1) S(3) S(4) S(5) S(6), said);
    free(said);
    said = base_format("%sstep 1 in line 3\n%%s lacks step 3 (of 1 to 4)\n", one);
    expect_cut(x, S(1) S(2) S(1) S(4), 4, S(1) S(2) S(4), said);
    free(said);
    expect_cut(x, S(1) S(2) S(3) S(2) S(3) S(4), 4, S(1) S(2) S(3) S(4),
               "%s: dropped 2 lines of steps that stand twice or out of order, the first is step 2 "
               "in line 4\n");
    said = base_format("%sstep 3 in line 2\n%%s lacks step 3 (of 1 to 4)\n", one);
    expect_cut(x, S(1) S(3) S(2) S(4), 4, S(1) S(2) S(4), said);
    free(said);
}

// More than is written at once, in the wrong order as a whole: it takes no square of its length.
static void a_long_log_is_cut_back(void **state) {
    struct Fixture *x = *state;
    enum { N = 300000 };
    static const char line[] = "{\"step\":%d,\"loss\":1}\n";
    char *text = base_alloc((size_t)N * 32);
    size_t n = 0;
    for (int step = N; step; step--)
        n += (size_t)sprintf(text + n, line, step);
    assert_int_equal(file_replace(x->path, text, n, &x->error), 0);
    open_log(x, N);
    expect_log(x, S(1));
    appender_close(&x->log, &x->error);
    n = 0;
    for (int step = 1; step <= N / 10; step++)
        n += (size_t)sprintf(text + n, line, step);
    assert_int_equal(file_replace(x->path, text, n, &x->error), 0);
    open_log(x, N / 10);
    expect_log(x, text);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(resume_from_step_0_keeps_the_first_validation),
        TEST(resume_says_nothing_of_a_whole_log),
        TEST(resume_tells_what_is_missing),
        TEST(resume_drops_what_is_no_object),
        TEST(resume_drops_steps_out_of_order),
        TEST(a_long_log_is_cut_back),
    };
    return cmocka_run_group_tests_name("log_cut", tests, NULL, NULL) ? 1 : 0;
}
