// Collectives between ranks that are processes, over MPI, in the host's memory.
//
// MPI itself is asked for little: every rank sends a piece to each other rank and receives one from
// each, with non-blocking sends and receives. comm/exchange.c makes all collectives of that.
//
// All of it runs on the worker of the group's queue. It waits by asking MPI and sleeping between,
// since the machine's cores are there for the ranks' kernels. While it waits it watches the others,
// since MPI would wait for ever: for a rank whose process is gone, for one that says that it has
// failed, and for the time-out. One rank tells, and MPI_Abort ends the job.
//
// Next: mpi_watch.c, which looks after the other ranks.
#include "zero/comm/mpi.h"

#include "zero/comm/wait.h"
#include "zero/comm/mpi_end.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EAGER_TRIES = 50, // how often to ask before the first sleep
    SLEEP_MIN_US = 20,
    SLEEP_MAX_US = 1000,
    PIECE_ALIGN = 64,
};

static const double WATCH_S = 0.1; // between two looks at the other ranks

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

static void poll_peers(MPI_Comm ranks, double timeout_s, struct Peer *peers) {
    struct Peer mine = {.process = getpid()};
    int length;
    MPI_Get_processor_name(mine.node, &length);
    struct GuardThread *guard =
        guard_begin("the ranks' first exchange", job_rank(), timeout_s, true);
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, peers, sizeof mine, MPI_BYTE, ranks);
    guard_end(guard);
}

int mpi_start(struct MpiPlace *place, int rank, double timeout_s, struct Error *e) {
    int threads = MPI_THREAD_SINGLE;
    *place = (struct MpiPlace){0};
    struct GuardThread *guard = guard_begin("the start of MPI", rank, timeout_s, true);
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &threads);
    guard_end(guard);
    MPI_Comm_rank(MPI_COMM_WORLD, &place->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &place->size);
    if (threads < MPI_THREAD_MULTIPLE)
        return error_set(e, -ENOTSUP, E_MPI,
                         "this MPI allows calls from one thread only (level %d): install one with "
                         "MPI_THREAD_MULTIPLE",
                         threads);
    struct Peer *peers = base_alloc_zeroed((size_t)place->size * sizeof *peers);
    poll_peers(MPI_COMM_WORLD, timeout_s, peers);
    for (int r = 0; r < place->size; r++) {
        bool here = strcmp(peers[r].node, peers[place->rank].node) == 0;
        place->node_size += here;
        place->node_rank += here && r < place->rank;
    }
    free(peers);
    return 0;
}

// Rank 0 may be waiting for whoever reads what it printed.
void mpi_stop(int rank, double timeout_s) {
    struct GuardThread *guard = guard_begin("the end of MPI", rank, timeout_s, false);
    MPI_Finalize();
    guard_end(guard);
}

void mpi_share(uint64_t mine, uint64_t *all, double timeout_s) {
    MPI_Request request;
    int done = 0;
    struct Guard guard = guard_of("the agreement of all ranks", job_rank(), timeout_s, false);
    MPI_Iallgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done) {
        mpi_sleep_us(SLEEP_MAX_US);
        guard_check(&guard);
    }
}

// ---- exchanges ----

static void wait_all(struct MpiComm *c) {
    double limit = c->base.comm.timeout_s, look = base_seconds() + WATCH_S;
    struct Wait wait = wait_begin();
    unsigned pause = SLEEP_MIN_US;
    bool excused = false; // the missing, once
    int done;
    for (int i = 0;; i++) {
        MPI_Testall(2 * c->base.comm.size, c->request, &done, MPI_STATUSES_IGNORE);
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
        if (wait.looked > look) {
            mpi_watch(c);
            look = wait.looked + WATCH_S;
        }
    }
}

