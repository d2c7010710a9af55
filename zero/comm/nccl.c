// Collectives between ranks that have a GPU each, by NCCL.
//
// NCCL's calls are operations on a CUDA stream, here the group's queue. It moves data between
// GPUs as fast as their links allow, but promises no order of summation. So that every stage of
// ZeRO and every backend gives the same bits, the sum is ours:
//
//   reduce_scatter   every rank sends each other rank its piece of that one's shard, into staging
//                    (grouped ncclSend and ncclRecv: as many bytes as ncclReduceScatter);
//                    rank_sum adds them in rank order; piece by piece
//   all_gather       ncclAllGather
//   all_reduce       reduce_scatter in place, then all_gather
//   all_to_all       grouped ncclSend and ncclRecv
//   sendrecv         grouped ncclSend and ncclRecv, or one of these
//
// `native` leaves the sum to ncclReduceScatter, for speed and other bits.
//
// The ranks find each other through the group that they are in already, the CARRIER (comm/thread.c
// or comm/mpi.c). It passes on NCCL's identifier, compares calls if asked to, and ends the job. The
// communicator is non-blocking: a call may return before it is done, and we wait for it with a
// time-out. A watcher (nccl_watch.c) polls NCCL for errors that come later, a broken link for
// example, and finds collectives that do not end.
//
// NCCL itself does not notice that a rank is missing: a GPU waits for its peers for ever, and
// reports nothing. So both also watch the other ranks through the carrier: for one whose process is
// gone, and after the time-out for one that does not answer, or has not come to this collective.
//
// Source: NVIDIA, "NCCL User Guide", sections on group calls, in-place operations and fault
// tolerance. Called through struct CommOps; opened by zero/rank/rank.c. Read next: nccl_watch.c.
#include "zero/comm/nccl.h"

#include "kernels/kernels.h"
#include "kernels/library.h"
#include "zero/comm/nccl_watch.h"

#include <errno.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ---- NCCL's functions, found when the program runs: it works without NCCL, too ----

#define NCCL_FUNCTIONS(X)                                                                          \
    X(GetVersion)                                                                                  \
    X(GetUniqueId)                                                                                 \
    X(GetErrorString)                                                                              \
    X(CommInitRankConfig)                                                                          \
    X(CommGetAsyncError)                                                                           \
    X(CommAbort)                                                                                   \
    X(CommFinalize)                                                                                \
    X(CommDestroy)                                                                                 \
    X(GroupStart)                                                                                  \
    X(GroupEnd)                                                                                    \
    X(Send)                                                                                        \
    X(Recv)                                                                                        \
    X(AllGather)                                                                                   \
    X(Reduce)                                                                                      \
    X(ReduceScatter)

struct NcclLibrary {
#define X(name) __typeof__(&nccl##name) name;
    NCCL_FUNCTIONS(X)
#undef X
};

enum { OLDEST_VERSION = 21400 }; // non-blocking communicators

static int find_library(struct NcclLibrary *nccl, struct Error *e) {
    static const char *const symbols[] = {
#define X(name) "nccl" #name,
        NCCL_FUNCTIONS(X)
#undef X
    };
    enum { COUNT = sizeof symbols / sizeof symbols[0] };
    void *function[COUNT];
    int version = 0;
    int err = library_open("libnccl.so.2", symbols, function, COUNT, "NCCL (libnccl2)", e);
    if (err)
        return err;
    _Static_assert(sizeof *nccl == sizeof function, "one pointer for each name");
    memcpy(nccl, function, sizeof *nccl);
    if (nccl->GetVersion(&version) != ncclSuccess)
        return error_set(e, -ENOTSUP, E_NCCL,
                         "NCCL does not tell its version: install libnccl2 2.14 or newer");
    if (version < OLDEST_VERSION)
        return error_set(e, -ENOTSUP, E_NCCL,
                         "NCCL here has version code %d, but %d (2.14) or newer is needed: install "
                         "libnccl2 2.14 or newer",
                         version, OLDEST_VERSION);
    return 0;
}

int nccl_find(struct Error *e) {
    struct NcclLibrary nccl;
    return find_library(&nccl, e);
}

// ---- a rank's end of a group ----

