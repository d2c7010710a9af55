// Collectives between ranks that are processes, over MPI, in host memory.
//
// MPI is used only for EXCHANGES, in which every rank sends a piece to each other rank and receives
// one from each, with non-blocking sends and receives. Larger messages go piece by piece, so a rank
// needs staging for one exchange besides its own buffers, however large the model is:
//
//   reduce_scatter   exchange: the others' pieces of my shard into staging; sum them in rank order
//   all_gather       exchange: my shard's piece to all, theirs to their offsets in `whole`
//   all_reduce       reduce_scatter in place, then all_gather
//   all_to_all       exchange: each rank's piece to it, theirs to their offsets in `to`
//   sendrecv         exchange: mine to the other of two, its to me; or one of these
//
// MPI's own reductions promise no order of summation; this one gives the bits of comm/thread.c.
//
// MPI sees host memory alone. On a GPU an exchange is three steps in the queue: a copy of what is
// sent into pinned memory, the exchange there, and a copy of what came to its destination.
//
// Exchanges run on the worker of the group's queue. It polls MPI and sleeps in between, since the
// ranks' kernels need the machine's cores. While it waits it watches the others, since MPI would
// wait for ever: for a rank whose process is gone, for one that reports a failure, and for the
// time-out (mpi_watch.c). One rank prints the error, and MPI_Abort ends the job.
#include "zero/comm/mpi.h"

#include "kernels/kernels.h"
#include "zero/comm/mpi_end.h"
#include "zero/comm/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EAGER_TRIES = 50, // polls before the first sleep
    SLEEP_MIN_US = 20,
    SLEEP_MAX_US = 1000,
    PIECE_ALIGN = 64,
};

static const double WATCH_S = 0.1; // between two checks of the other ranks

// ---- the job ----

struct Peer {
    int64_t process;
    char node[MPI_MAX_PROCESSOR_NAME];
};

static int job_rank(void) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static void gather_peers(MPI_Comm ranks, double timeout_s, struct Peer *peers) {
    struct Peer mine = {.process = getpid()};
    int length;
    MPI_Get_processor_name(mine.node, &length);
    struct GuardThread *guard =
        guard_begin("the ranks' first exchange", job_rank(), timeout_s, true);
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, peers, sizeof mine, MPI_BYTE, ranks);
    guard_end(guard);
}

int mpi_start(struct MpiRank *out, int rank, double timeout_s, struct Error *e) {
    int threads = MPI_THREAD_SINGLE;
    *out = (struct MpiRank){0};
    struct GuardThread *guard = guard_begin("the start of MPI", rank, timeout_s, true);
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &threads);
    guard_end(guard);
    MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &out->size);
    if (threads < MPI_THREAD_MULTIPLE)
        return error_set(e, -ENOTSUP, E_MPI,
                         "this MPI allows calls from one thread only (level %d): build with one "
                         "that has MPI_THREAD_MULTIPLE, such as Debian's libopenmpi-dev",
                         threads);
    struct Peer *peers = base_alloc_zeroed((size_t)out->size * sizeof *peers);
    gather_peers(MPI_COMM_WORLD, timeout_s, peers);
    for (int r = out->size - 1; r >= 0; r--) {
        bool here = strcmp(peers[r].node, peers[out->rank].node) == 0;
        out->node_size += here;
        out->node_rank += here && r < out->rank;
        out->node_first = here ? r : out->node_first;
    }
    free(peers);
    return 0;
}

// The guard does not end the job: rank 0 may still be blocked by whoever reads what it printed.
void mpi_stop(int rank, double timeout_s) {
    struct GuardThread *guard = guard_begin("the end of MPI", rank, timeout_s, false);
    MPI_Finalize();
    guard_end(guard);
}

void mpi_share(const uint64_t *mine, size_t n, uint64_t *all, double timeout_s) {
    MPI_Request request;
    int done = 0;
    struct Guard guard = guard_make("the agreement of all ranks", job_rank(), timeout_s, false);
    MPI_Iallgather(mine, (int)n, MPI_UINT64_T, all, (int)n, MPI_UINT64_T, MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done) {
        mpi_sleep_us(SLEEP_MAX_US);
        guard_check(&guard);
    }
}

