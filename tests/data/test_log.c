// The run's log: exact numbers, valid JSON, no line twice after a resume, and a full disk is told.
#include "data/file.h"
#include "data/log/log.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct Fixture {
    char folder[64], path[96];
    struct Appender log;
    struct Error error;
    char *text; // what read_log found
};

static int setup(void **state) {
    struct Fixture *x = base_alloc_zeroed(sizeof *x);
    strcpy(x->folder, "/tmp/test_log.XXXXXX");
    if (!mkdtemp(x->folder))
        return -1;
    snprintf(x->path, sizeof x->path, "%s/log.jsonl", x->folder);
    log_level = LOG_QUIET;
    *state = x;
    return 0;
}

static int teardown(void **state) {
    struct Fixture *x = *state;
    appender_close(&x->log, &x->error);
    unlink(x->path);
    int left = rmdir(x->folder); // fails where a test leaves log.jsonl.tmp behind
    free(x);
    return left;
}

static void open_log(struct Fixture *x, int64_t last_step) {
    if (runlog_open(&x->log, x->folder, last_step, &x->error))
        fail_msg("%s", x->error.text);
}

static char *read_log(struct Fixture *x) {
    size_t n;
    if (file_read(x->path, 1 << 24, &x->text, &n, &x->error))
        fail_msg("%s", x->error.text);
    return x->text;
}

static void expect_log(struct Fixture *x, const char *expected) {
    char *text = read_log(x);
    assert_string_equal(text, expected);
    free(text);
}

static void write_step(struct Fixture *x, uint64_t step, float loss) {
    struct LogStep s = {.step = step, .loss = loss, .grad_norm = 1, .lr = 1e-3f};
    s.tokens_per_s = 1000;
    s.step_ms = 10;
    runlog_write_step(&x->log, &s);
}

static double number_of(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item))
        fail_msg("no number \"%s\"", key);
    return item->valuedouble;
}

TEST(lines_are_as_documented) {
    struct Fixture *x = *state;
    open_log(x, RUNLOG_FRESH);
    struct LogStep s = {20, 3.14159274f, 0.91f, 6e-4f, 10512.3, 194.8, 0, 0, 0, 0};
    runlog_write_step(&x->log, &s);
    runlog_write_val(&x->log, 20, 3.25f, 0);
    runlog_write_val(&x->log, 20, 3.25f, 1.8755f);
    s.loss_scale = 0x1p40f;
    runlog_write_step(&x->log, &s);
    struct EvalResult both = {"hellaswag:a/\"b\".jsonl", 100, {0.25, 0.5, 0.125}};
    struct EvalResult bin = {"hellaswag:c.bin", 3, {-1, -1, 0}};
    runlog_write_eval(&x->log, 20, &both);
    runlog_write_eval(&x->log, 21, &bin);
    // Flushed: the file has the lines while the log is open.
    expect_log(x, "{\"step\":20,\"loss\":3.1415927,\"grad_norm\":0.91,\"lr\":0.0006,"
                  "\"tokens_per_s\":10512.300,\"step_ms\":194.800}\n"
                  "{\"step\":20,\"val_loss\":3.25,\"perplexity\":25.79034}\n"
                  "{\"step\":20,\"val_loss\":3.25,\"perplexity\":25.79034,"
                  "\"bits_per_byte\":1.8755}\n"
                  "{\"step\":20,\"loss\":3.1415927,\"grad_norm\":0.91,\"lr\":0.0006,"
                  "\"tokens_per_s\":10512.300,\"step_ms\":194.800,\"loss_scale\":1.0995116e+12}\n"
                  "{\"step\":20,\"eval\":\"hellaswag:a/\\\"b\\\".jsonl\",\"items\":100,"
                  "\"acc\":0.25,\"acc_norm\":0.5,\"llmc_acc\":0.125}\n"
                  "{\"step\":21,\"eval\":\"hellaswag:c.bin\",\"items\":3,\"llmc_acc\":0}\n");
    assert_int_equal(appender_close(&x->log, &x->error), 0);
}

