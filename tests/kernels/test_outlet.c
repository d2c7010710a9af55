// Outlets: nobody who prints waits, lines stay whole, what is dropped is counted where it is
// missing, and the end of a process waits for a reader only as long as it was told to.
//
// The reader is the other end of a pipe, which holds 64 KiB: it reads nothing until it is asked to.
#include "kernels/outlet.h"
#include "kernels/show.h"
#include "tests/lib/child.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUFFER_BYTES = 8 << 10,
    TEXT_BYTES = 1 << 20,
    LINES = 5000,
    LINE_LENGTH = 27,
    THREADS = 4,
    PIPE_BYTES = 64 << 10
};

struct Fixture {
    int pipe[2];
    struct Outlet *outlet;
    FILE *stream;
    size_t n;      // bytes that were read
    size_t filled; // that the pipe began with
    char text[TEXT_BYTES];
};

static int setup(void **state) {
    struct Fixture *x = base_alloc_zeroed(sizeof *x);
    *state = x;
    signal(SIGPIPE, SIG_IGN);
    alarm(60); // ends whoever waits for a reader after all
    if (pipe(x->pipe) || outlet_open(&x->outlet, x->pipe[1], "the pipe", BUFFER_BYTES))
        return -1;
    x->stream = outlet_stream(x->outlet);
    return x->stream ? 0 : -1;
}

// The outlet stays: it lives as long as the process.
static int teardown(void **state) {
    alarm(0);
    free(*state);
    return 0;
}

static void read_some(struct Fixture *x, size_t most) {
    ssize_t got = read(x->pipe[0], x->text + x->n, size_min(most, TEXT_BYTES - 1 - x->n));
    assert_true(got > 0);
    x->n += (size_t)got;
    x->text[x->n] = 0;
}

static void read_until(struct Fixture *x, const char *end) {
    while (!strstr(x->text, end))
        read_some(x, TEXT_BYTES);
}

// All that has been printed so far; each time that the pipe is full takes a second.
static void read_rest(struct Fixture *x) {
    while (outlet_wait(x->outlet, NULL) == -EAGAIN)
        read_some(x, TEXT_BYTES);
    fcntl(x->pipe[0], F_SETFL, O_NONBLOCK);
    for (ssize_t got = 1; got > 0; x->n += got > 0 ? (size_t)got : 0)
        got = read(x->pipe[0], x->text + x->n, TEXT_BYTES - 1 - x->n);
}

// Leaves no room in the pipe; what it is full of is read by unfill_pipe.
static void fill_pipe(struct Fixture *x) {
    char block[4096] = {0};
    fcntl(x->pipe[1], F_SETFL, O_NONBLOCK);
    while (write(x->pipe[1], block, sizeof block) > 0)
        x->filled += sizeof block;
    fcntl(x->pipe[1], F_SETFL, 0);
    assert_int_equal(x->filled, PIPE_BYTES);
}

static void unfill_pipe(struct Fixture *x) {
    char block[4096];
    for (; x->filled; x->filled -= sizeof block)
        assert_int_equal(read(x->pipe[0], block, sizeof block), sizeof block);
}

static bool hurries(void) {
    return true;
}

static bool has_time(void) {
    return false;
}

static double seconds_of_wait(struct Fixture *x, bool (*hurry)(void), int expected) {
    double start = base_seconds();
    assert_int_equal(outlet_wait(x->outlet, hurry), expected);
    return base_seconds() - start;
}

static void what_is_printed_is_read(void **state) {
    struct Fixture *x = *state;
    char *expected = base_alloc_zeroed(1 << 16);
    size_t n = 0;
    for (int i = 0; i < 500; i++) {
        n += (size_t)sprintf(expected + n, "line %d of a run\n", i);
        fprintf(x->stream, "line %d of", i);
        fprintf(x->stream, " a run\n");
        if (i % 50 == 49) // no more than the buffer holds
            assert_int_equal(outlet_wait(x->outlet, NULL), 0);
    }
    strcpy(expected + n, "\rhalf a line");
    fprintf(x->stream, "\rhalf a line");
    fflush(x->stream);
    read_until(x, "half a line");
    assert_string_equal(x->text, expected);
    assert_int_equal(fcntl(x->pipe[1], F_GETFL) & O_NONBLOCK, 0); // others share it
    free(expected);
}

