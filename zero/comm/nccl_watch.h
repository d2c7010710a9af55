// Watches collectives that run on a device by themselves: finds the oldest that has begun and not
// ended, and since when. A GPU does not report that it waits for another in vain.
#ifndef ZERO_COMM_NCCL_WATCH_H
#define ZERO_COMM_NCCL_WATCH_H
#include "zero/comm/comm.h"
#include "zero/comm/wait.h"

#include <pthread.h>

enum { WATCHED = 128 }; // how many collectives the host may be ahead of the device

struct Watched {
    struct CommCall call;
    struct Event *begin, *end;
};

// A ring of collectives: the host adds them, the watcher removes those that have ended. While there
// are free slots they share two counters and no lock, so that what the watcher learns of the device
// orders nothing for the host: a wait that the host lacks can still be found by tests. If the ring
// is full the host wakes the watcher, and waits until it has removed one.
struct Watch {
    struct Comm *comm;
    pthread_t watcher;
    pthread_mutex_t lock; // of the four fields below
    pthread_cond_t wake;  // for the watcher: full or closing has changed
    pthread_cond_t freed; // for the host: the watcher has checked
    bool full, closing;
    _Atomic uint64_t begun, ended; // so far; ring slot = count % WATCHED
    struct Watched ring[WATCHED];
    bool oldest_runs;        // the oldest was seen to have begun,
    struct Wait oldest_wait; // and for how long
    // Both end the job if there is a reason. check: looks for failures that the backend knows of;
    // `now` is the current collective. report_late: it has run for longer than comm->timeout_s.
    void (*check)(struct Comm *, const struct CommCall *now);
    void (*report_late)(struct Comm *, const struct CommCall *now);
};

void watch_open(struct Watch *w);
void watch_close(struct Watch *w); // the group's queue must be idle

// Called around what a collective queues. Waits if the ring is full.
void watch_begin(struct Watch *w, struct CommCall call);
void watch_end(struct Watch *w);

#endif
