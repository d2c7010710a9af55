// Collectives between ranks that are processes: each is made of EXCHANGES (comm/exchange.h). In
// one, every rank sends a piece to each other rank and receives one from each. Larger messages go
// piece by piece, so that what a rank needs besides its own buffers is staging for one exchange,
// however large the model is:
//
//   reduce_scatter   exchange: the others' pieces of my shard into staging; sum them in rank order
//   all_gather       exchange: my shard's piece to all, theirs into their places in `whole`
//   all_reduce       reduce_scatter in place, then all_gather
//   all_to_all       exchange: each rank's piece to it, theirs into their places in `to`
//   broadcast        the root only sends, the others receive from it alone
//   swap             exchange: mine to the other of two, its to me; or one of these
//   barrier          an exchange of nothing
//
// MPI's own reductions promise no order of summation; this one gives the bits of comm/thread.c.
//
// MPI sees the host's memory alone. On a GPU an exchange is three steps in the queue: copies
// of what is sent into pinned memory, the exchange there, and copies of what came to its place.
//
// Read next: comm/mpi.c, for what an exchange does.
#include "zero/comm/exchange.h"

#include "kernels/kernels.h"

void exchange_operands(const struct Exchange *x) {
    for (int r = 0; x->own && r < x->comm->comm.size; r++)
        x->comm->operand[r] = r == x->comm->comm.rank ? x->own : x->recv + (size_t)r * x->recv_step;
}

static void stage_out(const struct Exchange *x) {
    struct ExchangeComm *c = x->comm;
    int copies = !x->send || !x->bytes ? 0 : x->send_step ? c->comm.size : 1;
    for (int r = 0; r < copies; r++)
        if (copies == 1 || r != c->comm.rank)
            device_copy(c->comm.device, c->comm.queue, c->out + (size_t)r * c->piece,
                        x->send + (size_t)r * x->send_step, x->bytes);
}

static void stage_in(const struct Exchange *x) {
    struct ExchangeComm *c = x->comm;
    for (int r = 0; r < c->comm.size && x->recv && x->bytes; r++)
        if (r != c->comm.rank && (x->from == FROM_ALL || x->from == r))
            device_copy(c->comm.device, c->comm.queue, x->recv + (size_t)r * x->recv_step,
                        c->in + (size_t)r * c->piece, x->bytes);
}

// Where calls may not wait, kernels look for their operands when they are queued.
static void queue_exchange(const struct Exchange *x) {
    struct ExchangeComm *c = x->comm;
    struct Exchange host = *x;
    if (c->out) {
        stage_out(x);
        host.send = x->send ? c->out : NULL;
        host.send_step = x->send_step ? c->piece : 0;
        host.recv = x->recv ? c->in : NULL;
        host.recv_step = c->piece;
        host.own = NULL;
    }
    device_call(c->comm.device, c->comm.queue, mpi_exchange, &host, sizeof host);
    if (c->out) {
        stage_in(x);
        exchange_operands(x);
    }
}

static struct ExchangeComm *queue_begin(struct Comm *comm, struct CommCall call) {
    struct Begin b = {(struct ExchangeComm *)comm, call};
    device_call(comm->device, comm->queue, mpi_begin, &b, sizeof b);
    return b.comm;
}

// ---- collectives ----

// The shards, `bytes` each; this rank's is in its place already.
static void queue_gather(struct ExchangeComm *c, char *whole, size_t bytes) {
    for (size_t at = 0; at < bytes; at += c->piece)
        queue_exchange(&(struct Exchange){.comm = c,
                                          .send = whole + (size_t)c->comm.rank * bytes + at,
                                          .recv = whole + at,
                                          .recv_step = bytes,
                                          .bytes = size_min(c->piece, bytes - at),
                                          .from = FROM_ALL});
}