static void print_lines(struct Fixture *x, int from, int n) {
    for (int i = from; i < from + n; i++)
        fprintf(x->stream, "line %05d ---------------\n", i);
}

// All lines that came are whole, in their order, and where some are missing it says how many.
// Returns how many counts there are.
static int check_counts(const char *text, int lines) {
    int next = 0, counts = 0;
    for (const char *at = text, *end; *at; at = end + 1) {
        char line[64], count[128] = "";
        int missing = 0;
        end = strchr(at, '\n');
        assert_non_null(end);
        snprintf(line, sizeof line, "line %05d ---------------\n", next);
        if (sscanf(at, "%d line", &missing) == 1)
            snprintf(count, sizeof count, "%d %s dropped: the reader of the pipe was too slow\n",
                     missing, missing == 1 ? "line was" : "lines were");
        if (strncmp(at, line, LINE_LENGTH) != 0 && (!*count || strncmp(at, count, strlen(count))))
            fail_msg("not line %d, nor a count: %.*s", next, (int)(end - at), at);
        next += *count ? missing : 1;
        counts += *count != 0;
    }
    assert_int_equal(next, lines);
    return counts;
}

static void what_is_dropped_is_counted_where_it_is_missing(void **state) {
    struct Fixture *x = *state;
    fill_pipe(x);
    print_lines(x, 0, LINES);
    unfill_pipe(x);
    read_until(x, "line 04999 ---------------\n"); // the newest are kept
    print_lines(x, LINES, 10);                     // and from there on all comes again
    read_until(x, "line 05009 ---------------\n");
    assert_true(check_counts(x->text, LINES + 10) >= 1);
}

static void a_reader_that_stays_slow_is_told_again(void **state) {
    struct Fixture *x = *state;
    for (int part = 0; part < 4; part++) {
        print_lines(x, part * LINES, LINES);
        read_some(x, 20000);
        usleep(50000); // for what there is room for now
    }
    read_rest(x);
    assert_true(check_counts(x->text, 4 * LINES) > 1);
}

// Of a line that is drawn again and again the last alone waits; lines above it are kept.
static void drawn_lines_leave_room_for_others(void **state) {
    struct Fixture *x = *state;
    fill_pipe(x);
    fprintf(x->stream, "first\n");
    for (int i = 0; i < 20000; i++) {
        fprintf(x->stream, "\rstep %d\033[K", i);
        fflush(x->stream);
    }
    fprintf(x->stream, "\r\033[Ksaved\n");
    fprintf(x->stream, "\rstep 20000\033[K");
    fflush(x->stream);
    unfill_pipe(x);
    read_until(x, "20000\033[K");
    assert_null(strstr(x->text, "dropped"));
    assert_non_null(strstr(x->text, "first\n"));
    assert_non_null(strstr(x->text, "\r\033[Ksaved\n\rstep 20000\033[K"));
    assert_true(x->n < 100);
}

static void *print_from_a_thread(void *fixture) {
    struct Fixture *x = fixture;
    for (int i = 0; i < 2000; i++)
        fprintf(x->stream, "a line of %s %d\n", "a thread, and its number is", i);
    return NULL;
}

static void lines_of_threads_stay_whole(void **state) {
    struct Fixture *x = *state;
    pthread_t thread[THREADS];
    FILE *second = outlet_stream(x->outlet);
    assert_non_null(second);
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, print_from_a_thread, x), 0);
    for (int i = 0; i < 2000; i++)
        fprintf(second, "a line of the other stream\n");
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    fprintf(second, "end\n");
    int came = 0, dropped = 0, missing;
    read_rest(x);
    for (char *rest = x->text, *line; (line = strsep(&rest, "\n")) && rest;) {
        bool count = sscanf(line, "%d line", &missing) == 1;
        if (count)
            dropped += missing;
        else if (strncmp(line, "a line of a thread, and its number is ", 38) != 0 &&
                 strcmp(line, "a line of the other stream") != 0 && strcmp(line, "end") != 0)
            fail_msg("not a line: %s", line);
        came += !count;
    }
    assert_true(came > 0 && came + dropped == (THREADS + 1) * 2000 + 1);
}