enum {
    PIECE_ALIGN = 64,
    ID_WORDS = NCCL_UNIQUE_ID_BYTES / sizeof(uint64_t),
    ABORT_S = 3, // most seconds for ncclCommAbort
};

static const double CHECK_RANKS_S = 0.1; // between two checks of the other ranks

struct NcclComm {
    struct Comm comm;
    struct Comm *carrier;
    struct NcclSettings settings;
    struct NcclLibrary nccl;
    ncclComm_t handle;
    cudaStream_t stream;
    const struct Block *staging; // (size, piece): what comes from each rank
    size_t piece;                // bytes of one message
    void **operand;              // (size): of the current sum
    struct CommCall now;         // the collective that is being queued, or at first the opening
    _Atomic uint64_t begun;      // collectives so far, including `now`, but not the opening
    struct Watch watch;
    pthread_mutex_t report_lock; // held by the thread of this rank that ends the process
    _Atomic bool reported;       // `reporter` is set
    pthread_t reporter;
};

// ---- failing ----

// From now on, until the process ends, the rank's other thread does not touch the communicator.
static void lock_communicator_until_exit(struct NcclComm *n) {
    if (n->reported && pthread_equal(n->reporter, pthread_self()))
        return;
    pthread_mutex_lock(&n->report_lock);
    n->reporter = pthread_self();
    n->reported = true;
}

static _Noreturn void fail_collective(struct NcclComm *n, const struct CommCall *call,
                                      enum ErrorId id, const char *why, const char *more) {
    n->carrier->ops->claim(n->carrier);
    comm_fail(&n->comm, id, "collective %llu, %s of %llu bytes: %s%s",
              (unsigned long long)call->sequence, collective_name(call->collective),
              (unsigned long long)call->bytes, why, more);
}

// NCCL's messages are short; its own log names causes, and is written to where NCCL_DEBUG says.
static _Noreturn void fail_by_nccl(struct NcclComm *n, const struct CommCall *call,
                                   ncclResult_t result) {
    char more[400], where[24] = "";
    int gpu = -1;
    if (cudaGetDevice(&gpu) == cudaSuccess && gpu >= 0)
        snprintf(where, sizeof where, " on GPU %d", gpu);
    snprintf(more, sizeof more,
             "%s (ncclResult_t %d)%s; set NCCL_DEBUG=WARN for details; --resume auto continues "
             "from the newest checkpoint",
             n->nccl.GetErrorString(result), (int)result, where);
    fail_collective(n, call, E_NCCL, "NCCL reports: ", more);
}

static void exit_on_alarm(int number) {
    (void)number;
    _exit(2);
}

static void nccl_abort(struct Comm *c) {
    struct NcclComm *n = (struct NcclComm *)c;
    signal(SIGALRM, exit_on_alarm); // in case CommAbort itself waits for another rank
    alarm(ABORT_S);
    lock_communicator_until_exit(n);
    if (n->handle)
        n->nccl.CommAbort(n->handle);
    alarm(0);
    n->carrier->ops->abort(n->carrier);
}

// Returns the communicator's state. Whoever aborts it keeps `report_lock`: the other thread then
// waits here until the process ends.
static ncclResult_t poll_error(struct NcclComm *n) {
    ncclResult_t state = ncclSuccess;
    pthread_mutex_lock(&n->report_lock);
    ncclResult_t asked = n->nccl.CommGetAsyncError(n->handle, &state);
    pthread_mutex_unlock(&n->report_lock);
    return asked == ncclSuccess ? state : asked;
}

static void check_other_ranks(struct NcclComm *n, const struct CommCall *now) {
    const char *names = comm_heartbeat(n->carrier, n->begun);
    if (names)
        fail_collective(n, now, E_RANK_SILENT, "lost the process of rank",
                        base_format("%s; %s", names, comm_lost_advice));
}

// Called by the watcher: ends the job if a rank is gone or the communicator has failed.
static void check_collective(struct Comm *c, const struct CommCall *now) {
    struct NcclComm *n = (struct NcclComm *)c;
    check_other_ranks(n, now); // its message says more than NCCL's
    ncclResult_t state = poll_error(n);
    if (state != ncclSuccess && state != ncclInProgress)
        fail_by_nccl(n, now, state);
}

