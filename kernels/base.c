// Failures and log lines: base.h says which kind of failure is which.
#include "kernels/base.h"

#include "kernels/show.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum LogLevel log_level = LOG_NORMAL;

static _Thread_local int this_rank;

static atomic_bool stops_waiting;                // a signal asked the run to end
static atomic_flag is_ending = ATOMIC_FLAG_INIT; // some thread is writing the last line

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

// Returns what a person can do if the system refuses a file or folder with this errno (positive).
static const char *remedy(int err) {
    switch (err) {
    case ENOSPC:
    case EDQUOT:
        return "free some space there, or choose another disk";
    case EACCES:
    case EPERM:
    case EROFS:
        return "check the permissions there, or choose another path";
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
        return "check the path";
    case EMFILE:
    case ENFILE:
        return "raise `ulimit -n`";
    case EFBIG:
        return "raise `ulimit -f`, or choose another disk";
    case ENOMEM:
        return "end other programs, or raise `ulimit -v`";
    default: // EIO, ESTALE
        return "check the path and its disk";
    }
}

int error_io(struct Error *e, int code, enum ErrorId id, const char *format, ...) {
    char text[2 * ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(e, code, id, "%s: %s; %s", text, strerror(-code), remedy(-code));
}

void log_line(enum LogLevel level, const char *format, ...) {
    if (level > log_level)
        return;
    char raw[1024], text[sizeof raw];
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    show_line(text, sizeof text, raw);
    base_wait_for_reader(stderr);
    if (this_rank)
        fprintf(stderr, "rank %d: %s\n", this_rank, text);
    else
        fprintf(stderr, "%s\n", text);
}

// ---- standard output and standard error ----

void base_hold_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++) // in this order: open returns the lowest free number
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

// For on_exit: OpenMP's library and others end the process themselves when memory or threads run
// out. Our own statuses are 0 and 2.
static void end_of_a_library(int status, void *unused) {
    (void)unused;
    if (status != 0 && status != 2)
        base_give_up(E_LIBRARY_ENDED,
                     "a library ended the process; its message above says why; if memory or "
                     "threads ran out, end other programs, or lower --batch or --threads");
}

void base_keep_status(void) {
    on_exit(end_of_a_library, NULL);
}

bool base_was_closed(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) == (fd == 0 ? O_WRONLY : O_RDONLY);
}

void base_stop_waiting(void) {
    atomic_store(&stops_waiting, true);
}

// True if the descriptor took no output for LOOK_MS, or a signal came meanwhile.
static bool is_blocked(int fd) {
    enum { LOOK_MS = 100 }; // then stops_waiting is read: another thread may get the signal
    int ready = poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, LOOK_MS);
    return ready == 0 || (ready < 0 && errno == EINTR);
}

void base_wait_for_reader(FILE *stream) {
    double stopped = 0;      // when stops_waiting was first seen
    int fd = fileno(stream); // -1: a stream in memory
    while (fd >= 0 && is_blocked(fd)) {
        double now = base_seconds();
        if (!stopped && atomic_load(&stops_waiting))
            stopped = now;
        if (!stopped || now - stopped < 1)
            continue;
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(nowhere, fd);
        close(nowhere);
        return;
    }
}

// ---- the end ----

static void write_last(const char *format, va_list args) {
    char raw[1280], text[sizeof raw];
    while (atomic_flag_test_and_set(&is_ending))
        pause(); // until the process ends
    base_wait_for_reader(stdout);
    fflush(stdout);
    vsnprintf(raw, sizeof raw, format, args);
    show_text(text, sizeof text, raw);
    base_wait_for_reader(stderr);
    fputs(text, stderr);
}

void base_last_line(const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_last(format, args);
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
    base_give_up(
        E_MEMORY_REFUSED,
        "out of memory: cannot allocate %s for %s; end other programs, or raise `ulimit -v`",
        number, what);
}

_Noreturn void base_out_of_threads(int err, const char *what) {
    base_give_up(E_THREAD_REFUSED,
                 "cannot start a thread for %s: %s; raise `ulimit -u` or `ulimit -v`, or use fewer "
                 "--ranks or --threads",
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

void *base_grow(void *array, size_t count, size_t *capacity, size_t bytes, const char *what) {
    if (count < *capacity)
        return array;
    *capacity = size_max(2 * *capacity, 64);
    return base_realloc(array, *capacity * bytes, what);
}

// vasprintf that ends the process when memory is out. free() the result.
static char *format_args(const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    CHECK(n >= 0, "a string of format '%s'", format);
    char *text = base_alloc((size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

char *base_format(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = format_args(format, args);
    va_end(args);
    return text;
}

void base_append(char **text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *more = format_args(format, args), *all = base_format("%s%s", *text, more);
    va_end(args);
    free(more);
    free(*text);
    *text = all;
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