static void post(const struct Exchange *x, int tag) {
    int size = x->comm->comm.size, me = x->comm->comm.rank, bytes = (int)x->bytes;
    struct MpiComm *c = (struct MpiComm *)x->comm;
    MPI_Request *in = c->request, *out = in + size;
    for (int r = 0; r < size; r++) {
        in[r] = out[r] = MPI_REQUEST_NULL;
        if (r != me && x->recv && (x->from == FROM_ALL || x->from == r))
            MPI_Irecv(x->recv + (size_t)r * x->recv_step, bytes, MPI_BYTE, r, tag, c->ranks,
                      &in[r]);
    }
    for (int i = 1; i < size; i++) { // each rank begins with another, so that none is rushed
        int r = (me + i) % size;
        if (x->send)
            MPI_Isend(x->send + (size_t)r * x->send_step, bytes, MPI_BYTE, r, tag, c->ranks,
                      &out[r]);
    }
}

void mpi_exchange(const void *args) {
    const struct Exchange *x = args;
    struct MpiComm *c = (struct MpiComm *)x->comm;
    post(x, TAG_DATA);
    wait_all(c);
    exchange_operands(x);
}

void mpi_begin(const void *args) {
    const struct Begin *b = args;
    struct MpiComm *c = (struct MpiComm *)b->comm;
    char text[512];
    c->now = b->call;
    if (!c->check)
        return;
    c->all[c->base.comm.rank] = b->call;
    post(&(struct Exchange){.comm = &c->base,
                            .send = (const char *)&b->call,
                            .recv = (char *)c->all,
                            .recv_step = sizeof b->call,
                            .bytes = sizeof b->call,
                            .from = FROM_ALL},
         TAG_CALL);
    wait_all(c);
    if (!comm_calls_agree(&c->base.comm, c->all, text, sizeof text)) {
        mpi_give_way(c, 1);
        comm_fail(&c->base.comm, E_COLLECTIVES_DIFFER, "%s", text);
    }
}

// ---- the ranks' hosts ----

void mpi_compare(struct Comm *comm, struct CommCall call) {
    mpi_begin(&(struct Begin){(struct ExchangeComm *)comm, call});
}

void mpi_broadcast_round(struct Comm *comm, uint64_t mine, uint64_t *all) {
    struct MpiComm *c = (struct MpiComm *)comm;
    all[comm->rank] = mine;
    post(&(struct Exchange){.comm = &c->base,
                            .send = (const char *)&mine,
                            .recv = (char *)all,
                            .recv_step = sizeof mine,
                            .bytes = sizeof mine,
                            .from = FROM_ALL},
         TAG_CALL);
    wait_all(c);
}

void mpi_broadcast_host(struct Comm *comm, void *mem, size_t bytes, int root) {
    struct MpiComm *c = (struct MpiComm *)comm;
    post(&(struct Exchange){.comm = &c->base,
                            .send = comm->rank == root ? mem : NULL,
                            .recv = comm->rank == root ? NULL : mem,
                            .bytes = bytes,
                            .from = root},
         TAG_CALL);
    wait_all(c);
}

void mpi_close(struct Comm *comm) {
    struct MpiComm *c = (struct MpiComm *)comm;
    free(c->all);
    free(c->request);
    free(c->base.operand);
    free(c->process);
    if (c->own_pieces) {
        device_free_host(comm->device, c->base.out);
        device_free_host(comm->device, c->base.in);
    }
    if (c->split_off) {
        struct GuardThread *guard =
            guard_begin("the closing of a group", job_rank(), comm->timeout_s, true);
        MPI_Comm_free(&c->ranks);
        guard_end(guard);
    } else {
        pthread_mutex_destroy(c->telling);
        free(c->telling);
    }
    free(c);
}

// ---- opening ----