// Names the ranks that have begun less than `needed` collectives.
static _Noreturn void fail_late(struct NcclComm *n, const struct CommCall *call, uint64_t needed,
                                const char *what) {
    const char *missing = comm_collect_progress(n->carrier, n->begun, needed);
    fail_collective(n, call, E_RANK_SILENT, what,
                    base_format("%g s%s; resume ranks that are stopped, or raise --comm-timeout",
                                n->comm.timeout_s, missing));
}

static void fail_late_collective(struct Comm *c, const struct CommCall *call) {
    fail_late((struct NcclComm *)c, call, call->sequence + 1, "it has begun, but not ended for ");
}

// Waits until the NCCL call that returned `result` is done.
static void wait_for_result(struct NcclComm *n, ncclResult_t result) {
    double now = base_seconds(), deadline = now + n->comm.timeout_s, next = now + CHECK_RANKS_S;
    while (result == ncclInProgress) {
        result = poll_error(n);
        if (result != ncclInProgress)
            break;
        nanosleep(&(struct timespec){0, 20000}, NULL);
        now = base_seconds();
        if (now > deadline)
            fail_late(n, &n->now, n->begun, "NCCL has waited for ");
        if (now > next) {
            check_other_ranks(n, &n->now);
            next = now + CHECK_RANKS_S;
        }
    }
    if (result != ncclSuccess)
        fail_by_nccl(n, &n->now, result);
}

// ---- collectives ----

// Runs a call that puts an operation on the stream. (Between GroupStart and GroupEnd nothing is put
// there yet, and GroupEnd returns the first failure of the calls between them.)
#define QUEUE(n, call)                                                                             \
    do {                                                                                           \
        trace_begin(n);                                                                            \
        wait_for_result(n, call);                                                                  \
        trace_end(n);                                                                              \
    } while (0)

static void trace_begin(struct NcclComm *n) {
    struct Device *d = n->comm.device;
    if (d->ops->span_begin)
        d->ops->span_begin(d->queue[n->comm.queue], "nccl");
}
static void trace_end(struct NcclComm *n) {
    struct Device *d = n->comm.device;
    if (d->ops->span_end)
        d->ops->span_end(d->queue[n->comm.queue]);
}

static struct NcclComm *begin_collective(struct Comm *c, struct CommCall call) {
    struct NcclComm *n = (struct NcclComm *)c;
    if (n->settings.check)
        n->carrier->ops->compare(n->carrier, call);
    n->now = call;
    n->begun = call.sequence + 1;
    watch_begin(&n->watch, call);
    return n;
}

static void end_collective(struct NcclComm *n) {
    watch_end(&n->watch);
    comm_queued(&n->comm);
}

static ncclDataType_t nccl_type(enum Dtype d) {
    return d == F32 ? ncclFloat32 : d == BF16 ? ncclBfloat16 : ncclFloat16;
}

// Sends `bytes` bytes at from + r * from_step to each rank r, and receives as many from it at
// to + r * to_step.
static void exchange_pieces(struct NcclComm *n, char *to, size_t to_step, const char *from,
                            size_t from_step, size_t bytes) {
    wait_for_result(n, n->nccl.GroupStart());
    for (int r = 0; r < n->comm.size; r++) {
        if (r == n->comm.rank)
            continue;
        n->nccl.Send(from + (size_t)r * from_step, bytes, ncclUint8, r, n->handle, n->stream);
        n->nccl.Recv(to + (size_t)r * to_step, bytes, ncclUint8, r, n->handle, n->stream);
    }
    QUEUE(n, n->nccl.GroupEnd());
}

static void queue_sum(struct NcclComm *n, void *shard, const void *whole, size_t count,
                      enum Dtype dtype, bool accumulate) {
    struct Device *d = n->comm.device;
    size_t size = dtype_size(dtype), step = n->piece / size, bytes = count * size;
    int me = n->comm.rank;
    for (size_t at = 0; at < count; at += step) {
        size_t part = size_min(step, count - at);
        exchange_pieces(n, n->staging->mem, n->piece, (const char *)whole + at * size, bytes,
                        part * size);
        for (int r = 0; r < n->comm.size; r++)
            n->operand[r] = r == me ? (char *)whole + (size_t)me * bytes + at * size
                                    : (char *)n->staging->mem + (size_t)r * n->piece;
        d->kernels->rank_sum(d->queue[n->comm.queue], &(struct RankSum){
                                                          .n = part,
                                                          .ranks = (size_t)n->comm.size,
                                                          .dtype = dtype,
                                                          .src = n->operand,
                                                          .dst = (char *)shard + at * size,
                                                          .accumulate = accumulate,
                                                      });
    }
}