static void the_end_waits_as_long_as_it_was_told_to(void **state) {
    struct Fixture *x = *state;
    fill_pipe(x);
    print_lines(x, 0, LINES);
    double seconds = seconds_of_wait(x, hurries, -EAGAIN);
    assert_true(seconds > 0.5 && seconds < 2.5);
    seconds = seconds_of_wait(x, NULL, -EAGAIN);
    assert_true(seconds > 0.5 && seconds < 2.5);
}

static void *read_later(void *fixture) {
    struct Fixture *x = fixture;
    usleep(1800000);
    unfill_pipe(x);
    read_until(x, "line 04999 ---------------\n");
    return NULL;
}

static void without_a_hurry_it_waits_for_the_reader(void **state) {
    struct Fixture *x = *state;
    pthread_t reader;
    fill_pipe(x);
    print_lines(x, 0, LINES);
    assert_int_equal(pthread_create(&reader, NULL, read_later, x), 0);
    assert_true(seconds_of_wait(x, has_time, 0) > 1.5);
    pthread_join(reader, NULL);
    check_counts(x->text, LINES);
}

static void a_reader_that_is_gone_is_an_error_and_no_more(void **state) {
    struct Fixture *x = *state;
    close(x->pipe[0]);
    print_lines(x, 0, 1);
    assert_int_equal(outlet_wait(x->outlet, NULL), -EPIPE);
    print_lines(x, 1, LINES);
    assert_true(seconds_of_wait(x, NULL, -EPIPE) < 0.5);
    assert_false(ferror(x->stream));
}

// ---- of a process: kernels/base.h ----

static void *run_out_of_memory(void *bytes) {
    base_out_of_memory(*(size_t *)bytes, "the test");
}

static void of_two_threads(const void *context) {
    pthread_t thread;
    struct Error e;
    assert_int_equal(base_open_outlets(&e), 0);
    pthread_create(&thread, NULL, run_out_of_memory, (void *)context);
    run_out_of_memory((void *)context);
}

static void one_line_tells_that_memory_is_out(void **state) {
    (void)state;
    size_t bytes = 12345;
    int status;
    char *said = child_said(of_two_threads, &bytes, &status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 2);
    assert_true(line_is(said, "E_MEMORY_REFUSED 12345 bytes"));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    free(said);
}

static void end_as_a_library(const void *unused) {
    (void)unused;
    base_keep_status();
    exit(1);
}

static void an_end_by_a_library_has_a_line(void **state) {
    (void)state;
    int status;
    char *said = child_said(end_as_a_library, NULL, &status);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    assert_true(line_is(said, "E_LIBRARY_ENDED"));
    free(said);
}

// Both of its outputs are pipes that are full.
static void with_outputs_that_hang(const void *end) {
    struct Error e;
    int pipes[2];
    char block[4096] = {0};
    assert_int_equal(pipe(pipes), 0);
    fcntl(pipes[1], F_SETFL, O_NONBLOCK);
    while (write(pipes[1], block, sizeof block) > 0)
        ;
    fcntl(pipes[1], F_SETFL, 0);
    dup2(pipes[1], STDOUT_FILENO);
    dup2(pipes[1], STDERR_FILENO);
    assert_int_equal(base_open_outlets(&e), 0);
    log_line(LOG_QUIET, "a line");
    printf("another, not flushed");
    alarm(5);
    (*(void (*const *)(void))end)();
}

static void leave(void) {
    exit(base_drain(stdout, hurries) || base_drain(stderr, hurries) ? 1 : 7);
}

static void give_up(void) {
    base_give_up(E_MEMORY_REFUSED, "nobody reads this");
}