// What a run may tell besides, and notes.
TEST(notes_are_as_documented) {
    struct Fixture *x = *state;
    open_log(x, RUNLOG_FRESH);
    struct LogStep s = {2, 1.5f, 1, 0.5f, 10, 100, 0, 0.71, 0.4019, 163840};
    static const struct LogValue values[] = {{"compute", 0.93}, {"wait_data", 1e-7}, {"idle", NAN}};
    runlog_write_step(&x->log, &s);
    runlog_write_note(&x->log, &(struct LogNote){2, "breakdown", values, 3, NULL});
    runlog_write_note(&x->log, &(struct LogNote){2, "weights_hash", NULL, 0, "0123456789abcdef"});
    expect_log(x, "{\"step\":2,\"loss\":1.5,\"grad_norm\":1,\"lr\":0.5,\"tokens_per_s\":10.000,"
                  "\"step_ms\":100.000,\"light\":0.710,\"mfu\":0.402,\"tokens_seen\":163840}\n"
                  "{\"step\":2,\"breakdown\":{\"compute\":0.930000,\"wait_data\":0.000000,"
                  "\"idle\":0.000000}}\n"
                  "{\"step\":2,\"weights_hash\":\"0123456789abcdef\"}\n");
    assert_int_equal(appender_close(&x->log, &x->error), 0);
}

TEST(floats_read_back_bitwise) {
    struct Fixture *x = *state;
    open_log(x, RUNLOG_FRESH);
    enum { N = 4000 };
    float loss[N], norm[N];
    uint64_t bits = 1;
    for (int i = 0; i < N; i++) {
        uint32_t pair[2];
        do { // any finite floats, from denormal to huge
            bits = bits * 6364136223846793005u + 1442695040888963407u;
            memcpy(pair, &bits, sizeof pair);
            memcpy(&loss[i], &pair[0], 4);
            memcpy(&norm[i], &pair[1], 4);
        } while (!isfinite(loss[i]) || !isfinite(norm[i]));
        struct LogStep s = {(uint64_t)i + 1, loss[i], norm[i], loss[i], 1, 1, 0, 0, 0, 0};
        runlog_write_step(&x->log, &s);
    }
    char *text = read_log(x), *rest = text;
    for (int i = 0; i < N; i++) {
        char *line = strsep(&rest, "\n");
        cJSON *object = cJSON_Parse(line);
        assert_non_null(object);
        float a = (float)number_of(object, "loss"), b = (float)number_of(object, "grad_norm"),
              c = (float)number_of(object, "lr");
        assert_memory_equal(&a, &loss[i], 4);
        assert_memory_equal(&b, &norm[i], 4);
        assert_memory_equal(&c, &loss[i], 4);
        assert_int_equal((int)number_of(object, "step"), i + 1);
        cJSON_Delete(object);
    }
    free(text);
}

TEST(what_is_not_finite_becomes_null) {
    struct Fixture *x = *state;
    open_log(x, RUNLOG_FRESH);
    struct LogStep s = {1, NAN, INFINITY, -INFINITY, NAN, INFINITY, 0, 0, 0, 0};
    runlog_write_step(&x->log, &s);
    runlog_write_val(&x->log, 1, -NAN, NAN);
    runlog_write_val(&x->log, 1, 89, 0);
    expect_log(x, "{\"step\":1,\"loss\":null,\"grad_norm\":null,\"lr\":null,"
                  "\"tokens_per_s\":null,\"step_ms\":null}\n{\"step\":1,"
                  "\"val_loss\":null,\"perplexity\":null,\"bits_per_byte\":null}\n"
                  "{\"step\":1,\"val_loss\":89,\"perplexity\":null}\n");
}

TEST(the_longest_line_fits) {
    struct Fixture *x = *state;
    open_log(x, RUNLOG_FRESH);
    struct LogStep s = {UINT64_MAX, -1.17549449e-38f, -3.40282347e+38f, -1.40129846e-45f,
                        -1e300,     9.99e14,          3.40282347e+38f,  1e300,
                        9.99e14,    UINT64_MAX};
    runlog_write_step(&x->log, &s);
    char *text = read_log(x);
    assert_int_equal(text[strlen(text) - 1], '\n');
    cJSON *object = cJSON_Parse(text);
    assert_true(number_of(object, "step_ms") == 9.99e14);
    cJSON_Delete(object);
    free(text);
}