// ---- exchanges ----

struct Begin {
    struct MpiComm *comm;
    struct CommCall call;
};

static void wait_for_requests(struct MpiComm *c) {
    double limit = c->comm.timeout_s, look = base_seconds() + WATCH_S;
    struct Wait wait = wait_begin();
    unsigned pause = SLEEP_MIN_US;
    bool excused = false; // mpi_give_up has returned once
    int done;
    for (int i = 0;; i++) {
        MPI_Testall(2 * c->comm.size, c->request, &done, MPI_STATUSES_IGNORE);
        if (done)
            return;
        if (i < EAGER_TRIES)
            continue;
        mpi_sleep_us(pause);
        pause = pause < SLEEP_MAX_US / 2 ? pause * 2 : SLEEP_MAX_US;
        if (wait_check(&wait) > limit) {
            mpi_give_up(c, excused);
            excused = true;
            wait = wait_begin();
            limit = MPI_EXCUSED_S;
        }
        if (wait.last_check > look) {
            mpi_watch(c);
            look = wait.last_check + WATCH_S;
        }
    }
}

static void post_messages(const struct Exchange *x, int tag) {
    struct MpiComm *c = x->comm;
    int size = c->comm.size, me = c->comm.rank, bytes = (int)x->bytes;
    MPI_Request *in = c->request, *out = in + size;
    for (int r = 0; r < size; r++) {
        in[r] = out[r] = MPI_REQUEST_NULL;
        if (r != me && x->recv && (x->from == FROM_ALL || x->from == r))
            MPI_Irecv(x->recv + (size_t)r * x->recv_step, bytes, MPI_BYTE, r, tag, c->ranks,
                      &in[r]);
    }
    for (int i = 1; i < size; i++) { // each rank begins with another one, to spread the load
        int r = (me + i) % size;
        if (x->send)
            MPI_Isend(x->send + (size_t)r * x->send_step, bytes, MPI_BYTE, r, tag, c->ranks,
                      &out[r]);
    }
}

// Makes x->own and what was received the operands of the sum that follows.
static void use_operands(const struct Exchange *x) {
    for (int r = 0; x->own && r < x->comm->comm.size; r++)
        x->comm->operand[r] = r == x->comm->comm.rank ? x->own : x->recv + (size_t)r * x->recv_step;
}

void mpi_exchange(const void *args) {
    const struct Exchange *x = args;
    post_messages(x, TAG_DATA);
    wait_for_requests(x->comm);
    use_operands(x);
}

// Gives `bytes` bytes of each rank to all, from host to host: `all` has those of every rank.
static void share_bytes(struct MpiComm *c, const void *mine, void *all, size_t bytes) {
    post_messages(&(struct Exchange){.comm = c,
                                     .send = mine,
                                     .recv = all,
                                     .recv_step = bytes,
                                     .bytes = bytes,
                                     .from = FROM_ALL},
                  TAG_CALL);
    wait_for_requests(c);
}

// Begins a collective: messages name it from now on, and ranks compare their calls, if asked to.
static void begin_collective(const void *args) {
    const struct Begin *b = args;
    struct MpiComm *c = b->comm;
    char text[512];
    c->now = b->call;
    if (!c->check)
        return;
    c->all[c->comm.rank] = b->call;
    share_bytes(c, &b->call, c->all, sizeof b->call);
    if (!comm_calls_agree(&c->comm, c->all, text, sizeof text)) {
        mpi_elect_reporter(c, 1);
        comm_fail(&c->comm, E_COLLECTIVES_DIFFER, "%s", text);
    }
}

// ---- collectives ----

static void copy_to_host(const struct Exchange *x) {
    struct MpiComm *c = x->comm;
    int copies = !x->send || !x->bytes ? 0 : x->send_step ? c->comm.size : 1;
    for (int r = 0; r < copies; r++)
        if (copies == 1 || r != c->comm.rank)
            device_copy(c->comm.device, c->comm.queue, c->out + (size_t)r * c->piece,
                        x->send + (size_t)r * x->send_step, x->bytes);
}