static void queue_sum(struct ExchangeComm *c, void *shard, const void *whole, size_t n,
                      enum Dtype dtype, bool accumulate) {
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

static void exchange_all_gather(struct Comm *comm, void *whole, const void *shard, size_t bytes) {
    struct ExchangeComm *c = queue_begin(comm, comm_call(comm, COMM_ALL_GATHER, F32, bytes));
    char *place = (char *)whole + (size_t)comm->rank * bytes;
    if (place != shard)
        device_copy(comm->device, comm->queue, place, shard, bytes);
    queue_gather(c, whole, bytes);
    comm_queued(comm);
}

static void exchange_reduce_scatter(struct Comm *comm, void *shard, const void *whole, size_t n,
                                    enum Dtype dtype, bool accumulate) {
    struct CommCall call = comm_call(comm, COMM_REDUCE_SCATTER, dtype, n * dtype_size(dtype));
    queue_sum(queue_begin(comm, call), shard, whole, n, dtype, accumulate);
    comm_queued(comm);
}

static void exchange_all_reduce(struct Comm *comm, void *whole, size_t n, enum Dtype dtype) {
    size_t bytes = n * dtype_size(dtype);
    struct ExchangeComm *c = queue_begin(comm, comm_call(comm, COMM_ALL_REDUCE, dtype, bytes));
    queue_sum(c, (char *)whole + (size_t)comm->rank * bytes, whole, n, dtype, false);
    queue_gather(c, whole, bytes);
    comm_queued(comm);
}

static void exchange_all_to_all(struct Comm *comm, void *to, const void *from, size_t bytes) {
    struct ExchangeComm *c = queue_begin(comm, comm_call(comm, COMM_ALL_TO_ALL, F32, bytes));
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

static void exchange_broadcast(struct Comm *comm, void *mem, size_t bytes, int root) {
    struct ExchangeComm *c = queue_begin(comm, comm_call(comm, COMM_BROADCAST, F32, bytes));
    if (comm->rank != root)
        comm_did_not_send(comm, COMM_BROADCAST, bytes);
    for (size_t at = 0; at < bytes; at += c->piece) {
        char *piece = (char *)mem + at;
        queue_exchange(&(struct Exchange){.comm = c,
                                          .send = comm->rank == root ? piece : NULL,
                                          .recv = comm->rank == root ? NULL : piece,
                                          .bytes = size_min(c->piece, bytes - at),
                                          .from = root});
    }
    comm_queued(comm);
}

static void exchange_swap(struct Comm *comm, void *to, const void *from, size_t bytes) {
    struct ExchangeComm *c = queue_begin(comm, comm_call(comm, COMM_SWAP, F32, bytes));
    if (!from)
        comm_did_not_send(comm, COMM_SWAP, bytes);
    for (size_t at = 0; at < bytes; at += c->piece)
        queue_exchange(&(struct Exchange){.comm = c,
                                          .send = from ? (const char *)from + at : NULL,
                                          .recv = to ? (char *)to + at : NULL,
                                          .bytes = size_min(c->piece, bytes - at),
                                          .from = FROM_ALL});
    comm_queued(comm);
}

static void exchange_barrier(struct Comm *comm) {
    struct ExchangeComm *c = queue_begin(comm, comm_call(comm, COMM_BARRIER, F32, 0));
    queue_exchange(&(struct Exchange){
        .comm = c, .send = c->staging->mem, .recv = c->staging->mem, .from = FROM_ALL});
    comm_queued(comm);
}

const struct CommOps exchange_ops = {
    .all_gather = exchange_all_gather,
    .reduce_scatter = exchange_reduce_scatter,
    .all_reduce = exchange_all_reduce,
    .all_to_all = exchange_all_to_all,
    .broadcast = exchange_broadcast,
    .sendrecv = exchange_swap,
    .barrier = exchange_barrier,
    .compare = mpi_compare,
    .share = mpi_broadcast_round,
    .broadcast_host = mpi_broadcast_host,
    .split = mpi_split,
    .claim = mpi_claim,
    .heartbeat = mpi_heartbeat,
    .collect_progress = mpi_collect_progress,
    .abort = mpi_abort,
    .close = mpi_close,
};
