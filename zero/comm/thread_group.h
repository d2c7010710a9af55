// Where ranks that are threads of one process meet: the group behind comm/thread.c.
//
// At a MEETING every rank publishes where its buffer lies and which collective it is in; when all
// have come, their calls are compared, and each goes on with everybody's pointers.
#ifndef ZERO_COMM_THREAD_GROUP_H
#define ZERO_COMM_THREAD_GROUP_H
#include "zero/comm/comm.h"

#include <pthread.h>

struct Participant {
    void *mem;
    struct CommCall call;
    bool here; // at the meeting that goes on
};

// What a rank records before the meetings of hosts, by turns. The group's: others may still be
// queueing their waits when the rank has closed its end.
struct Turns {
    const struct DeviceOps *ops;
    struct Event *event[2];
    uint64_t meetings; // of hosts, so far
};

struct ThreadGroup {
    int size, arrived;
    _Atomic int ends;   // of a group that was split off: that are closed; the last closes the group
    _Atomic int *waits; // (ranks of the job), in all its groups: meetings that each waits in
    bool split_off;     // `waits` is another group's
    uint64_t meetings;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct Participant *participant; // (size)
    struct CommCall *call;           // (size): for check_calls
    struct Turns *turns;             // (size): of meetings on hosts (comm/thread.c)
    _Atomic uint64_t *begun; // (size): collectives that each says it has begun (thread_heartbeat)
};

struct Rendezvous {
    struct Comm *comm;
    struct ThreadGroup *group;
    void **peer; // (size): becomes everybody's mem
    void *mem;
    struct CommCall call;
};

// A group of some of the ranks of `g`, which must outlive it.
struct ThreadGroup *thread_group_split(struct ThreadGroup *g, int size);

// Waits for all ranks of the group. meeting: a struct Rendezvous. Who waits longer than
// comm->timeout_s ends the process, with a line that names the missing; but not those who wait in
// another group themselves, for a rank that somebody else will name.
DeviceCall group_meet;

#endif
