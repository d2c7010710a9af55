// Collectives between ranks that are threads of one process.
//
// Ranks see each other's memory, so no buffer is needed between them. Each collective is a MEETING
// in every rank's queue, where each publishes the address of its buffer and which collective it is
// in; when all have come, their calls are compared. Then a kernel reads the others' buffers, and
// after a second meeting they may change again:
//
//   reduce_scatter   meet; sum my shard over all ranks' wholes, in rank order; meet
//   all_gather       meet; copy the other shards; meet
//   all_reduce       meet; sum my shard in place; meet; copy the other shards; meet
//   all_to_all       meet; copy what each rank has for me; meet
//   sendrecv         meet; copy what the other has for me; meet
//
// In the middle of all_reduce a rank writes its own shard while the others read theirs, so nobody
// reads what changes. A pointer is published again, unchanged, at every meeting of a collective: a
// rank that is slow to leave one still finds it.
//
// Ranks that share one GPU use the same code, but CUDA runs functions of the host for all streams
// on one thread: there a meeting in one queue would wait for another that it holds up itself. So if
// a device's calls may not wait, the HOSTS meet, when the collective is queued. Each records an
// event in its queue, and makes the queue wait for the events of all others: the same order, kept
// by the device. Two events in turn are enough, since nobody records one again before all have come
// to the next meeting, and so have queued their waits for this one.
#include "kernels/kernels.h"
#include "zero/comm/comm.h"
#include "zero/comm/wait.h"

#include <stdio.h>
#include <stdlib.h>

static const double EXCUSED_S = 2; // for ranks that wait in another group, until its time-out

struct Participant {
    void *mem;
    struct CommCall call;
    bool here; // at the current meeting
};

// The events that a rank records before meetings of hosts, in turn. They belong to the group:
// others may still be queueing their waits when the rank has closed its end.
struct Turns {
    const struct DeviceOps *ops;
    struct Event *event[2];
    uint64_t meetings; // of hosts, so far
};

struct ThreadGroup {
    int size, arrived;
    _Atomic int closed_ends; // of a group that was split off; the last one closes it
    _Atomic int *waits;      // (ranks of the job): in how many meetings, of all groups, each waits
    bool split_off;          // `waits` is another group's
    uint64_t meetings;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct Participant *participant; // (size)
    struct CommCall *call;           // (size): for check_calls
    struct Turns *turns;             // (size): of meetings on hosts
    _Atomic uint64_t *begun;         // (size): collectives that each has begun (thread_heartbeat)
};

struct Rendezvous {
    struct Comm *comm;
    struct ThreadGroup *group;
    void **peer; // (size): becomes every rank's mem
    void *mem;
    struct CommCall call;
};

struct ThreadComm {
    struct Comm comm;
    struct ThreadGroup *group;
    void **peer; // (size): the buffers published at the last meeting
};

// ---- meetings ----

static void check_calls(struct Comm *c, struct ThreadGroup *g) {
    char text[512];
    for (int r = 0; r < g->size; r++)
        g->call[r] = g->participant[r].call;
    if (!comm_calls_agree(c, g->call, text, sizeof text))
        comm_fail(c, E_COLLECTIVES_DIFFER, "%s", text);
}

// Ends the process with a line that names the missing ranks, after the time-out. If all of them
// wait themselves, in other groups, it returns unless this is `last`.
static void fail_if_missing(const struct Rendezvous *m, bool last) {
    char missing[256] = "";
    int length = 0;
    for (int r = 0; r < m->group->size && length < 200; r++) {
        int rank = comm_job_rank(m->comm, r);
        if (!m->group->participant[r].here && (last || !m->group->waits[rank]))
            length += snprintf(missing + length, sizeof missing - (size_t)length, " %d", rank);
    }
    if (!length)
        return;
    comm_fail(m->comm, E_RANK_SILENT,
              "collective %llu, %s of %llu bytes: no sign of rank%s for %g s; if it is only slow, "
              "raise --comm-timeout",
              (unsigned long long)m->call.sequence, collective_name(m->call.collective),
              (unsigned long long)m->call.bytes, missing, m->comm->timeout_s);
}

// Lets all ranks go on from the current meeting. The caller has the lock.
static void end_meeting(struct ThreadGroup *g) {
    for (int r = 0; r < g->size; r++)
        g->participant[r].here = false;
    g->arrived = 0;
    g->meetings++;
    pthread_cond_broadcast(&g->changed);
}

