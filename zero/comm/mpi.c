// Collectives between ranks that are processes, over MPI, in the host's memory.
//
// MPI itself is asked for little: every rank sends a piece to each other rank and receives one from
// each, with non-blocking sends and receives. comm/exchange.c makes all collectives of that.
//
// All of it runs on the comm queue's worker. It waits by asking MPI and sleeping in between, since
// the machine's cores are there for the ranks' kernels. While it waits it watches the others, since
// MPI would wait for ever: for a rank whose process is gone, for one that says that it has failed,
// and for the time-out. One rank tells, and MPI_Abort ends the job.
#include "zero/comm/mpi.h"

#include "zero/comm/exchange.h"
#include "zero/comm/process.h"

#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG_DATA, TAG_CALL, TAG_FAILED, TAG_ROLL, TAG_HERE };

enum {
    EAGER_TRIES = 50, // how often to ask before the first sleep
    SLEEP_MIN_US = 20,
    SLEEP_MAX_US = 1000,
    PIECE_ALIGN = 64,
};

static const double WATCH_S = 0.1; // between two looks at the other ranks
static const double ROLL_S = 1;    // for an answer to a roll call: ten looks of the other's watcher

struct MpiComm {
    struct ExchangeComm base;
    struct MpiSettings settings;
    struct CommCall now;     // the collective at hand
    struct CommCall *all;    // (size): every rank's
    MPI_Request *request;    // (2, size): receives from, then sends to each rank
    pid_t *process;          // (size): 0 where it cannot be seen from here
    pthread_mutex_t telling; // of the thread of this rank that ends the process
};

// ---- the job ----

struct Peer {
    int64_t process;
    char node[MPI_MAX_PROCESSOR_NAME];
};

static void ask_peers(struct Peer *peers) {
    struct Peer mine = {.process = getpid()};
    int length;
    MPI_Get_processor_name(mine.node, &length);
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, peers, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
}

int mpi_start(struct MpiPlace *place, struct Error *e) {
    int threads = MPI_THREAD_SINGLE;
    *place = (struct MpiPlace){0};
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &place->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &place->size);
    if (threads < MPI_THREAD_MULTIPLE)
        return error_set(e, -ENOTSUP,
                         "this MPI lets only one thread speak (level %d): expected one with "
                         "MPI_THREAD_MULTIPLE",
                         threads);
    struct Peer *peers = base_alloc_zeroed((size_t)place->size * sizeof *peers);
    ask_peers(peers);
    for (int r = 0; r < place->size; r++) {
        bool here = strcmp(peers[r].node, peers[place->rank].node) == 0;
        place->node_size += here;
        place->node_rank += here && r < place->rank;
    }
    free(peers);
    return 0;
}

void mpi_stop(void) {
    MPI_Finalize();
}

static void sleep_us(unsigned us) {
    nanosleep(&(struct timespec){us / 1000000, (long)(us % 1000000) * 1000}, NULL);
}

void mpi_share(uint64_t mine, uint64_t *all) {
    MPI_Request request;
    int done = 0;
    MPI_Iallgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done)
        sleep_us(SLEEP_MAX_US);
}

// ---- failing ----

static void end_now(int number) {
    (void)number;
    _exit(2);
}

// Says to all others that this rank ends the job: whoever waits for it then ends, too, even where
// the launcher leaves it time to save what can no longer be saved. MPI_Abort asks the launcher to
// end the job, and that may be busy doing so: the process does not wait long for the answer.
void mpi_abort(struct Comm *comm) {
    for (int r = 0; r < comm->size; r++) {
        MPI_Request ignored;
        if (r != comm->rank)
            MPI_Isend(NULL, 0, MPI_BYTE, r, TAG_FAILED, MPI_COMM_WORLD, &ignored);
    }
    for (int i = 0, found; i < 20; i++) { // time for MPI to send
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_FAILED, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        sleep_us(5000);
    }
    signal(SIGALRM, end_now);
    alarm(1);
    MPI_Abort(MPI_COMM_WORLD, 2);
    _exit(2);
}

static bool is_gone(const struct MpiComm *c, int rank) {
    return c->process[rank] && process_is_gone(c->process[rank]);
}

// Another rank has told why the job ends.
static void leave_if_failed(struct MpiComm *c) {
    int failed;
    MPI_Iprobe(MPI_ANY_SOURCE, TAG_FAILED, MPI_COMM_WORLD, &failed, MPI_STATUS_IGNORE);
    if (failed)
        comm_abort(&c->base.comm);
}

