// Waiting for other ranks, which may never come: how long it has lasted, and what is said then.
//
// A process that was suspended (Ctrl-Z, kill -STOP, a container that is paused) finds, when it goes
// on, that time has passed, and none of its threads has done anything. Whoever waits looks at the
// clock every so often; where a look comes much later than it was meant to, the wait begins anew.
//
// A GUARD is a clock for calls that wait for the job's other processes and say nothing: MPI's own
// start and end, and what processes agree upon before their ranks have a group. Such a wait may
// last: another process may be preparing data. So a guard looks whether one of this machine's
// processes of the job is stopped, and ends the job, with a line that names it, when that has
// lasted for --comm-timeout. Where none is, it ends the job after that time, and a minute at least,
// if nobody has a reason to be late, and else tells once that this process waits.
//
// Used by thread.c, mpi.c, mpi_watch.c and nccl_watch.c.
#ifndef ZERO_COMM_WAIT_H
#define ZERO_COMM_WAIT_H
#include "kernels/base.h"

#include <pthread.h>
#include <sys/types.h>

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

// A condition whose waits count time as base_seconds does; and such a wait, of so long at most.
void wait_cond_init(pthread_cond_t *c);
void wait_cond(pthread_cond_t *c, pthread_mutex_t *lock, double seconds);

// Has a process of this machine ended? Also where it stays as a zombie, because its parent has not
// taken notice yet. Where walls between containers hide it, it looks gone.
bool process_is_gone(pid_t process);

struct Guard {
    const char *call; // for the line
    int rank;
    double timeout_s;
    bool ends; // nobody has a reason to be late
    bool told;
    double next;              // look at the other processes
    struct Wait all, stopped; // since it began; since one of them is stopped
};

struct Guard guard_of(const char *call, int rank, double timeout_s, bool ends);

// While it waits, at least every WAIT_LOOK_S. It may not come back.
void guard_check(struct Guard *g);

// The same by a thread, around a call that does not come back in between.
struct GuardThread *guard_begin(const char *call, int rank, double timeout_s, bool ends);
void guard_end(struct GuardThread *t);

#endif
