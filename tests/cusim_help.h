// For tests of the simulator: runs that must end, silence, and all schedules.
#ifndef TESTS_CUSIM_HELP_H
#define TESTS_CUSIM_HELP_H
#include "kernels/device.h"
#include "tests/cusim/sim.h"

#include <fcntl.h>
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

// Runs body in a child process. It must end with the simulator's status and a line on standard
// error that holds `text`.
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

// Many races are made here on purpose; their lines are not shown.
static inline void be_silent(bool silent) {
    static int standard_error = -1;
    if (standard_error < 0)
        standard_error = dup(STDERR_FILENO);
    int nothing = open("/dev/null", O_WRONLY);
    dup2(silent ? nothing : standard_error, STDERR_FILENO);
    close(nothing);
}

static const struct {
    enum SimSchedule schedule;
    uint64_t seed;
} schedules[] = {
    {SIM_EAGER, 0},           {SIM_LAZY, 0},          {SIM_STARVE, QUEUE_COMPUTE},
    {SIM_STARVE, QUEUE_COMM}, {SIM_STARVE, QUEUE_IN}, {SIM_RANDOM, 1},
    {SIM_RANDOM, 2},          {SIM_RANDOM, 3},        {SIM_RANDOM, 4},
};
enum { NSCHEDULES = sizeof schedules / sizeof schedules[0] };

static inline void use_schedule(int i) {
    sim_set_schedule(schedules[i].schedule, schedules[i].seed);
}

#endif
