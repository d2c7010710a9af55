// Collectives between ranks that are threads of one process.
//
// Ranks see each other's memory, so no buffer is needed between them. Each collective is a MEETING
// in every rank's comm queue, where each learns where the others' buffers lie; then a kernel that
// reads them; then a second meeting, after which the buffers may change again:
//
//   reduce_scatter   meet; sum my shard over all ranks' wholes, in rank order; meet
//   all_gather       meet; copy the other shards; meet
//   all_reduce       meet; sum my shard in place; meet; copy the other shards; meet
//
// In the middle of all_reduce a rank writes its own shard while the others read theirs, so nobody
// reads what changes. A pointer is published again, unchanged, at every meeting of a collective: a
// rank that is slow to leave one still finds it.
//
// Ranks that share one GPU use the same code, but CUDA calls functions of the host for all streams
// on one thread: there a meeting in one queue would wait for another that it holds up itself. So
// where a device's calls may not wait, the HOSTS meet, when the collective is queued. Each records
// an event in its queue, and lets the queue wait for the events of all others: the same order, kept
// by the device. Two events by turns are enough, since nobody records one for the next meeting but
// one before all have come to the next, and so have queued their waits for this one.
#include "zero/comm.h"

#include "kernels/kernels.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct Visit {
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
    uint64_t meetings;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct Visit *visit;   // (size)
    struct CommCall *call; // (size): for check_calls
    struct Turns *turns;   // (size)
};

struct ThreadComm {
    struct Comm comm;
    struct ThreadGroup *group;
    void **peer; // (size): the buffers of the meeting just held
};

// ---- meetings ----

struct Meeting {
    struct ThreadComm *comm;
    void *mem;
    struct CommCall call;
};

static void check_calls(struct ThreadComm *c) {
    struct ThreadGroup *g = c->group;
    char text[512];
    for (int r = 0; r < g->size; r++)
        g->call[r] = g->visit[r].call;
    if (!comm_calls_agree(g->call, g->size, text, sizeof text))
        comm_fail(&c->comm, "%s", text);
}

// Who is missing, after the time-out.
static _Noreturn void give_up(struct ThreadComm *c, const struct Meeting *m) {
    char missing[256] = "";
    int length = 0;
    for (int r = 0; r < c->group->size && length < 200; r++)
        if (!c->group->visit[r].here)
            length += snprintf(missing + length, sizeof missing - (size_t)length, " %d", r);
    comm_fail(&c->comm, "collective %llu, %s of %llu bytes: no sign of rank%s for %g s",
              (unsigned long long)m->call.sequence, collective_name(m->call.collective),
              (unsigned long long)m->call.bytes, missing, c->comm.timeout_s);
}

static void leave(struct ThreadGroup *g) {
    for (int r = 0; r < g->size; r++)
        g->visit[r].here = false;
    g->arrived = 0;
    g->meetings++;
    pthread_cond_broadcast(&g->changed);
}

static struct timespec after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double whole = (double)t.tv_sec + seconds + 1e-9 * (double)t.tv_nsec;
    t.tv_sec = (time_t)whole;
    t.tv_nsec = (long)((whole - (double)t.tv_sec) * 1e9);
    return t;
}

// Runs in the comm queue, or where hosts meet.
static void meet(const void *args) {
    const struct Meeting *m = args;
    struct ThreadComm *c = m->comm;
    struct ThreadGroup *g = c->group;
    struct timespec deadline = after(c->comm.timeout_s);
    pthread_mutex_lock(&g->lock);
    g->visit[c->comm.rank] = (struct Visit){m->mem, m->call, true};
    uint64_t this_one = g->meetings;
    if (++g->arrived == g->size) {
        check_calls(c);
        leave(g);
    }
    while (g->meetings == this_one)
        if (pthread_cond_timedwait(&g->changed, &g->lock, &deadline) == ETIMEDOUT &&
            g->meetings == this_one)
            give_up(c, m); // with the lock held: the others stay silent
    for (int r = 0; r < g->size; r++)
        c->peer[r] = g->visit[r].mem;
    pthread_mutex_unlock(&g->lock);
}

static void meet_on_hosts(const struct Meeting *m) {
    struct ThreadComm *c = m->comm;
    struct Turns *turns = c->group->turns;
    int rank = c->comm.rank, turn = (int)(turns[rank].meetings++ % 2);
    device_record(c->comm.device, QUEUE_COMM, turns[rank].event[turn]);
    meet(m);
    for (int r = 0; r < c->comm.size; r++)
        if (r != rank)
            device_wait(c->comm.device, QUEUE_COMM, turns[r].event[turn]);
}

static void queue_meeting(struct Comm *c, const void *mem, struct CommCall call) {
    struct Meeting m = {(struct ThreadComm *)c, (void *)mem, call};
    if (c->device->calls_may_wait)
        device_call(c->device, QUEUE_COMM, meet, &m, sizeof m);
    else
        meet_on_hosts(&m);
}

// ---- collectives ----

static void queue_sum(struct Comm *c, void *shard, size_t n, enum Dtype dtype, bool accumulate) {
    c->device->kernels->rank_sum(c->device->queue[QUEUE_COMM],
                                 &(struct RankSum){
                                     .n = n,
                                     .begin = n * (size_t)c->rank,
                                     .ranks = (size_t)c->size,
                                     .dtype = dtype,
                                     .src = ((struct ThreadComm *)c)->peer,
                                     .dst = shard,
                                     .accumulate = accumulate,
                                 });
}