// Which ranks' processes can be watched: those of this machine, unless walls between containers
// hide them.
static void find_processes(struct MpiComm *c) {
    int size = c->base.comm.size, me = c->base.comm.rank;
    struct Peer *peers = base_alloc_zeroed((size_t)size * sizeof *peers);
    poll_peers(c->ranks, c->base.comm.timeout_s, peers);
    for (int r = 0; r < size; r++)
        if (r != me && strcmp(peers[r].node, peers[me].node) == 0)
            c->process[r] = (pid_t)peers[r].process;
    free(peers);
    struct GuardThread *guard =
        guard_begin("the opening of a group", job_rank(), c->base.comm.timeout_s, true);
    MPI_Barrier(c->ranks); // now all are there
    guard_end(guard);
    for (int r = 0; r < size; r++)
        if (mpi_is_gone(c, r))
            c->process[r] = 0;
}

static struct MpiComm *open_end(struct Device *device, const struct MpiSettings *settings,
                                const struct Block *staging, MPI_Comm ranks) {
    struct MpiComm *c = base_alloc_zeroed(sizeof *c);
    c->base.comm = (struct Comm){.ops = &exchange_ops,
                                 .device = device,
                                 .queue = QUEUE_COMM,
                                 .axis = AXIS_DP,
                                 .stride = 1,
                                 .timeout_s = settings->timeout_s};
    c->chunk_bytes = settings->chunk_bytes;
    c->check = settings->check;
    c->ranks = ranks;
    c->base.staging = staging;
    MPI_Comm_rank(ranks, &c->base.comm.rank);
    MPI_Comm_size(ranks, &c->base.comm.size);
    size_t size = (size_t)c->base.comm.size;
    c->base.piece = settings->chunk_bytes / size / PIECE_ALIGN * PIECE_ALIGN;
    CHECK(c->base.piece > 0, "chunks of %zu bytes for %zu ranks", settings->chunk_bytes, size);
    c->all = base_alloc_zeroed(size * sizeof *c->all);
    c->request = base_alloc_zeroed(2 * size * sizeof(MPI_Request));
    c->base.operand = base_alloc_zeroed(size * sizeof *c->base.operand);
    c->process = base_alloc_zeroed(size * sizeof *c->process);
    find_processes(c);
    return c;
}

static void open_pieces(struct MpiComm *c) {
    size_t bytes = (size_t)c->base.comm.size * c->base.piece;
    c->base.out = device_alloc_host(c->base.comm.device, bytes);
    c->base.in = device_alloc_host(c->base.comm.device, bytes);
}

struct Comm *comm_open_mpi(struct Device *device, const struct MpiSettings *settings,
                           const struct Block *staging) {
    struct MpiComm *c = open_end(device, settings, staging, MPI_COMM_WORLD);
    c->telling = base_alloc_zeroed(sizeof *c->telling);
    pthread_mutex_init(c->telling, NULL);
    c->own_pieces = true;
    if (!device->calls_may_wait)
        open_pieces(c);
    return &c->base.comm;
}

// The host's pieces serve both groups, as the staging does, where exchanges take turns in one
// queue.
struct Comm *mpi_split(struct Comm *comm, const struct CommSplit *split) {
    struct MpiComm *all = (struct MpiComm *)comm;
    const struct GridLine *line = &split->line;
    const struct Block *staging = split->staging ? split->staging : all->base.staging;
    struct MpiSettings settings = {comm->timeout_s, all->chunk_bytes, all->check};
    MPI_Comm ranks;
    struct GuardThread *guard =
        guard_begin("the opening of a group", job_rank(), comm->timeout_s, true);
    MPI_Comm_split(all->ranks, line->origin, line->place, &ranks);
    guard_end(guard);
    struct MpiComm *c = open_end(comm->device, &settings, staging, ranks);
    c->base.piece =
        size_min(c->base.piece, (size_t)comm->size * all->base.piece / (size_t)line->size);
    c->telling = all->telling;
    c->split_off = true;
    c->own_pieces = split->staging != NULL;
    if (!c->own_pieces) {
        c->base.out = all->base.out;
        c->base.in = all->base.in;
    } else if (!comm->device->calls_may_wait) {
        open_pieces(c);
    }
    return &c->base.comm;
}