// All ranks see a failure at about the same time, and one line is enough: the lowest rank tells,
// and the next one only where nothing comes from it. A rank that waits for many may wait for some
// that wait for one themselves; so who misses more tells later. Of a rank's threads one comes back.
static void give_way(struct MpiComm *c, int missing) {
    pthread_mutex_lock(&c->telling); // until the process ends
    double seconds = fmin(0.03 * c->base.comm.rank, 0.3) + fmin(0.4 * (missing - 1), 1.2);
    for (double until = base_seconds() + seconds; base_seconds() < until; sleep_us(5000))
        leave_if_failed(c);
}

static bool is_pending(MPI_Request request) {
    int done = 1;
    if (request != MPI_REQUEST_NULL)
        MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
    return !done;
}

// Names the ranks that `missing` marks.
static _Noreturn void fail_for(struct MpiComm *c, const bool *missing, const char *what,
                               double seconds) {
    char ranks[256] = "", after[32] = "";
    int length = 0;
    for (int r = 0; r < c->base.comm.size && length < 200; r++)
        if (missing[r])
            length += snprintf(ranks + length, sizeof ranks - (size_t)length, " %d", r);
    if (seconds > 0)
        snprintf(after, sizeof after, " for %g s", seconds);
    comm_fail(&c->base.comm, "collective %llu, %s of %llu bytes: %s%s%s",
              (unsigned long long)c->now.sequence, collective_name(c->now.collective),
              (unsigned long long)c->now.bytes, what, ranks, after);
}

// After the time-out.
static _Noreturn void give_up(struct MpiComm *c) {
    int size = c->base.comm.size, count = 0;
    bool *missing = base_alloc_zeroed((size_t)size * sizeof *missing);
    for (int r = 0; r < size; r++) {
        missing[r] = is_pending(c->request[r]);
        count += missing[r];
    }
    for (int r = 0; r < size && !count; r++) // all has come, but not all has gone
        missing[r] = is_pending(c->request[size + r]);
    give_way(c, count);
    fail_for(c, missing, "no sign of rank", c->base.comm.timeout_s);
}

static int count_gone(struct MpiComm *c, bool *gone) {
    int count = 0;
    for (int r = 0; r < c->base.comm.size; r++) {
        gone[r] = is_gone(c, r);
        count += gone[r];
    }
    return count;
}

static void watch(struct MpiComm *c) {
    leave_if_failed(c);
    bool *missing = base_alloc_zeroed((size_t)c->base.comm.size * sizeof *missing);
    if (count_gone(c, missing)) {
        give_way(c, 1);
        fail_for(c, missing, "no process any more of rank", 0);
    }
    free(missing);
}

// ---- exchanges ----

static void wait_all(struct MpiComm *c) {
    double now = base_seconds(), deadline = now + c->base.comm.timeout_s, look = now + WATCH_S;
    unsigned pause = SLEEP_MIN_US;
    int done;
    for (int i = 0;; i++) {
        MPI_Testall(2 * c->base.comm.size, c->request, &done, MPI_STATUSES_IGNORE);
        if (done)
            return;
        if (i < EAGER_TRIES)
            continue;
        sleep_us(pause);
        pause = pause < SLEEP_MAX_US / 2 ? pause * 2 : SLEEP_MAX_US;
        now = base_seconds();
        if (now > deadline)
            give_up(c);
        if (now > look) {
            watch(c);
            look = now + WATCH_S;
        }
    }
}

