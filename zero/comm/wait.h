// How long a rank has waited for others, in time in which its own process ran.
//
// A process that was suspended (Ctrl-Z, kill -STOP, a container that is paused) finds, when it goes
// on, that time has passed, and none of its threads has done anything. Whoever waits looks at the
// clock every so often; where a look comes much later than it was meant to, the wait begins anew.
// Used by thread_group.c, mpi.c, guard.c and nccl_watch.c.
#ifndef ZERO_COMM_WAIT_H
#define ZERO_COMM_WAIT_H
#include "kernels/base.h"

static const double WAIT_LOOK_S = 0.2; // between two looks, at most
static const double WAIT_LATE_S = 0.5; // a look that is so late was held up with the process

struct Wait {
    double since, looked;
};

static inline struct Wait wait_begin(void) {
    double now = base_seconds();
    return (struct Wait){now, now};
}

// At least every WAIT_LOOK_S. Returns the seconds that it has waited.
static inline double wait_check(struct Wait *w) {
    double now = base_seconds();
    if (now - w->looked > WAIT_LOOK_S + WAIT_LATE_S)
        w->since = now;
    w->looked = now;
    return now - w->since;
}

#endif
