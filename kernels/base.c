// Failure and log lines: see base.h for which kind of failure is which.
#include "kernels/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum LogLevel log_level = LOG_NORMAL;

static _Thread_local int this_rank;

void base_set_rank(int rank) {
    this_rank = rank;
}

int base_rank(void) {
    return this_rank;
}

int error_set(struct Error *e, int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    for (char *p = e->text; *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' '; // one line, whatever a file name or a library put into it
    return code;
}

void log_line(enum LogLevel level, const char *format, ...) {
    if (level > log_level)
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (this_rank)
        fprintf(stderr, "rank %d: %s\n", this_rank, text);
    else
        fprintf(stderr, "%s\n", text);
}

_Noreturn void base_fail(const char *file, int line, const char *condition, const char *format,
                         ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "rank %d: %s:%d: check failed: %s: %s\n", this_rank, file, line, condition,
            text);
    abort();
}

void *base_alloc(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    CHECK(p, "out of memory: %zu bytes", bytes);
    return p;
}

void *base_alloc_zeroed(size_t bytes) {
    return memset(base_alloc(bytes), 0, bytes);
}

char *base_format(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = NULL;
    int n = vasprintf(&text, format, args);
    va_end(args);
    CHECK(n >= 0, "out of memory for a string");
    return text;
}

double base_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
