// Watching collectives that run on a device by themselves: which is the oldest that has begun and
// not ended, and since when. A GPU tells nobody that it waits for another in vain.
#ifndef ZERO_COMM_NCCL_WATCH_H
#define ZERO_COMM_NCCL_WATCH_H
#include "zero/comm/comm.h"
#include "zero/comm/wait.h"

#include <pthread.h>

enum { WATCHED = 128 }; // collectives that the host may be ahead of the device

struct Watched {
    struct CommCall call;
    struct Event *begin, *end;
};

// A ring of collectives: the host adds, the watcher takes away what has ended. While there is room
// they share two counters and no lock, so that what the watcher learns of the device orders nothing
// for the host: a wait that the host has forgotten stays one that tests can find. Where the ring is
// full the host wakes the watcher, and waits until that has found an end.
struct Watch {
    struct Comm *comm;
    pthread_t watcher;
    pthread_mutex_t lock; // of the four below
    pthread_cond_t wake;  // of the watcher: full or closing has changed
    pthread_cond_t room;  // of the host: the watcher has looked
    bool full, closing;
    _Atomic uint64_t begun, ended; // so far; ring slot = count % WATCHED
    struct Watched ring[WATCHED];
    bool waits;       // the oldest was seen to have begun, which
    struct Wait wait; // is so long ago
    // Both end the job if there is reason to. look: for failures that the backend knows of, while
    // `now` is at hand. late: that collective has run for longer than comm->timeout_s.
    void (*look)(struct Comm *, const struct CommCall *now);
    void (*late)(struct Comm *, const struct CommCall *now);
};

void watch_open(struct Watch *w);
void watch_close(struct Watch *w); // the group's queue is idle

// Around what a collective queues. Waits where the ring is full.
void watch_begin(struct Watch *w, struct CommCall call);
void watch_end(struct Watch *w);

#endif
