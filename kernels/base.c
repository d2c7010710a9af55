// Failure and log lines: see base.h for which kind of failure is which. Next: outlet.h, where lines
// go while a run trains.
#include "kernels/base.h"

#include "kernels/outlet.h"
#include "kernels/show.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum LogLevel log_level = LOG_NORMAL;

static _Thread_local int this_rank;

// Of standard output and standard error; NULL: none. They are the process's, as the descriptors
// are, and what ends the process, which may be any line of it, must be able to wait for them.
static struct Outlet *outlets[2];
static FILE *streams[2];
static atomic_flag ends = ATOMIC_FLAG_INIT; // some thread is saying the last line

void base_set_rank(int rank) {
    this_rank = rank;
}

int base_rank(void) {
    return this_rank;
}

const char *error_name(enum ErrorId id) {
    static const char *const names[] = {
        "E_NONE",
#define ERROR_ID(name) "E_" #name,
#include "kernels/error_ids.h"
#undef ERROR_ID
    };
    return names[id];
}

int error_set(struct Error *e, int code, enum ErrorId id, const char *format, ...) {
    char text[2 * ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    show_line(e->text, sizeof e->text, text); // whatever a file name or a library put into it
    e->id = id;
    return code;
}

void log_line(enum LogLevel level, const char *format, ...) {
    if (level > log_level)
        return;
    char said[1024], text[sizeof said];
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    show_line(text, sizeof text, said);
    if (this_rank)
        fprintf(stderr, "rank %d: %s\n", this_rank, text);
    else
        fprintf(stderr, "%s\n", text);
}

// ---- standard output and standard error ----

void base_hold_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++) // in this order: open takes the lowest that is free
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

// OpenMP's library and others end the process by themselves where memory or threads are short.
static void end_of_a_library(int status, void *unused) {
    (void)unused;
    if (status != 0 && status != 2)
        base_give_up(E_LIBRARY_ENDED,
                     "a library has ended the process, for what its line above says; if that is "
                     "memory or threads, ask for less (--plan shows what a run takes)");
}

void base_keep_status(void) {
    on_exit(end_of_a_library, NULL);
}

// A terminal, a pipe, or `2>&1`.
static bool is_one_file(int a, int b) {
    struct stat x, y;
    return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int base_open_outlets(struct Error *e) {
    enum { BUFFER_BYTES = 1 << 20 }; // some ten thousand lines, or a long sample
    static const char *const names[2] = {"standard output", "standard error"};
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        int err = 0;
        if (i == 1 && is_one_file(STDOUT_FILENO, STDERR_FILENO))
            outlets[1] = outlets[0]; // or lines of the two would change places
        else
            err = outlet_open(&outlets[i], i + 1, names[i], BUFFER_BYTES);
        streams[i] = err ? NULL : outlet_stream(outlets[i]);
        if (!streams[i])
            return error_set(e, err ? err : -ENOMEM, E_THREAD_REFUSED,
                             "no thread or memory for %s: %s", names[i],
                             strerror(err ? -err : ENOMEM));
    }
    stdout = streams[0]; // variables, in the GNU C library
    stderr = streams[1];
    return 0;
}

static struct Outlet *outlet_of(const FILE *stream) {
    for (int i = 0; i < 2; i++)
        if (streams[i] == stream)
            return outlets[i];
    return NULL;
}

int base_descriptor(FILE *stream) {
    return stream == streams[0]   ? STDOUT_FILENO
           : stream == streams[1] ? STDERR_FILENO
                                  : fileno(stream);
}

int base_drain(FILE *stream, bool (*hurry)(void)) {
    struct Outlet *o = outlet_of(stream);
    bool failed = fflush(stream) != 0 || ferror(stream);
    int code = o ? outlet_wait(o, hurry) : failed ? -EIO : 0;
    return code == -EAGAIN || (o && code == -EBADF) ? 0 : code;
}

// ---- the end ----

static void say_last(const char *format, va_list args) {
    char said[1280], text[sizeof said];
    while (atomic_flag_test_and_set(&ends))
        pause(); // until the process ends
    fflush(stdout);
    vsnprintf(said, sizeof said, format, args);
    show_text(text, sizeof text, said);
    fputs(text, stderr);
    base_drain(stdout, NULL);
    base_drain(stderr, NULL);
}

void base_last_line(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say_last(format, args);
    va_end(args);
}

_Noreturn void base_fail(const char *file, int line, const char *condition, const char *format,
                         ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    base_last_line("rank %d: %s:%d: check failed: %s: %s\n", this_rank, file, line, condition,
                   text);
    abort();
}

_Noreturn void base_give_up(enum ErrorId id, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (this_rank)
        base_last_line("train: rank %d: %s [%s]\n", this_rank, text, error_name(id));
    else
        base_last_line("train: %s [%s]\n", text, error_name(id));
    _exit(2);
}

_Noreturn void base_out_of_memory(size_t bytes, const char *what) {
    char number[32] = "memory";
    if (bytes)
        snprintf(number, sizeof number, "%zu bytes", bytes);
    base_give_up(E_MEMORY_REFUSED,
                 "out of memory: the machine refuses %s for %s; end other programs, raise "
                 "`ulimit -v`, or make the run smaller (--plan shows what it takes)",
                 number, what);
}

_Noreturn void base_out_of_threads(int err, const char *what) {
    base_give_up(E_THREAD_REFUSED,
                 "no thread for %s: %s; raise `ulimit -u` or `ulimit -v`, or ask for fewer --ranks "
                 "or --threads",
                 what, strerror(err));
}

// ---- memory ----

void *base_realloc(void *mem, size_t bytes, const char *what) {
    void *p = realloc(mem, bytes ? bytes : 1);
    if (!p)
        base_out_of_memory(bytes, what);
    return p;
}

void *base_alloc(size_t bytes) {
    return base_realloc(NULL, bytes, "its bookkeeping");
}

void *base_alloc_zeroed(size_t bytes) {
    return memset(base_alloc(bytes), 0, bytes);
}

char *base_format(const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    CHECK(n >= 0, "a string of format '%s'", format);
    char *text = base_alloc((size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

double base_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int base_write(int fd, const void *bytes, size_t n, int64_t at) {
    for (const char *p = bytes; n;) {
        ssize_t put = at < 0 ? write(fd, p, n) : pwrite(fd, p, n, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -ENOSPC;
        p += put;
        n -= (size_t)put;
        at += at < 0 ? 0 : put;
    }
    return 0;
}