static void post(const struct Exchange *x, int tag) {
    int size = x->comm->comm.size, me = x->comm->comm.rank, bytes = (int)x->bytes;
    MPI_Request *in = ((struct MpiComm *)x->comm)->request, *out = in + size;
    for (int r = 0; r < size; r++) {
        in[r] = out[r] = MPI_REQUEST_NULL;
        if (r != me && x->recv && (x->from == FROM_ALL || x->from == r))
            MPI_Irecv(x->recv + (size_t)r * x->recv_step, bytes, MPI_BYTE, r, tag, MPI_COMM_WORLD,
                      &in[r]);
    }
    for (int i = 1; i < size; i++) { // each rank begins with another, so that none is rushed
        int r = (me + i) % size;
        if (x->send)
            MPI_Isend(x->send + (size_t)r * x->send_step, bytes, MPI_BYTE, r, tag, MPI_COMM_WORLD,
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
    if (!c->settings.check)
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
    if (!comm_calls_agree(c->all, c->base.comm.size, text, sizeof text)) {
        give_way(c, 1);
        comm_fail(&c->base.comm, "%s", text);
    }
}

// ---- the ranks' hosts ----

void mpi_compare(struct Comm *comm, struct CommCall call) {
    mpi_begin(&(struct Begin){(struct ExchangeComm *)comm, call});
}

void mpi_hand_round(struct Comm *comm, uint64_t mine, uint64_t *all) {
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

void mpi_claim(struct Comm *comm) {
    give_way((struct MpiComm *)comm, 1);
}

// Says to all who have called the roll how far this rank is.
static void answer(uint64_t begun) {
    MPI_Message call;
    MPI_Status from;
    int found;
    while (MPI_Improbe(MPI_ANY_SOURCE, TAG_ROLL, MPI_COMM_WORLD, &found, &call, &from), found) {
        MPI_Mrecv(NULL, 0, MPI_BYTE, &call, &from);
        MPI_Send(&begun, 1, MPI_UINT64_T, from.MPI_SOURCE, TAG_HERE, MPI_COMM_WORLD);
    }
}

int mpi_attend(struct Comm *comm, uint64_t begun, bool *gone) {
    struct MpiComm *c = (struct MpiComm *)comm;
    leave_if_failed(c);
    answer(begun);
    return count_gone(c, gone);
}

// What is under way when it ends stays so: the process ends, too.
void mpi_roll_call(struct Comm *comm, uint64_t mine, uint64_t *begun) {
    size_t size = (size_t)comm->size;
    uint64_t *said = base_alloc(size * sizeof *said);
    MPI_Request *in = base_alloc(size * sizeof *in), ignored;
    int done = 0;
    for (int r = 0; r < comm->size; r++) {
        said[r] = r == comm->rank ? mine : COMM_NO_SIGN;
        in[r] = MPI_REQUEST_NULL;
        if (r == comm->rank)
            continue;
        MPI_Irecv(&said[r], 1, MPI_UINT64_T, r, TAG_HERE, MPI_COMM_WORLD, &in[r]);
        MPI_Isend(NULL, 0, MPI_BYTE, r, TAG_ROLL, MPI_COMM_WORLD, &ignored);
    }
    for (double until = base_seconds() + ROLL_S; !done && base_seconds() < until; sleep_us(5000)) {
        MPI_Testall(comm->size, in, &done, MPI_STATUSES_IGNORE);
        leave_if_failed((struct MpiComm *)comm);
        answer(mine);
    }
    for (int r = 0; r < comm->size; r++)
        begun[r] = is_pending(in[r]) ? COMM_NO_SIGN : said[r];
}

void mpi_close(struct Comm *comm) {
    struct MpiComm *c = (struct MpiComm *)comm;
    free(c->all);
    free(c->request);
    free(c->base.operand);
    device_free_host(comm->device, c->base.out);
    device_free_host(comm->device, c->base.in);
    free(c->process);
    pthread_mutex_destroy(&c->telling);
    free(c);
}

// ---- opening ----

// Which ranks' processes can be watched: those of this machine, unless walls between containers
// hide them.
static void find_processes(struct MpiComm *c) {
    struct Peer *peers = base_alloc_zeroed((size_t)c->base.comm.size * sizeof *peers);
    ask_peers(peers);
    for (int r = 0; r < c->base.comm.size; r++)
        if (r != c->base.comm.rank && strcmp(peers[r].node, peers[c->base.comm.rank].node) == 0)
            c->process[r] = (pid_t)peers[r].process;
    free(peers);
    MPI_Barrier(MPI_COMM_WORLD); // now all are there
    for (int r = 0; r < c->base.comm.size; r++)
        if (is_gone(c, r))
            c->process[r] = 0;
}

struct Comm *comm_open_mpi(struct Device *device, const struct MpiSettings *settings,
                           const struct Block *staging) {
    struct MpiComm *c = base_alloc_zeroed(sizeof *c);
    c->base.comm = (struct Comm){.ops = &exchange_ops,
                                 .device = device,
                                 .queue = QUEUE_COMM,
                                 .axis = AXIS_DP,
                                 .timeout_s = settings->timeout_s};
    c->settings = *settings;
    pthread_mutex_init(&c->telling, NULL);
    c->base.staging = staging;
    MPI_Comm_rank(MPI_COMM_WORLD, &c->base.comm.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->base.comm.size);
    size_t size = (size_t)c->base.comm.size;
    c->base.piece = settings->chunk_bytes / size / PIECE_ALIGN * PIECE_ALIGN;
    CHECK(c->base.piece > 0, "chunks of %zu bytes for %zu ranks", settings->chunk_bytes, size);
    c->all = base_alloc_zeroed(size * sizeof *c->all);
    c->request = base_alloc_zeroed(2 * size * sizeof(MPI_Request));
    c->base.operand = base_alloc_zeroed(size * sizeof *c->base.operand);
    c->process = base_alloc_zeroed(size * sizeof *c->process);
    if (!device->calls_may_wait) {
        c->base.out = device_alloc_host(device, size * c->base.piece);
        c->base.in = device_alloc_host(device, size * c->base.piece);
    }
    find_processes(c);
    return &c->base.comm;
}