// Adds up all shards' pieces by NCCL, mine into staging; then adds that to the shard.
// (ncclReduceScatter takes shards that lie side by side, so it cannot go piece by piece.)
static void queue_native_accumulation(struct NcclComm *n, void *shard, const void *whole,
                                      size_t count, enum Dtype dtype) {
    struct Device *d = n->comm.device;
    size_t size = dtype_size(dtype), step = n->piece / size;
    for (size_t at = 0; at < count; at += step) {
        size_t part = size_min(step, count - at);
        wait_for_result(n, n->nccl.GroupStart());
        for (int r = 0; r < n->comm.size; r++)
            n->nccl.Reduce((const char *)whole + ((size_t)r * count + at) * size, n->staging->mem,
                           part, nccl_type(dtype), ncclSum, r, n->handle, n->stream);
        QUEUE(n, n->nccl.GroupEnd());
        n->operand[0] = n->staging->mem;
        d->kernels->rank_sum(d->queue[n->comm.queue],
                             &(struct RankSum){part, 0, 1, dtype, n->operand,
                                               (char *)shard + at * size, .accumulate = true});
    }
}

static void queue_reduction(struct NcclComm *n, void *shard, const void *whole, size_t count,
                            enum Dtype dtype, bool accumulate) {
    if (!n->settings.native)
        queue_sum(n, shard, whole, count, dtype, accumulate);
    else if (accumulate)
        queue_native_accumulation(n, shard, whole, count, dtype);
    else
        QUEUE(n, n->nccl.ReduceScatter(whole, shard, count, nccl_type(dtype), ncclSum, n->handle,
                                       n->stream));
}

static void nccl_all_gather(struct Comm *c, void *whole, const void *shard, size_t bytes) {
    struct NcclComm *n = begin_collective(c, comm_call(c, COMM_ALL_GATHER, F32, bytes));
    QUEUE(n, n->nccl.AllGather(shard, whole, bytes, ncclUint8, n->handle, n->stream));
    end_collective(n);
}

static void nccl_reduce_scatter(struct Comm *c, void *shard, const void *whole, size_t count,
                                enum Dtype dtype, bool accumulate) {
    struct NcclComm *n =
        begin_collective(c, comm_call(c, COMM_REDUCE_SCATTER, dtype, count * dtype_size(dtype)));
    queue_reduction(n, shard, whole, count, dtype, accumulate);
    end_collective(n);
}

static void nccl_all_reduce(struct Comm *c, void *whole, size_t count, enum Dtype dtype) {
    size_t bytes = count * dtype_size(dtype);
    struct NcclComm *n = begin_collective(c, comm_call(c, COMM_ALL_REDUCE, dtype, bytes));
    char *mine = (char *)whole + (size_t)c->rank * bytes;
    queue_reduction(n, mine, whole, count, dtype, false);
    QUEUE(n, n->nccl.AllGather(mine, whole, bytes, ncclUint8, n->handle, n->stream));
    end_collective(n);
}

static void nccl_all_to_all(struct Comm *c, void *to, const void *from, size_t bytes) {
    struct NcclComm *n = begin_collective(c, comm_call(c, COMM_ALL_TO_ALL, F32, bytes));
    size_t mine = (size_t)c->rank * bytes;
    device_copy(c->device, c->queue, (char *)to + mine, (const char *)from + mine, bytes);
    exchange_pieces(n, to, bytes, from, bytes, bytes);
    end_collective(n);
}