static void fail_a_check(void) {
    CHECK(false, "nobody reads this");
}

static void an_output_that_hangs_does_not_hold_the_end(void **state) {
    (void)state;
    static const struct {
        void (*end)(void);
        int status, signal;
    } ends[] = {{leave, 7, 0}, {give_up, 2, 0}, {fail_a_check, 0, SIGABRT}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        int status;
        free(child_said(with_outputs_that_hang, &ends[i].end, &status));
        if (ends[i].signal)
            assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, ends[i].signal);
        else
            assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, ends[i].status);
    }
}

// fd 7 is where a child tells what it found.
static void look_at_descriptors(const void *context) {
    (void)context;
    dup2(STDERR_FILENO, 7);
    for (int fd = 0; fd <= 2; fd++)
        close(fd);
    base_hold_descriptors();
    int file = open("/dev/null", O_RDWR);
    char byte = 0;
    bool right = file > 2 && write(1, "x", 1) == -1 && errno == EBADF && write(2, "x", 1) == -1 &&
                 read(0, &byte, 1) == -1;
    dprintf(7, right ? "held\n" : "not held\n");
}

static void closed_descriptors_are_held(void **state) {
    (void)state;
    int status;
    char *said = child_said(look_at_descriptors, NULL, &status);
    assert_string_equal(said, "held\n");
    free(said);
}

// What came from outside, and how a line has it.
static void what_a_terminal_would_obey_is_escaped(void **state) {
    static const char *const shown[][2] = {
        {"a\x1b[31mb\x7f", "a\\x1b[31mb\\x7f"},
        {"caf\u00e9 \U0001f642", "caf\u00e9 \U0001f642"},
        {"\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82"},
        {"C1: \xc2\x9b", "C1: \\xc2\\x9b"},
        {"tab\there\nline\r", "tab\there line\\x0d"},
        {"http://user:secret@host/x?token=t: no", "http://***@host/x?***: no"},
        {"(https://host/x#frag), ftp://t@h", "(https://host/x#***), ftp://***@h"},
        {"http://user:se/cr et@host/x", "http://***@host/x"},
        {"http://host:80/@x: a@b", "http://host:80/@x: a@b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        char text[64], again[64];
        size_t n = show_line(text, sizeof text, shown[i][0]);
        assert_string_equal(text, shown[i][1]);
        assert_int_equal(n, strlen(text));
        show_line(again, sizeof again, text);
        assert_string_equal(again, text);
        for (size_t size = 1; size <= n; size++) // cut: never beyond, nor inside a character
            assert_true(show_line(again, size, shown[i][0]) < size &&
                        !strncmp(again, text, strlen(again)));
    }
    char cut[4];
    show_line(cut, sizeof cut, "ab\u00e9");
    assert_string_equal(cut, "ab");
    char kept[64];
    show_masked(kept, sizeof kept, "http://u@h/x\na\x1b");
    assert_string_equal(kept, "http://***@h/x\na\x1b");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        // First, as children have no use for outlets that other tests have left.
        cmocka_unit_test(one_line_tells_that_memory_is_out),
        cmocka_unit_test(an_end_by_a_library_has_a_line),
        cmocka_unit_test(an_output_that_hangs_does_not_hold_the_end),
        cmocka_unit_test(closed_descriptors_are_held),
        cmocka_unit_test(what_a_terminal_would_obey_is_escaped),
        TEST(what_is_printed_is_read),
        TEST(what_is_dropped_is_counted_where_it_is_missing),
        TEST(a_reader_that_stays_slow_is_told_again),
        TEST(drawn_lines_leave_room_for_others),
        TEST(lines_of_threads_stay_whole),
        TEST(the_end_waits_as_long_as_it_was_told_to),
        TEST(without_a_hurry_it_waits_for_the_reader),
        TEST(a_reader_that_is_gone_is_an_error_and_no_more),
    };
    return cmocka_run_group_tests_name("outlet", tests, NULL, NULL) ? 1 : 0;
}
