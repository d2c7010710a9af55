// The group of one rank. A sum over one rank is its own operand and a gather of one shard is the
// shard, so a collective moves nothing between ranks; where shard and whole are different buffers,
// it is a copy.
#include "zero/comm.h"

#include <stdlib.h>

static void copy_shard(struct Comm *c, void *dst, const void *src, size_t n, enum Dtype dtype,
                       struct Stream *s) {
    if (dst != src)
        c->device->ops->copy(s, dst, src, n * dtype_size(dtype));
}

static void self_all_reduce(struct Comm *c, void *whole, size_t n, enum Dtype dtype,
                            struct Stream *s) {
    copy_shard(c, whole, whole, n, dtype, s);
}

static void self_broadcast(struct Comm *c, void *mem, size_t bytes, int root, struct Stream *s) {
    CHECK(root == 0, "broadcast from rank %d in a group of one (%zu bytes at %p)", root, bytes,
          mem);
    (void)c;
    (void)s;
}

static void self_barrier(struct Comm *c) {
    CHECK(c->size == 1, "a group of %d ranks", c->size);
}

static void self_close(struct Comm *c) {
    free(c);
}

static const struct CommOps self_ops = {
    .all_gather = copy_shard,
    .reduce_scatter = copy_shard,
    .all_reduce = self_all_reduce,
    .broadcast = self_broadcast,
    .barrier = self_barrier,
    .close = self_close,
};

struct Comm *comm_open_self(struct Device *device) {
    struct Comm *c = base_alloc_zeroed(sizeof *c);
    c->ops = &self_ops;
    c->device = device;
    c->size = 1;
    return c;
}
