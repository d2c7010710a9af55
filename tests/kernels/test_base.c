// How a process ends and what it prints: one line where memory is out, no reader that hangs holds
// up a run that is asked to end, descriptors that were closed, and text that a terminal would obey.
#include "kernels/show.h"
#include "tests/lib/child.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void *run_out_of_memory(void *bytes) {
    base_out_of_memory(*(size_t *)bytes, "the test");
}

static void of_two_threads(const void *context) {
    pthread_t thread;
    pthread_create(&thread, NULL, run_out_of_memory, (void *)context);
    run_out_of_memory((void *)context);
}

TEST(one_line_tells_that_memory_is_out) {
    size_t bytes = 12345;
    int status;
    char *said = child_said(of_two_threads, &bytes, &status);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 2);
    assert_true(line_is(said, "E_MEMORY_REFUSED 12345 bytes"));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
    free(said);
}

TEST(a_refused_file_is_told_with_what_to_do) {
    struct Error e;
    int code = error_io(&e, -EMFILE, E_FILE_READ, "cannot read %s", "a.txt");
    assert_error(code, -EMFILE, &e, "E_FILE_READ cannot read a.txt: Too many open files; ");
    assert_non_null(strstr(e.text, "`ulimit -n`"));
    error_io(&e, -EIO, E_FILE_READ, "cannot read %s", "a.txt");
    assert_non_null(strstr(e.text, "; check "));
}

static void end_as_a_library(const void *unused) {
    (void)unused;
    base_keep_status();
    exit(1);
}

TEST(an_end_by_a_library_has_a_line) {
    int status;
    char *said = child_said(end_as_a_library, NULL, &status);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    assert_true(line_is(said, "E_LIBRARY_ENDED"));
    free(said);
}

static int full_pipe(int *reader) {
    int pipes[2];
    char block[4096] = {0};
    assert_int_equal(pipe(pipes), 0);
    fcntl(pipes[1], F_SETFL, O_NONBLOCK);
    while (write(pipes[1], block, sizeof block) > 0)
        ;
    fcntl(pipes[1], F_SETFL, 0);
    *reader = pipes[0];
    return pipes[1];
}

// The second time it has waited for too long.
static void stop_waiting(int number) {
    static sig_atomic_t times;
    (void)number;
    if (times++)
        _exit(3);
    base_stop_waiting();
    alarm(10);
}

// Both of its outputs are pipes that are full; the signal that asks it to end comes while it waits.
static void with_outputs_that_hang(const void *end) {
    int reader, writer = full_pipe(&reader);
    setvbuf(stdout, NULL, _IOLBF, 0);
    dup2(writer, STDOUT_FILENO);
    dup2(writer, STDERR_FILENO);
    signal(SIGALRM, stop_waiting);
    alarm(1);
    (*(void (*const *)(void))end)();
}

static void leave(void) {
    log_line(LOG_QUIET, "a line");
    base_wait_for_reader(stdout);
    printf("another\n");
    exit(ferror(stdout) || ferror(stderr) ? 1 : 7);
}

static void give_up(void) {
    base_give_up(E_MEMORY_REFUSED, "nobody reads this");
}

static void fail_a_check(void) {
    CHECK(false, "nobody reads this");
}

TEST(an_output_that_hangs_does_not_hold_up_who_is_to_end) {
    static const struct {
        void (*end)(void);
        int status, signal;
    } ends[] = {{leave, 7, 0}, {give_up, 2, 0}, {fail_a_check, 0, SIGABRT}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        int status;
        double start = base_seconds();
        free(child_said(with_outputs_that_hang, &ends[i].end, &status));
        if (ends[i].signal)
            assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, ends[i].signal);
        else
            assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, ends[i].status);
        assert_true(base_seconds() - start > 1.9); // it waits, and a second longer
    }
}

static int reader_of_pipe;

static void *read_later(void *unused) {
    (void)unused;
    char block[4096];
    usleep(300000);
    for (int i = 0; i < 16; i++)
        assert_int_equal(read(reader_of_pipe, block, sizeof block), sizeof block);
    return NULL;
}

TEST(a_reader_that_comes_back_gets_the_line) {
    pthread_t thread;
    char said[16] = "";
    FILE *out = fdopen(full_pipe(&reader_of_pipe), "w");
    assert_int_equal(pthread_create(&thread, NULL, read_later, NULL), 0);
    base_wait_for_reader(out);
    fprintf(out, "a line");
    fclose(out);
    pthread_join(thread, NULL);
    assert_int_equal(read(reader_of_pipe, said, sizeof said - 1), 6);
    assert_string_equal(said, "a line");
    close(reader_of_pipe);
}

// fd 7 is where a child tells what it found.
static void look_at_descriptors(const void *context) {
    (void)context;
    bool right = true;
    dup2(STDERR_FILENO, 7);
    for (int fd = 0; fd <= 2; fd++)
        dup2(open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY), fd);
    for (int fd = 0; fd <= 2; fd++)
        right = right && !base_was_closed(fd);
    for (int fd = 0; fd <= 2; fd++)
        close(fd);
    base_hold_descriptors();
    for (int fd = 0; fd <= 2; fd++)
        right = right && base_was_closed(fd);
    int file = open("/dev/null", O_RDWR);
    char byte = 0;
    right = right && file > 2 && write(1, "x", 1) == -1 && errno == EBADF &&
            write(2, "x", 1) == -1 && read(0, &byte, 1) == -1;
    dprintf(7, right ? "held\n" : "not held\n");
}

TEST(closed_descriptors_are_held) {
    int status;
    char *said = child_said(look_at_descriptors, NULL, &status);
    assert_string_equal(said, "held\n");
    free(said);
}

// What came from outside, and how a line has it.
TEST(what_a_terminal_would_obey_is_escaped) {
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
