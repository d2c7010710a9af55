// A clock for calls that wait for the job's other processes and say nothing: MPI's own start and
// end, and what processes agree upon before their ranks have a group.
//
// Such a wait may last: another process may be preparing data. So a guard looks whether one of this
// machine's processes of the job is stopped, and ends the job, with a line that names it, when that
// has lasted for --comm-timeout. Where none is, it ends the job after that time, and a minute at
// least, if nobody has a reason to be late, and else tells once that this process waits. Called by
// mpi.c.
#ifndef ZERO_COMM_GUARD_H
#define ZERO_COMM_GUARD_H
#include "zero/comm/wait.h"

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