// A run of 6 steps with validation at 0, 2, 4, 6 dies; it resumes from the checkpoint of step 4.
TEST(resume_drops_the_later_steps) {
    struct Fixture *x = *state;
    open_log(x, RUNLOG_FRESH);
    for (uint64_t step = 0; step <= 6; step++) {
        if (step)
            write_step(x, step, (float)step);
        if (step % 2 == 0)
            runlog_write_val(&x->log, step, (float)step, 0);
    }
    appender_close(&x->log, &x->error);
    char *whole = read_log(x);
    open_log(x, 4);
    char *cut = read_log(x);
    const char *later = strstr(whole, "{\"step\":5");
    assert_non_null(later);
    assert_int_equal(strlen(cut), (size_t)(later - whole));
    assert_memory_equal(cut, whole, strlen(cut));
    write_step(x, 5, 5);
    write_step(x, 6, 6);
    runlog_write_val(&x->log, 6, 6, 0);
    expect_log(x, whole);
    free(whole);
    free(cut);
}

TEST(resume_drops_torn_lines) {
    struct Fixture *x = *state;
    static const char old[] =
        "{\"step\":1,\"loss\":9}\nnot JSON\n{\"loss\":3}\n{\"step\":\"2\"}\n\n"
        "{\"step\":2,\"loss\":8}\n{\"step\":3,\"loss\":7}";
    assert_int_equal(file_replace(x->path, old, strlen(old), &x->error), 0);
    open_log(x, 9); // the last line has no newline: its number may have been cut
    expect_log(x, "{\"step\":1,\"loss\":9}\n{\"step\":2,\"loss\":8}\n");
    write_step(x, 3, 7);
    char *text = read_log(x);
    assert_non_null(strstr(text, "8}\n{\"step\":3,"));
    free(text);
}

// A log from before there was a loss scale, or of a run in bf16: its lines stay as they are.
TEST(resume_keeps_lines_without_a_loss_scale) {
    struct Fixture *x = *state;
    open_log(x, RUNLOG_FRESH);
    write_step(x, 1, 9);
    char *old = read_log(x);
    appender_close(&x->log, &x->error);
    open_log(x, 1);
    struct LogStep s = {.step = 2, .loss = 8, .loss_scale = 65536};
    runlog_write_step(&x->log, &s);
    appender_close(&x->log, &x->error);
    open_log(x, 2); // and again, with both kinds of lines
    char *text = read_log(x), *second = text + strlen(old);
    assert_memory_equal(text, old, strlen(old));
    assert_non_null(strstr(second, "\"loss_scale\":65536}\n"));
    free(text);
    free(old);
}

TEST(resume_without_a_log_begins_one) {
    struct Fixture *x = *state;
    open_log(x, 4);
    expect_log(x, "");
}