// Waits for all ranks of the group. meeting: a struct Rendezvous. A rank that waits longer than
// comm->timeout_s ends the process, with a line that names the missing ones; but not those that
// wait in another group themselves, for a rank that somebody else will name.
static void group_meet(const void *meeting) {
    const struct Rendezvous *m = meeting;
    struct ThreadGroup *g = m->group;
    double limit = m->comm->timeout_s;
    struct Wait wait = wait_begin();
    _Atomic int *waits = &g->waits[comm_job_rank(m->comm, m->comm->rank)];
    bool excused = false; // fail_if_missing has returned once
    pthread_mutex_lock(&g->lock);
    ++*waits;
    g->participant[m->comm->rank] = (struct Participant){m->mem, m->call, true};
    uint64_t this_one = g->meetings;
    if (++g->arrived == g->size) {
        check_calls(m->comm, g);
        end_meeting(g);
    }
    while (g->meetings == this_one) {
        wait_cond(&g->changed, &g->lock, WAIT_LOOK_S);
        if (wait_check(&wait) < limit || g->meetings != this_one)
            continue;
        fail_if_missing(m, excused); // with the lock held: the others stay silent
        excused = true;
        wait = wait_begin();
        limit = EXCUSED_S;
    }
    --*waits;
    for (int r = 0; r < g->size; r++)
        if (m->peer[r] != g->participant[r].mem) // if not, a CPU's queued kernel may be reading it
            m->peer[r] = g->participant[r].mem;
    pthread_mutex_unlock(&g->lock);
}

static void meet_on_hosts(const struct Rendezvous *m) {
    struct Device *d = m->comm->device;
    struct Turns *turns = m->group->turns;
    int rank = m->comm->rank, turn = (int)(turns[rank].meetings++ % 2);
    device_record(d, m->comm->queue, turns[rank].event[turn]);
    group_meet(m);
    for (int r = 0; r < m->comm->size; r++)
        if (r != rank)
            device_wait(d, m->comm->queue, turns[r].event[turn]);
}

static struct Rendezvous make_meeting(struct Comm *c, const void *mem, struct CommCall call) {
    struct ThreadComm *t = (struct ThreadComm *)c;
    return (struct Rendezvous){c, t->group, t->peer, (void *)mem, call};
}

static void queue_meeting(struct Comm *c, const void *mem, struct CommCall call) {
    struct Rendezvous m = make_meeting(c, mem, call);
    if (c->device->calls_may_wait)
        device_call(c->device, c->queue, group_meet, &m, sizeof m);
    else
        meet_on_hosts(&m);
}

// ---- collectives ----