// Copies the others' shards, which lie at peer[r] + r * step, into `whole`.
static void queue_gather(struct Comm *c, void *whole, size_t bytes, size_t step) {
    c->device->kernels->rank_gather(c->device->queue[QUEUE_COMM],
                                    &(struct RankGather){
                                        .bytes = bytes,
                                        .ranks = (size_t)c->size,
                                        .skip = (size_t)c->rank,
                                        .step = step,
                                        .src = ((struct ThreadComm *)c)->peer,
                                        .dst = whole,
                                    });
}

static void thread_all_gather(struct Comm *c, void *whole, const void *shard, size_t bytes) {
    struct CommCall call = comm_call(c, COMM_ALL_GATHER, F32, bytes);
    char *place = (char *)whole + (size_t)c->rank * bytes;
    queue_meeting(c, shard, call);
    if (place != shard)
        device_copy(c->device, QUEUE_COMM, place, shard, bytes);
    queue_gather(c, whole, bytes, 0);
    queue_meeting(c, shard, call);
    comm_queued(c);
}

static void thread_reduce_scatter(struct Comm *c, void *shard, const void *whole, size_t n,
                                  enum Dtype dtype, bool accumulate) {
    struct CommCall call = comm_call(c, COMM_REDUCE_SCATTER, dtype, n * dtype_size(dtype));
    queue_meeting(c, whole, call);
    queue_sum(c, shard, n, dtype, accumulate);
    queue_meeting(c, whole, call);
    comm_queued(c);
}

static void thread_all_reduce(struct Comm *c, void *whole, size_t n, enum Dtype dtype) {
    size_t bytes = n * dtype_size(dtype);
    struct CommCall call = comm_call(c, COMM_ALL_REDUCE, dtype, bytes);
    queue_meeting(c, whole, call);
    queue_sum(c, (char *)whole + (size_t)c->rank * bytes, n, dtype, false);
    queue_meeting(c, whole, call);
    queue_gather(c, whole, bytes, bytes);
    queue_meeting(c, whole, call);
    comm_queued(c);
}

static void thread_broadcast(struct Comm *c, void *mem, size_t bytes, int root) {
    struct CommCall call = comm_call(c, COMM_BROADCAST, F32, bytes);
    if (c->rank != root)
        c->bytes[COMM_BROADCAST] -= (uint64_t)(c->size - 1) * bytes;
    queue_meeting(c, mem, call);
    if (c->rank != root)
        c->device->kernels->rank_gather(c->device->queue[QUEUE_COMM],
                                        &(struct RankGather){
                                            .bytes = bytes,
                                            .ranks = 1,
                                            .skip = SIZE_MAX,
                                            .src = ((struct ThreadComm *)c)->peer + root,
                                            .dst = mem,
                                        });
    queue_meeting(c, mem, call);
    comm_queued(c);
}

static void thread_barrier(struct Comm *c) {
    queue_meeting(c, NULL, comm_call(c, COMM_BARRIER, F32, 0));
    comm_queued(c);
}

static void thread_abort(struct Comm *c) {
    (void)c;
    _exit(2);
}

static void thread_close(struct Comm *c) {
    free(((struct ThreadComm *)c)->peer);
    free(c);
}

static const struct CommOps thread_ops = {
    .all_gather = thread_all_gather,
    .reduce_scatter = thread_reduce_scatter,
    .all_reduce = thread_all_reduce,
    .broadcast = thread_broadcast,
    .barrier = thread_barrier,
    .abort = thread_abort,
    .close = thread_close,
};

// ---- opening ----

struct ThreadGroup *thread_group_open(int size) {
    struct ThreadGroup *g = base_alloc_zeroed(sizeof *g);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    g->size = size;
    g->visit = base_alloc_zeroed((size_t)size * sizeof *g->visit);
    g->call = base_alloc_zeroed((size_t)size * sizeof *g->call);
    g->turns = base_alloc_zeroed((size_t)size * sizeof *g->turns);
    return g;
}

void thread_group_close(struct ThreadGroup *g) {
    for (int i = 0; i < 2 * g->size; i++) {
        const struct Turns *t = &g->turns[i / 2];
        if (t->ops)
            t->ops->event_close(t->event[i % 2]);
    }
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    free(g->visit);
    free(g->call);
    free(g->turns);
    free(g);
}

struct Comm *comm_open_thread(struct ThreadGroup *g, int rank, struct Device *device,
                              double timeout_s) {
    struct ThreadComm *c = base_alloc_zeroed(sizeof *c);
    c->comm = (struct Comm){&thread_ops, device, rank, g->size, timeout_s, 0, {0}};
    c->group = g;
    c->peer = base_alloc_zeroed((size_t)g->size * sizeof *c->peer);
    struct Turns *turns = &g->turns[rank]; // the others look at it after the first meeting
    if (!device->calls_may_wait && !turns->ops) {
        turns->ops = device->ops;
        for (int i = 0; i < 2; i++)
            turns->event[i] = device->ops->event_open(device);
    }
    return &c->comm;
}
