// Included by every file: how failures are reported, and which rank a thread belongs to.
//
// There are two kinds of failure, and a function's signature shows which one it can have.
//  - RECOVERABLE: the user or the machine can cause it (a flag, a file, a full disk). The function
//    returns a negative errno and writes one line for a person into a struct Error. `./train`
//    prints that line, with the error's id after it, and exits with status 2.
//  - FATAL: only a mistake in this program can cause it. CHECK prints rank, file, line and values
//    and ends the process, and with it all ranks. It never returns.
// Memory, threads and CUDA calls that fail are of the first kind, but no caller could recover:
// base_give_up reports them in one line and ends with status 2, wherever it is called.
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

// One line for a person: what is wrong, its value, and valid values. Empty text: no error.
struct Error {
    char text[ERROR_TEXT_BYTES];
    enum ErrorId id; // printed after the text, in brackets
};

// Writes the line (cut if too long) and returns `code`, so that `return error_set(e, -EINVAL, ...)`
// is one step. `code` is a negative errno. A caller that adds to an error's text keeps its id.
int error_set(struct Error *e, int code, enum ErrorId id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// error_set for a file or folder that the system refuses: adds what `code` means and what to do.
int error_io(struct Error *e, int code, enum ErrorId id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// Returns "E_FILE_WRITE" for E_FILE_WRITE.
const char *error_name(enum ErrorId id);

enum LogLevel { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };

// The level of log lines. The other mutable globals are those of base.c, the state that signals
// change (zero/process/request.c), cards_folder, and what is found or logged once for all.
extern enum LogLevel log_level;

// Prints a line on standard error, with "rank R: " in front unless the calling thread is rank 0.
void log_line(enum LogLevel level, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Sets the rank of the calling thread, for log lines and failed checks. Default 0.
void base_set_rank(int rank);
int base_rank(void);

// ---- standard output and standard error ----

// Call it first: opens those of descriptors 0, 1 and 2 that were closed on /dev/null, so that none
// of our files gets such a number and is read or printed into. They are opened the wrong way round,
// 0 for writing and the others for reading: using them is an error, as before.
void base_hold_descriptors(void);

// Call it first, too: if a library calls exit() with another status than 0 and 2, the process ends
// with 2 instead, and a message.
void base_keep_status(void);

// True if base_hold_descriptors found this descriptor closed.
bool base_was_closed(int fd);

// Waits until stdout or stderr accepts more output: a terminal may be stopped (Ctrl-S), a pipe may
// be full. After base_stop_waiting it waits for at most a second; a stream that is still blocked
// then goes to /dev/null. Call it before printing after the first step, because from then on
// SIGTERM ends the run through its steps.
void base_wait_for_reader(FILE *stream);

// Makes the run stop waiting for blocked readers. For the handler of a signal that ends the run.
void base_stop_waiting(void);

// ---- the end ----

// Prints the last line of the process on standard error, after all earlier output. If several
// threads call it, only the first returns.
void base_last_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

void base_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

// Prints the line "train: ..." and exits with status 2, when the machine refuses something and no
// caller can recover. Other processes of the job notice the end of this one.
void base_give_up(enum ErrorId id, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

// base_give_up for memory: `bytes` that were refused (0: unknown), and their use ("a list").
void base_out_of_memory(size_t bytes, const char *what) __attribute__((noreturn));
// The same for a thread: `err` is the result of pthread_create.
void base_out_of_threads(int err, const char *what) __attribute__((noreturn));

// Fatal unless `condition` holds. The other arguments are a printf format and helpful values.
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            base_fail(__FILE__, __LINE__, #condition, __VA_ARGS__);                                \
    } while (0)

// The place in the source where this stands, such as "zero/grad.c:109".
#define HERE __FILE__ ":" HERE_LINE(__LINE__)
#define HERE_LINE(line) HERE_TEXT(line)
#define HERE_TEXT(line) #line

// malloc, calloc and realloc that end the process when memory is out. For small host-side
// bookkeeping; the buffers of the training itself come from a tier (kernels/tier.h).
void *base_alloc(size_t bytes);
void *base_alloc_zeroed(size_t bytes);
void *base_realloc(void *mem, size_t bytes, const char *what);
char *base_format(const char *format, ...) __attribute__((format(printf, 1, 2))); // free() it

// Returns the array, grown if needed to hold one more than `count` elements of `bytes` bytes each.
// *capacity: how many it holds.
void *base_grow(void *array, size_t count, size_t *capacity, size_t bytes, const char *what);

// Appends to a text that base_format made.
void base_append(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));

double base_seconds(void); // monotonic clock, s

// Writes all bytes to a file, in as many calls as it takes: from byte `at` on, or with -1 at the
// file's offset. Returns 0 or -errno; -ENOSPC if nothing was written and no reason given.
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
// Returns the greatest common divisor.
static inline size_t size_gcd(size_t a, size_t b) {
    while (b) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
// NULL, a missing operand, is aligned.
static inline bool is_aligned(const void *p, size_t bytes) {
    return (uintptr_t)p % bytes == 0;
}

#endif
