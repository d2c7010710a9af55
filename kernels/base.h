// The ground every file stands on: how a failure is told, and who is speaking.
//
// There are two kinds of failure, and a function's signature says which one it can have.
//  - What the user or the machine outside can cause (a flag, a file, a full disk) is RECOVERABLE:
//    the function returns a negative errno and writes one line for a person into a struct Error.
//    `./train` prints that line, with the error's id behind it, and exits with status 2.
//  - What only a mistake in this program can cause is FATAL: CHECK prints rank, place and values
//    and ends the process, and with it all ranks. It never returns.
// Memory, threads and calls of CUDA that the machine refuses are the first kind, but no caller
// could mend them: base_give_up tells them in one line and ends with status 2, from wherever it is
// called.
#ifndef KERNELS_BASE_H
#define KERNELS_BASE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ERROR_TEXT_BYTES = 768 };

enum ErrorId {
    E_NONE,
#define ERROR_ID(name) E_##name,
#include "kernels/error_ids.h"
#undef ERROR_ID
};

// One line for a person: what is wrong, its value, and what would be right. Empty text: no error.
struct Error {
    char text[ERROR_TEXT_BYTES];
    enum ErrorId id; // printed behind the text, in brackets
};

// Writes the line (cut if too long) and returns `code`, so that `return error_set(e, -EINVAL, ...)`
// reads as one step. `code` is a negative errno. Who says more about an error keeps its id.
int error_set(struct Error *e, int code, enum ErrorId id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// "E_FILE_WRITE", for E_FILE_WRITE.
const char *error_name(enum ErrorId id);

enum LogLevel { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };

// How much is said. With whether readers are waited for (below) and what else signals reach
// (zero/process/request.c) the only mutable globals of the program.
extern enum LogLevel log_level;

// A line on standard error, with "rank R: " in front where the calling thread is a rank other than
// 0.
void log_line(enum LogLevel level, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Names the rank that the calling thread speaks for, in log lines and failed checks. Default 0.
void base_set_rank(int rank);
int base_rank(void);

// ---- standard output and standard error ----

// First of all: a descriptor of 0, 1 and 2 that was closed is opened on /dev/null, so that no file
// of ours comes to lie there and is read or printed into. It is opened the wrong way round, 0 for
// writing and the others for reading: whoever uses it meets an error, as before.
void base_hold_descriptors(void);

// Likewise first: whatever ends the process by exit(), its status is 0 or 2, and 2 with a line.
void base_keep_status(void);

// Whether base_hold_descriptors found it closed.
bool base_was_closed(int fd);

// Waits until the reader of stdout or stderr takes more: a terminal may be stopped (Ctrl-S), a pipe
// may be full. Once base_stop_waiting was called it waits for a second at most; a stream that is
// still blocked then goes to /dev/null. Whoever prints after the first step calls it before, for
// SIGTERM ends the run through its steps from there on.
void base_wait_for_reader(FILE *stream);

// Readers that hang hold up the run no longer. For the handler of a signal that asks it to end.
void base_stop_waiting(void);

// ---- the end ----

// The last line of the process on standard error, behind all that was printed before. Of the
// threads that have one the first alone comes back.
void base_last_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

void base_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

// The line "train: ..." and exit status 2: for what the machine refuses where no caller can mend
// it. Other processes of the job see that this one is gone.
void base_give_up(enum ErrorId id, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

// base_give_up for memory: `bytes` that were refused (0: not known), and for what ("a list").
void base_out_of_memory(size_t bytes, const char *what) __attribute__((noreturn));
// And for a thread: `err` is what pthread_create returned.
void base_out_of_threads(int err, const char *what) __attribute__((noreturn));

// Fatal unless `condition`. The rest is a printf format with the values that a reader will ask for.
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            base_fail(__FILE__, __LINE__, #condition, __VA_ARGS__);                                \
    } while (0)

// malloc, calloc and realloc that end the process when memory is out. For small host-side
// bookkeeping; the buffers of the training itself come from a tier (kernels/tier.h).
void *base_alloc(size_t bytes);
void *base_alloc_zeroed(size_t bytes);
void *base_realloc(void *mem, size_t bytes, const char *what);
char *base_format(const char *format, ...) __attribute__((format(printf, 1, 2))); // free() it

// The array of `count` elements, of so many bytes each, with room for one more. *room: of how many.
void *base_grow(void *array, size_t count, size_t *room, size_t bytes, const char *what);

// Adds to a text of base_format's.
void base_append(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));

double base_seconds(void); // monotonic clock, s

// Writes all bytes to a file, however many calls it takes: from byte `at` on, or with -1 from where
// the file stands. Returns 0 or -errno; -ENOSPC where nothing was taken and no reason told.
int base_write(int fd, const void *bytes, size_t n, int64_t at);

#ifdef __cplusplus
}
#endif

static inline size_t size_min(size_t a, size_t b) {
    return a < b ? a : b;
}
static inline size_t size_max(size_t a, size_t b) {
    return a > b ? a : b;
}
static inline size_t ceil_div(size_t a, size_t b) {
    return (a + b - 1) / b;
}
static inline size_t round_up(size_t a, size_t multiple) {
    return ceil_div(a, multiple) * multiple;
}
// The greatest number that divides both.
static inline size_t size_gcd(size_t a, size_t b) {
    while (b) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
// NULL, an operand that is not there, is aligned.
static inline bool is_aligned(const void *p, size_t bytes) {
    return (uintptr_t)p % bytes == 0;
}

#endif
