// Waits for other ranks, which may never come: measures how long, and reports that.
//
// A process that was suspended (Ctrl-Z, kill -STOP, a paused container) finds, when it goes on,
// that time has passed, and none of its threads has done anything. So a wait checks the clock every
// so often; if a check comes much later than it was meant to, the wait begins anew.
//
// A GUARD times calls that wait for the job's other processes without reporting it: MPI's own start
// and end, and what processes agree on before their ranks have a group. Such a wait may last:
// another process may be preparing data. So a guard checks whether one of this machine's processes
// of the job is stopped, and ends the job, with a line that names it, when that has lasted for
// --comm-timeout. If none is, it ends the job after that time, and a minute at least, if no process
// has a reason to be late; else it logs once that this process waits.
//
// Used by thread.c, mpi.c, mpi_watch.c and nccl_watch.c.
#ifndef ZERO_COMM_WAIT_H
#define ZERO_COMM_WAIT_H
#include "kernels/base.h"

#include <pthread.h>
#include <sys/types.h>

static const double WAIT_LOOK_S = 0.2; // between two checks, at most
static const double WAIT_LATE_S = 0.5; // a check that is so late was held up with the process

struct Wait {
    double since, last_check;
};

static inline struct Wait wait_begin(void) {
    double now = base_seconds();
    return (struct Wait){now, now};
}

// Must be called at least every WAIT_LOOK_S. Returns the seconds that it has waited.
static inline double wait_check(struct Wait *w) {
    double now = base_seconds();
    if (now - w->last_check > WAIT_LOOK_S + WAIT_LATE_S)
        w->since = now;
    w->last_check = now;
    return now - w->since;
}

// A condition whose waits count time as base_seconds does; and such a wait, with a time-out.
void wait_cond_init(pthread_cond_t *c);
void wait_cond(pthread_cond_t *c, pthread_mutex_t *lock, double seconds);

// True if a process of this machine has ended, even if it stays as a zombie because its parent has
// not waited for it. A process that is hidden in another container looks gone.
bool process_is_gone(pid_t process);

struct Guard {
    const char *call; // for the error line
    int rank;
    double timeout_s;
    bool ends_job; // at the time-out: no process has a reason to be late
    bool logged;
    double next;              // when to check the other processes
    struct Wait all, stopped; // since it began; since one of them is stopped
};

struct Guard guard_make(const char *call, int rank, double timeout_s, bool ends_job);

// Call it while waiting, at least every WAIT_LOOK_S. It may not return.
void guard_check(struct Guard *g);

// Does the same in a thread, around a call that does not return in between.
struct GuardThread *guard_begin(const char *call, int rank, double timeout_s, bool ends_job);
void guard_end(struct GuardThread *t);

#endif
