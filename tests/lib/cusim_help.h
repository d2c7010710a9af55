// For tests of the simulator: runs that must end, silence, and all schedules.
#ifndef TESTS_LIB_CUSIM_HELP_H
#define TESTS_LIB_CUSIM_HELP_H
#include "kernels/device.h"
#include "tests/lib/child.h"
#include "tests/cusim/sim.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void call_body(const void *body) {
    (*(void (*const *)(void))body)();
}

// Runs body in a child process. It must end with the simulator's status and a line on standard
// error that holds `text`.
static inline void child_says(void (*body)(void), const char *text) {
    int status;
    char *said = child_said(call_body, &body, &status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 99 || !strstr(said, text))
        fail_msg("expected status 99 and \"%s\"; status word %x, said: %s", text, (unsigned)status,
                 said);
    free(said);
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