static void copy_from_host(const struct Exchange *x) {
    struct MpiComm *c = x->comm;
    for (int r = 0; r < c->comm.size && x->recv && x->bytes; r++)
        if (r != c->comm.rank)
            device_copy(c->comm.device, c->comm.queue, x->recv + (size_t)r * x->recv_step,
                        c->in + (size_t)r * c->piece, x->bytes);
}

// On a GPU, kernels look up their operands when they are queued, so these are set here.
static void queue_exchange(const struct Exchange *x) {
    struct MpiComm *c = x->comm;
    struct Exchange host = *x;
    if (c->out) {
        copy_to_host(x);
        host.send = x->send ? c->out : NULL;
        host.send_step = x->send_step ? c->piece : 0;
        host.recv = x->recv ? c->in : NULL;
        host.recv_step = c->piece;
        host.own = NULL;
    }
    device_call(c->comm.device, c->comm.queue, mpi_exchange, &host, sizeof host);
    if (c->out) {
        copy_from_host(x);
        use_operands(x);
    }
}

static struct MpiComm *queue_begin_collective(struct Comm *comm, struct CommCall call) {
    struct Begin b = {(struct MpiComm *)comm, call};
    device_call(comm->device, comm->queue, begin_collective, &b, sizeof b);
    return b.comm;
}

// Gathers the shards, `bytes` each; this rank's is at its offset already.
static void queue_gather(struct MpiComm *c, char *whole, size_t bytes) {
    for (size_t at = 0; at < bytes; at += c->piece)
        queue_exchange(&(struct Exchange){.comm = c,
                                          .send = whole + (size_t)c->comm.rank * bytes + at,
                                          .recv = whole + at,
                                          .recv_step = bytes,
                                          .bytes = size_min(c->piece, bytes - at),
                                          .from = FROM_ALL});
}

static void queue_sum(struct MpiComm *c, void *shard, const void *whole, size_t n, enum Dtype dtype,
                      bool accumulate) {
    struct Device *d = c->comm.device;
    size_t size = dtype_size(dtype), step = c->piece / size;
    for (size_t at = 0; at < n; at += step) {
        size_t count = size_min(step, n - at), mine = n * (size_t)c->comm.rank + at;
        queue_exchange(&(struct Exchange){.comm = c,
                                          .send = (const char *)whole + at * size,
                                          .send_step = n * size,
                                          .recv = c->staging->mem,
                                          .recv_step = c->piece,
                                          .bytes = count * size,
                                          .own = (char *)whole + mine * size,
                                          .from = FROM_ALL});
        d->kernels->rank_sum(d->queue[c->comm.queue], &(struct RankSum){
                                                          .n = count,
                                                          .ranks = (size_t)c->comm.size,
                                                          .dtype = dtype,
                                                          .src = c->operand,
                                                          .dst = (char *)shard + at * size,
                                                          .accumulate = accumulate,
                                                      });
    }
}

static void mpi_all_gather(struct Comm *comm, void *whole, const void *shard, size_t bytes) {
    struct MpiComm *c = queue_begin_collective(comm, comm_call(comm, COMM_ALL_GATHER, F32, bytes));
    char *own = (char *)whole + (size_t)comm->rank * bytes;
    if (own != shard)
        device_copy(comm->device, comm->queue, own, shard, bytes);
    queue_gather(c, whole, bytes);
    comm_queued(comm);
}

static void mpi_reduce_scatter(struct Comm *comm, void *shard, const void *whole, size_t n,
                               enum Dtype dtype, bool accumulate) {
    struct CommCall call = comm_call(comm, COMM_REDUCE_SCATTER, dtype, n * dtype_size(dtype));
    queue_sum(queue_begin_collective(comm, call), shard, whole, n, dtype, accumulate);
    comm_queued(comm);
}