static void nccl_sendrecv(struct Comm *c, void *to, const void *from, size_t bytes) {
    struct NcclComm *n = begin_collective(c, comm_call_swap(c, bytes, from != NULL));
    int other = 1 - c->rank;
    wait_for_result(n, n->nccl.GroupStart());
    if (from)
        n->nccl.Send(from, bytes, ncclUint8, other, n->handle, n->stream);
    if (to)
        n->nccl.Recv(to, bytes, ncclUint8, other, n->handle, n->stream);
    QUEUE(n, n->nccl.GroupEnd());
    end_collective(n);
}

// ---- opening and closing ----

static void nccl_close(struct Comm *c) {
    struct NcclComm *n = (struct NcclComm *)c;
    device_sync_queue(c->device, c->queue);
    watch_close(&n->watch);
    wait_for_result(n, n->nccl.CommFinalize(n->handle)); // others may still wait for what was sent
    n->nccl.CommDestroy(n->handle);
    n->carrier->ops->close(n->carrier);
    pthread_mutex_destroy(&n->report_lock);
    free(n->operand);
    free(n);
}

// Splits with the same settings; the staging serves both groups if they run in one queue.
static struct Comm *nccl_split(struct Comm *c, const struct CommSplit *split) {
    struct NcclComm *n = (struct NcclComm *)c;
    struct Comm *carrier = n->carrier->ops->split(n->carrier, split);
    carrier->queue = split->queue;
    carrier->axis = split->line.axis; // before its end is opened: errors name ranks of the job
    carrier->origin = split->line.origin;
    carrier->stride = split->line.stride;
    return comm_open_nccl(carrier, &n->settings, split->staging ? split->staging : n->staging);
}

static const struct CommOps nccl_ops = {
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .all_reduce = nccl_all_reduce,
    .all_to_all = nccl_all_to_all,
    .sendrecv = nccl_sendrecv,
    .split = nccl_split,
    .abort = nccl_abort,
    .close = nccl_close,
};

// Rank 0 makes the group's identifier, and the carrier passes it to all word by word.
static ncclUniqueId share_id(struct NcclComm *n) {
    union {
        ncclUniqueId id;
        uint64_t word[ID_WORDS];
    } shared = {0};
    uint64_t *all = base_alloc_zeroed((size_t)n->comm.size * sizeof *all);
    if (n->comm.rank == 0)
        wait_for_result(n, n->nccl.GetUniqueId(&shared.id));
    for (size_t i = 0; i < ID_WORDS; i++) {
        n->carrier->ops->share(n->carrier, shared.word[i], all);
        shared.word[i] = all[0];
    }
    free(all);
    return shared.id;
}

struct Comm *comm_open_nccl(struct Comm *carrier, const struct NcclSettings *settings,
                            const struct Block *staging) {
    struct NcclComm *n = base_alloc_zeroed(sizeof *n);
    struct Error e;
    CHECK(!find_library(&n->nccl, &e), "%s", e.text); // nccl_find has found it
    CHECK(!carrier->device->calls_may_wait, "NCCL with device %s", carrier->device->name);
    size_t size = (size_t)carrier->size;
    n->comm = (struct Comm){.ops = &nccl_ops,
                            .device = carrier->device,
                            .queue = carrier->queue,
                            .axis = carrier->axis,
                            .rank = carrier->rank,
                            .size = carrier->size,
                            .origin = carrier->origin,
                            .stride = carrier->stride,
                            .timeout_s = carrier->timeout_s};
    pthread_mutex_init(&n->report_lock, NULL);
    n->carrier = n->comm.hosts = carrier;
    carrier->outer = &n->comm;
    n->settings = *settings;
    n->stream = device_native_queue(carrier->device, carrier->queue);
    n->staging = staging;
    n->piece = settings->chunk_bytes / size / PIECE_ALIGN * PIECE_ALIGN;
    CHECK(n->piece > 0, "chunks of %zu bytes for %zu ranks", settings->chunk_bytes, size);
    n->operand = base_alloc_zeroed(size * sizeof *n->operand);
    n->now.collective = COMM_BARRIER; // all come together
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId id = share_id(n);
    wait_for_result(
        n, n->nccl.CommInitRankConfig(&n->handle, carrier->size, id, carrier->rank, &config));
    n->watch = (struct Watch){
        .comm = &n->comm, .check = check_collective, .report_late = fail_late_collective};
    watch_open(&n->watch);
    return &n->comm;
}
