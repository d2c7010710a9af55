// The group of one rank. A sum over one rank is its own operand and a gather of one shard is the
// shard: nothing moves between ranks, and if shard and whole are different buffers, a collective is
// a copy, or an addition.
#include "zero/comm/comm.h"

#include "kernels/kernels.h"

#include <stdlib.h>

struct SelfComm {
    struct Comm comm;
    void *operand; // of the sum, read when it runs
};

// Copies only in a group of one rank: a dry group of several moves nothing.
static void copy_shard(struct Comm *c, void *dst, const void *src, size_t bytes) {
    if (dst != src && c->size == 1)
        device_copy(c->device, c->queue, dst, src, bytes);
}

static void self_all_gather(struct Comm *c, void *whole, const void *shard, size_t bytes) {
    comm_call(c, COMM_ALL_GATHER, F32, bytes);
    copy_shard(c, whole, shard, bytes);
    comm_queued(c);
}

struct SetOperand {
    struct SelfComm *comm;
    const void *operand;
};
static void set_operand(const void *args) {
    const struct SetOperand *s = args;
    s->comm->operand = (void *)s->operand;
}

static void add_to_shard(struct Comm *c, void *shard, const void *whole, size_t n,
                         enum Dtype dtype) {
    struct SelfComm *self = (struct SelfComm *)c;
    struct SetOperand set = {self, whole};
    if (c->device->calls_may_wait) // then kernels read their operands when they run
        device_call(c->device, c->queue, set_operand, &set, sizeof set);
    else
        set_operand(&set);
    c->device->kernels->rank_sum(c->device->queue[c->queue],
                                 &(struct RankSum){n, 0, 1, dtype, &self->operand, shard, true});
}

static void self_reduce_scatter(struct Comm *c, void *shard, const void *whole, size_t n,
                                enum Dtype dtype, bool accumulate) {
    comm_call(c, COMM_REDUCE_SCATTER, dtype, n * dtype_size(dtype));
    if (accumulate && c->size == 1)
        add_to_shard(c, shard, whole, n, dtype);
    else
        copy_shard(c, shard, whole, n * dtype_size(dtype));
    comm_queued(c);
}

static void self_all_reduce(struct Comm *c, void *whole, size_t n, enum Dtype dtype) {
    comm_call(c, COMM_ALL_REDUCE, dtype, n * dtype_size(dtype));
    (void)whole; // it is the sum already
    comm_queued(c);
}

static void self_all_to_all(struct Comm *c, void *to, const void *from, size_t bytes) {
    comm_call(c, COMM_ALL_TO_ALL, F32, bytes);
    copy_shard(c, to, from, bytes);
    comm_queued(c);
}

// Only in a dry group: a rank alone has no neighbour to exchange with.
static void dry_sendrecv(struct Comm *c, void *to, const void *from, size_t bytes) {
    (void)to;
    comm_call_swap(c, bytes, from != NULL);
    comm_queued(c);
}

static void self_close(struct Comm *c) {
    free(c);
}

static const struct CommOps self_ops = {
    .all_gather = self_all_gather,
    .reduce_scatter = self_reduce_scatter,
    .all_reduce = self_all_reduce,
    .all_to_all = self_all_to_all,
    .sendrecv = dry_sendrecv,
    .abort = comm_exit,
    .close = self_close,
};

struct Comm *comm_open_self(struct Device *device) {
    struct SelfComm *c = base_alloc_zeroed(sizeof *c);
    c->comm.ops = &self_ops;
    c->comm.device = device;
    c->comm.queue = QUEUE_COMM;
    c->comm.axis = AXIS_DP;
    c->comm.size = c->comm.stride = 1;
    return &c->comm;
}

struct Comm *comm_open_dry(struct Device *device, int rank, int size) {
    struct Comm *c = comm_open_self(device);
    c->rank = rank;
    c->size = size;
    return c;
}