static void mpi_all_reduce(struct Comm *comm, void *whole, size_t n, enum Dtype dtype) {
    size_t bytes = n * dtype_size(dtype);
    struct MpiComm *c =
        queue_begin_collective(comm, comm_call(comm, COMM_ALL_REDUCE, dtype, bytes));
    queue_sum(c, (char *)whole + (size_t)comm->rank * bytes, whole, n, dtype, false);
    queue_gather(c, whole, bytes);
    comm_queued(comm);
}

static void mpi_all_to_all(struct Comm *comm, void *to, const void *from, size_t bytes) {
    struct MpiComm *c = queue_begin_collective(comm, comm_call(comm, COMM_ALL_TO_ALL, F32, bytes));
    size_t mine = (size_t)comm->rank * bytes;
    device_copy(comm->device, comm->queue, (char *)to + mine, (const char *)from + mine, bytes);
    for (size_t at = 0; at < bytes; at += c->piece)
        queue_exchange(&(struct Exchange){.comm = c,
                                          .send = (const char *)from + at,
                                          .send_step = bytes,
                                          .recv = (char *)to + at,
                                          .recv_step = bytes,
                                          .bytes = size_min(c->piece, bytes - at),
                                          .from = FROM_ALL});
    comm_queued(comm);
}

static void mpi_sendrecv(struct Comm *comm, void *to, const void *from, size_t bytes) {
    struct MpiComm *c = queue_begin_collective(comm, comm_call_swap(comm, bytes, from != NULL));
    for (size_t at = 0; at < bytes; at += c->piece)
        queue_exchange(&(struct Exchange){.comm = c,
                                          .send = from ? (const char *)from + at : NULL,
                                          .recv = to ? (char *)to + at : NULL,
                                          .bytes = size_min(c->piece, bytes - at),
                                          .from = FROM_ALL});
    comm_queued(comm);
}

// ---- the ranks' hosts ----

static void mpi_compare(struct Comm *comm, struct CommCall call) {
    begin_collective(&(struct Begin){(struct MpiComm *)comm, call});
}

static void mpi_share_words(struct Comm *comm, uint64_t mine, uint64_t *all) {
    struct MpiComm *c = (struct MpiComm *)comm;
    all[comm->rank] = mine;
    share_bytes(c, &mine, all, sizeof mine);
}

static void mpi_broadcast_host(struct Comm *comm, void *mem, size_t bytes, int root) {
    struct MpiComm *c = (struct MpiComm *)comm;
    post_messages(&(struct Exchange){.comm = c,
                                     .send = comm->rank == root ? mem : NULL,
                                     .recv = comm->rank == root ? NULL : mem,
                                     .bytes = bytes,
                                     .from = root},
                  TAG_CALL);
    wait_for_requests(c);
}

static void mpi_close(struct Comm *comm) {
    struct MpiComm *c = (struct MpiComm *)comm;
    free(c->all);
    free(c->request);
    free(c->operand);
    free(c->process);
    if (c->own_pieces) {
        device_free_host(comm->device, c->out);
        device_free_host(comm->device, c->in);
    }
    if (c->split_off) {
        struct GuardThread *guard =
            guard_begin("the closing of a group", job_rank(), comm->timeout_s, true);
        MPI_Comm_free(&c->ranks);
        guard_end(guard);
    } else {
        pthread_mutex_destroy(c->report_lock);
        free(c->report_lock);
    }
    free(c);
}

static struct Comm *mpi_split(struct Comm *comm, const struct CommSplit *split);

static const struct CommOps mpi_ops = {
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .all_reduce = mpi_all_reduce,
    .all_to_all = mpi_all_to_all,
    .sendrecv = mpi_sendrecv,
    .compare = mpi_compare,
    .share = mpi_share_words,
    .broadcast_host = mpi_broadcast_host,
    .split = mpi_split,
    .claim = mpi_claim,
    .heartbeat = mpi_heartbeat,
    .collect_progress = mpi_collect_progress,
    .abort = mpi_abort,
    .close = mpi_close,
};

// ---- opening ----