static void queue_sum(struct Comm *c, void *shard, size_t n, enum Dtype dtype, bool accumulate) {
    c->device->kernels->rank_sum(c->device->queue[c->queue],
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

// Copies each other rank's piece, at peer[r] + begin + r * step, to whole + r * bytes.
static void queue_gather(struct Comm *c, void *whole, size_t bytes, size_t begin, size_t step) {
    c->device->kernels->rank_gather(c->device->queue[c->queue],
                                    &(struct RankGather){
                                        .bytes = bytes,
                                        .ranks = (size_t)c->size,
                                        .skip = (size_t)c->rank,
                                        .begin = begin,
                                        .step = step,
                                        .src = ((struct ThreadComm *)c)->peer,
                                        .dst = whole,
                                    });
}

// Copies the bytes of rank `from`.
static void queue_copy(struct Comm *c, void *dst, int from, size_t bytes) {
    struct RankGather copy = {.bytes = bytes,
                              .ranks = 1,
                              .skip = SIZE_MAX,
                              .src = ((struct ThreadComm *)c)->peer + from,
                              .dst = dst};
    c->device->kernels->rank_gather(c->device->queue[c->queue], &copy);
}

static void thread_all_gather(struct Comm *c, void *whole, const void *shard, size_t bytes) {
    struct CommCall call = comm_call(c, COMM_ALL_GATHER, F32, bytes);
    char *own = (char *)whole + (size_t)c->rank * bytes;
    queue_meeting(c, shard, call);
    if (own != shard)
        device_copy(c->device, c->queue, own, shard, bytes);
    queue_gather(c, whole, bytes, 0, 0);
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
    queue_gather(c, whole, bytes, 0, bytes);
    queue_meeting(c, whole, call);
    comm_queued(c);
}

static void thread_all_to_all(struct Comm *c, void *to, const void *from, size_t bytes) {
    struct CommCall call = comm_call(c, COMM_ALL_TO_ALL, F32, bytes);
    size_t mine = (size_t)c->rank * bytes;
    queue_meeting(c, from, call);
    device_copy(c->device, c->queue, (char *)to + mine, (const char *)from + mine, bytes);
    queue_gather(c, to, bytes, mine, 0);
    queue_meeting(c, from, call);
    comm_queued(c);
}

static void thread_sendrecv(struct Comm *c, void *to, const void *from, size_t bytes) {
    struct CommCall call = comm_call_swap(c, bytes, from != NULL);
    queue_meeting(c, from, call);
    if (to)
        queue_copy(c, to, 1 - c->rank, bytes);
    queue_meeting(c, from, call);
    comm_queued(c);
}

// ---- the ranks' hosts ----

static void thread_compare(struct Comm *c, struct CommCall call) {
    struct Rendezvous m = make_meeting(c, NULL, call);
    group_meet(&m);
}

// Meets twice, as in a collective: a rank that is slow to leave the first meeting finds the words.
static void thread_share(struct Comm *c, uint64_t mine, uint64_t *all) {
    struct Rendezvous m = make_meeting(c, (void *)(uintptr_t)mine, (struct CommCall){0});
    group_meet(&m);
    for (int r = 0; r < c->size; r++)
        all[r] = (uint64_t)(uintptr_t)m.peer[r];
    group_meet(&m);
}

static void thread_claim(struct Comm *c) {
    pthread_mutex_lock(&((struct ThreadComm *)c)->group->lock); // until the process ends
}

// A thread does not end alone, so no rank is ever gone.
static int thread_heartbeat(struct Comm *c, uint64_t begun, bool *gone) {
    (void)gone;
    ((struct ThreadComm *)c)->group->begun[c->rank] = begun;
    return 0;
}

static void thread_collect_progress(struct Comm *c, uint64_t mine, uint64_t *begun) {
    struct ThreadGroup *g = ((struct ThreadComm *)c)->group;
    g->begun[c->rank] = mine;
    for (int r = 0; r < c->size; r++)
        begun[r] = g->begun[r];
}

static void thread_close(struct Comm *c) {
    struct ThreadComm *t = (struct ThreadComm *)c;
    struct ThreadGroup *g = t->group;
    if (g->split_off && ++g->closed_ends == g->size)
        thread_group_close(g);
    free(t->peer);
    free(t);
}

// Opens a group of some of the ranks of `g`, which must outlive it.
static struct ThreadGroup *split_group(struct ThreadGroup *g, int size) {
    struct ThreadGroup *part = thread_group_open(size);
    free(part->waits);
    part->waits = g->waits;
    part->split_off = true;
    return part;
}

// The first rank of the line makes the group, and all learn its address.
static struct Comm *thread_split(struct Comm *c, const struct CommSplit *split) {
    const struct GridLine *line = &split->line;
    struct ThreadGroup *g = ((struct ThreadComm *)c)->group;
    uint64_t *all = base_alloc((size_t)c->size * sizeof *all), mine = 0;
    if (line->coord == 0)
        mine = (uint64_t)(uintptr_t)split_group(g, line->size);
    thread_share(c, mine, all);
    g = (struct ThreadGroup *)(uintptr_t)all[line->origin];
    free(all);
    return comm_open_thread(g, line->coord, c->device, c->timeout_s);
}

static const struct CommOps thread_ops = {
    .all_gather = thread_all_gather,
    .reduce_scatter = thread_reduce_scatter,
    .all_reduce = thread_all_reduce,
    .all_to_all = thread_all_to_all,
    .sendrecv = thread_sendrecv,
    .compare = thread_compare,
    .share = thread_share,
    .split = thread_split,
    .claim = thread_claim,
    .heartbeat = thread_heartbeat,
    .collect_progress = thread_collect_progress,
    .abort = comm_exit,
    .close = thread_close,
};

// ---- opening ----

struct ThreadGroup *thread_group_open(int size) {
    struct ThreadGroup *g = base_alloc_zeroed(sizeof *g);
    pthread_mutex_init(&g->lock, NULL);
    wait_cond_init(&g->changed);
    g->size = size;
    g->participant = base_alloc_zeroed((size_t)size * sizeof *g->participant);
    g->call = base_alloc_zeroed((size_t)size * sizeof *g->call);
    g->turns = base_alloc_zeroed((size_t)size * sizeof *g->turns);
    g->begun = base_alloc_zeroed((size_t)size * sizeof *g->begun);
    g->waits = base_alloc_zeroed((size_t)size * sizeof *g->waits);
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
    free(g->participant);
    free(g->call);
    free(g->turns);
    free(g->begun);
    if (!g->split_off)
        free(g->waits);
    free(g);
}

struct Comm *comm_open_thread(struct ThreadGroup *g, int rank, struct Device *device,
                              double timeout_s) {
    struct ThreadComm *c = base_alloc_zeroed(sizeof *c);
    c->comm = (struct Comm){.ops = &thread_ops,
                            .device = device,
                            .queue = QUEUE_COMM,
                            .axis = AXIS_DP,
                            .rank = rank,
                            .size = g->size,
                            .stride = 1,
                            .timeout_s = timeout_s};
    c->group = g;
    c->peer = base_alloc_zeroed((size_t)g->size * sizeof *c->peer);
    struct Turns *turns = &g->turns[rank]; // the others read it after the first meeting
    if (!device->calls_may_wait && !turns->ops) {
        turns->ops = device->ops;
        for (int i = 0; i < 2; i++)
            turns->event[i] = device->ops->event_open(device); // ranks met
    }
    return &c->comm;
}
