// A run that must end: for tests of the simulator.
#ifndef TESTS_CUSIM_CHILD_H
#define TESTS_CUSIM_CHILD_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka.h wants the headers above it.
#include <cmocka.h>

// Runs body in a child process. It must end with the simulator's status and a line on standard error
// that holds `text`.
static inline void child_says(void (*body)(void), const char *text) {
    char said[4096];
    int ends[2], status;
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        body();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], said + n, sizeof said - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = 0;
    close(ends[0]);
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 99 || !strstr(said, text))
        fail_msg("expected status 99 and \"%s\"; status word %x, said: %s", text, (unsigned)status,
                 said);
}
#endif
