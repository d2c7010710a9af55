// Runs something that may end the process, in a child, and hears what it says.
#ifndef TESTS_LIB_CHILD_H
#define TESTS_LIB_CHILD_H
#include "tests/lib/refused.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_SAYS_BYTES = 4096 };

// The child's standard error, as far as it fits; free() it. *status: waitpid's; exit status 0 where
// body returns.
static inline char *child_said(void (*body)(const void *context), const void *context,
                               int *status) {
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        body(context);
        _exit(0);
    }
    close(pipes[1]);
    char *text = base_alloc_zeroed(CHILD_SAYS_BYTES);
    size_t at = 0;
    for (ssize_t got; (got = read(pipes[0], text + at, CHILD_SAYS_BYTES - 1 - at)) > 0;)
        at += (size_t)got;
    close(pipes[0]);
    assert_int_equal(waitpid(child, status, 0), child);
    return text;
}

// What the child said has a line that ends in this id, in brackets, and this value, if any:
// "E_NCCL", or "E_NCCL rank 1".
static inline bool line_is(const char *printed, const char *said) {
    char end[64];
    const char *value = strchr(said, ' ');
    size_t n = value ? (size_t)(value - said) : strlen(said);
    snprintf(end, sizeof end, " [%.*s]\n", (int)n, said);
    return strstr(printed, end) && (!value || strstr(printed, value + 1));
}

#endif
