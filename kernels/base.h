// The ground every file stands on: how a failure is told, and who is speaking.
//
// There are two kinds of failure, and a function's signature says which one it can have.
//  - What the user or the machine outside can cause (a flag, a file, a full disk) is RECOVERABLE:
//    the function returns a negative errno and writes one line for a person into a struct Error.
//    `./train` prints that line and exits with status 2.
//  - What only a mistake in this program can cause is FATAL: CHECK prints rank, place and values
//    and ends the process, and with it all ranks. It never returns.
#ifndef KERNELS_BASE_H
#define KERNELS_BASE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ERROR_TEXT_BYTES = 768 };

// One line for a person: what is wrong, its value, and what would be right. Empty text: no error.
struct Error {
    char text[ERROR_TEXT_BYTES];
};

// Writes the line (cut if too long) and returns `code`, so that `return error_set(e, -EINVAL, ...)`
// reads as one step. `code` is a negative errno.
int error_set(struct Error *e, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum LogLevel { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };

// How much is said: with what signals reach (zero/run/wish.c) the only mutable globals.
extern enum LogLevel log_level;

// A line on standard error, with "rank R: " in front where the calling thread is a rank other than
// 0.
void log_line(enum LogLevel level, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Names the rank that the calling thread speaks for, in log lines and failed checks. Default 0.
void base_set_rank(int rank);
int base_rank(void);

void base_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

// Fatal unless `condition`. The rest is a printf format with the values that a reader will ask for.
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            base_fail(__FILE__, __LINE__, #condition, __VA_ARGS__);                                \
    } while (0)

// malloc and calloc that end the process when memory is out. For small host-side bookkeeping; the
// buffers of the training itself come from a tier (kernels/tier.h).
void *base_alloc(size_t bytes);
void *base_alloc_zeroed(size_t bytes);
char *base_format(const char *format, ...) __attribute__((format(printf, 1, 2))); // free() it

double base_seconds(void); // monotonic clock, s

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
// NULL, an operand that is not there, is aligned.
static inline bool is_aligned(const void *p, size_t bytes) {
    return (uintptr_t)p % bytes == 0;
}

#endif