// Finds which ranks' processes can be watched: those of this machine, unless they are hidden in
// other containers.
static void find_processes(struct MpiComm *c) {
    int size = c->comm.size, me = c->comm.rank;
    struct Peer *peers = base_alloc_zeroed((size_t)size * sizeof *peers);
    gather_peers(c->ranks, c->comm.timeout_s, peers);
    for (int r = 0; r < size; r++)
        if (r != me && strcmp(peers[r].node, peers[me].node) == 0)
            c->process[r] = (pid_t)peers[r].process;
    free(peers);
    struct GuardThread *guard =
        guard_begin("the opening of a group", job_rank(), c->comm.timeout_s, true);
    MPI_Barrier(c->ranks); // now all are there
    guard_end(guard);
    for (int r = 0; r < size; r++)
        if (mpi_is_gone(c, r))
            c->process[r] = 0;
}

static struct MpiComm *open_mpi_comm(struct Device *device, const struct MpiSettings *settings,
                                     const struct Block *staging, MPI_Comm ranks) {
    struct MpiComm *c = base_alloc_zeroed(sizeof *c);
    c->comm = (struct Comm){.ops = &mpi_ops,
                            .device = device,
                            .queue = QUEUE_COMM,
                            .axis = AXIS_DP,
                            .stride = 1,
                            .timeout_s = settings->timeout_s};
    c->chunk_bytes = settings->chunk_bytes;
    c->check = settings->check;
    c->ranks = ranks;
    c->staging = staging;
    MPI_Comm_rank(ranks, &c->comm.rank);
    MPI_Comm_size(ranks, &c->comm.size);
    size_t size = (size_t)c->comm.size;
    c->piece = settings->chunk_bytes / size / PIECE_ALIGN * PIECE_ALIGN;
    CHECK(c->piece > 0, "chunks of %zu bytes for %zu ranks", settings->chunk_bytes, size);
    c->all = base_alloc_zeroed(size * sizeof *c->all);
    c->request = base_alloc_zeroed(2 * size * sizeof(MPI_Request));
    c->operand = base_alloc_zeroed(size * sizeof *c->operand);
    c->process = base_alloc_zeroed(size * sizeof *c->process);
    find_processes(c);
    return c;
}

static void alloc_host_pieces(struct MpiComm *c) {
    size_t bytes = (size_t)c->comm.size * c->piece;
    c->out = device_alloc_host(c->comm.device, bytes);
    c->in = device_alloc_host(c->comm.device, bytes);
}

struct Comm *comm_open_mpi(struct Device *device, const struct MpiSettings *settings,
                           const struct Block *staging) {
    struct MpiComm *c = open_mpi_comm(device, settings, staging, MPI_COMM_WORLD);
    c->report_lock = base_alloc_zeroed(sizeof *c->report_lock);
    pthread_mutex_init(c->report_lock, NULL);
    c->own_pieces = true;
    if (!device->calls_may_wait)
        alloc_host_pieces(c);
    return &c->comm;
}

// The host's pieces serve both groups, as the staging does, if their exchanges run in one queue.
static struct Comm *mpi_split(struct Comm *comm, const struct CommSplit *split) {
    struct MpiComm *all = (struct MpiComm *)comm;
    const struct GridLine *line = &split->line;
    const struct Block *staging = split->staging ? split->staging : all->staging;
    struct MpiSettings settings = {comm->timeout_s, all->chunk_bytes, all->check};
    MPI_Comm ranks;
    struct GuardThread *guard =
        guard_begin("the opening of a group", job_rank(), comm->timeout_s, true);
    MPI_Comm_split(all->ranks, line->origin, line->coord, &ranks);
    guard_end(guard);
    struct MpiComm *c = open_mpi_comm(comm->device, &settings, staging, ranks);
    c->piece = size_min(c->piece, (size_t)comm->size * all->piece / (size_t)line->size);
    c->report_lock = all->report_lock;
    c->split_off = true;
    c->own_pieces = split->staging != NULL;
    if (!c->own_pieces) {
        c->out = all->out;
        c->in = all->in;
    } else if (!comm->device->calls_may_wait) {
        alloc_host_pieces(c);
    }
    return &c->comm;
}