TEST(resume_from_step_0_keeps_the_first_validation) {
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
    char heard[512], *expected = base_format(said, x->path);
    FILE *told = tmpfile();
    int usual = dup(STDERR_FILENO);
    assert_non_null(told);
    assert_int_equal(file_replace(x->path, old, strlen(old), &x->error), 0);
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
TEST(resume_says_nothing_of_a_whole_log) {
    struct Fixture *x = *state;
    static const char whole[] = V(0) S(1) S(2) "{\"step\":1,\"breakdown\":{}}\n" S(3) V(3) V(3);
    expect_cut(x, whole, 3, whole, "");
    expect_cut(x, V(0) S(1) S(2) S(3) V(3), 2, V(0) S(1) S(2), "");
}

TEST(resume_drops_what_is_no_object) {
    struct Fixture *x = *state;
    expect_cut(x, S(1) "{\"step\":2,\"loss\":1}x\n" S(3), 3, S(1) S(3),
               "%s: dropped 1 line that cannot be read\n");
    expect_cut(x, S(1) "{\"step\":1,\"step\":2}\n{\"step\":1.5}\n" S(2) "{\"step\":2", 2, S(1) S(2),
               "%s: dropped 3 lines that cannot be read\n");
}

// /dev/full refuses each write, as a full disk does.
TEST(fault_19_a_full_disk_is_told) {
    struct Fixture *x = *state;
    open_log(x, RUNLOG_FRESH);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(dup2(full, x->log.fd), x->log.fd);
    close(full);
    struct LogStep s = {.step = 1};
    runlog_write_step(&x->log, &s);
    assert_int_equal(appender_sync(&x->log, &x->error), -ENOSPC);
    assert_non_null(strstr(x->error.text, x->path));
    assert_true(error_is(&x->error, "E_FILE_WRITE"));
    assert_int_equal(appender_close(&x->log, &x->error), -ENOSPC);
    assert_null(x->log.path);
}

TEST(a_resume_on_a_full_disk_leaves_the_old_log) {
    struct Fixture *x = *state;
    static const char old[] = "{\"step\":1,\"loss\":9}\n{\"step\":2,\"loss\":8}\n";
    assert_int_equal(file_replace(x->path, old, strlen(old), &x->error), 0);
    struct rlimit usual, small = {10, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small.rlim_max = usual.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0); // no file may have more than 10 bytes
    int code = runlog_open(&x->log, x->folder, 1, &x->error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_int_equal(code, -EFBIG);
    assert_null(x->log.path);
    expect_log(x, old); // and what was written aside is gone: the folder must be empty at the end
}

// What lies there under the log's name and is no file of ours: nothing is opened through it, and
// nobody waits.
TEST(only_a_file_is_a_log) {
    struct Fixture *x = *state;
    char other[128];
    snprintf(other, sizeof other, "%s/other", x->folder);
    static const char old[] = "{\"step\":1,\"loss\":9}\n";
    assert_int_equal(file_replace(other, old, strlen(old), &x->error), 0);
    assert_int_equal(symlink(other, x->path), 0);
    assert_int_equal(runlog_open(&x->log, x->folder, 1, &x->error), -ELOOP);
    assert_non_null(strstr(x->error.text, x->path));
    unlink(x->path);
    assert_int_equal(mkfifo(x->path, 0600), 0);
    assert_int_equal(runlog_open(&x->log, x->folder, 1, &x->error), -EINVAL);
    unlink(x->path);
    // Another name of the same file: that keeps it.
    assert_int_equal(link(other, x->path), 0);
    open_log(x, RUNLOG_FRESH);
    write_step(x, 1, 2);
    char *text;
    size_t n;
    assert_int_equal(file_read(other, 1 << 20, &text, &n, &x->error), 0);
    assert_string_equal(text, old);
    free(text);
    unlink(other);
}

// A full disk tears a line: the half is taken away again, and the whole comes before the next.
TEST(a_torn_line_is_written_anew) {
    struct Fixture *x = *state;
    struct LogStep s = {.step = 1, .loss = 2};
    open_log(x, RUNLOG_FRESH);
    struct rlimit usual, small = {10, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small.rlim_max = usual.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    runlog_write_step(&x->log, &s);
    int torn = appender_sync(&x->log, &x->error);
    s.step = 2;
    runlog_write_step(&x->log, &s);
    int behind = appender_sync(&x->log, &x->error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_true(torn == -EFBIG && behind == -EFBIG);
    expect_log(x, "");
    assert_int_equal(appender_sync(&x->log, &x->error), 0);
    expect_log(x, "{\"step\":1,\"loss\":2,\"grad_norm\":0,\"lr\":0,\"tokens_per_s\":0.000,"
                  "\"step_ms\":0.000}\n{\"step\":2,\"loss\":2,\"grad_norm\":0,\"lr\":0,"
                  "\"tokens_per_s\":0.000,\"step_ms\":0.000}\n");
}

TEST(a_log_is_forced_to_the_disk) {
    struct Fixture *x = *state;
    struct Appender none = {.fd = -1};
    assert_int_equal(appender_sync(&none, &x->error), 0);
    open_log(x, RUNLOG_FRESH);
    write_step(x, 1, 9);
    assert_int_equal(appender_sync(&x->log, &x->error), 0);
    int ends[2]; // one of those is no disk, and says so
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], x->log.fd), x->log.fd);
    assert_int_equal(appender_sync(&x->log, &x->error), -EINVAL);
    assert_non_null(strstr(x->error.text, x->path));
    close(ends[0]);
    close(ends[1]);
}

TEST(a_missing_folder_is_told) {
    struct Fixture *x = *state;
    assert_int_equal(runlog_open(&x->log, "/nonexistent", RUNLOG_FRESH, &x->error), -ENOENT);
    assert_true(error_is(&x->error, "E_FILE_WRITE /nonexistent/log.jsonl"));
}

AROUND_EACH(setup, teardown);
