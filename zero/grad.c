// Gradients: where a unit leaves them, how they are reduced over ranks, and their norm.
//
// A group's gradient is complete after the backward pass of the last unit that uses it. From then
// on it is the comm queue's: it reduces the gradient over the ranks and, right behind, sums the
// squares of this rank's shard, while compute goes on with the next unit's backward pass. There are
// two ways:
//
//   the whole gradient is kept   micro-batches add to it; it is reduced once, in the last one
//   only a shard is kept         each micro-batch's gradient is made in a bucket, reduced at once,
//                                and added to the shard; the bucket is free for the next unit
//
//   compute -> comm   backward_done   a gradient is complete
//   comm -> compute   filled          a bucket has been reduced and may be written again
//
// The update waits for all of it, through the reports that follow on the comm queue (step.c).
//
// Read next: opt.c.
#include "zero/zero.h"

#include "model/grad.h"

// The first micro-batch of a step overwrites it.
void grads_resident(struct Zero *z, int u, int g) {
    params_resident(z, u, g);
    z->dw[g] = (struct Grad){z->state[g].grad.mem, z->micro > 0};
}

// The tied group has its bucket from the head's backward pass to the embedding's.
void grads_bucket(struct Zero *z, int u, int g) {
    (void)u;
    struct Slot *slot = slots_find(&z->buckets, g);
    if (!slot) {
        slot = slots_take(&z->buckets, g);
        device_wait(z->device, QUEUE_COMPUTE, slot->filled);
    }
    z->dw[g] = (struct Grad){slot->block.mem, false};
}

// Units run backward, so a group's last use is its lowest unit; group g's is unit g
// (params_unit_group).
static bool is_last_use(int u, int g) {
    return u == g;
}

static bool is_last_micro(const struct Zero *z) {
    return z->micro + 1 == z->plan.nmicro;
}

// The squared norm of this rank's shard, for the norm of all: see struct RankReport.
static void sum_squares(struct Zero *z, int g, const void *shard) {
    struct Device *d = z->device;
    d->kernels->sum(d->queue[QUEUE_COMM], &(struct Sum){
                                              .n = zero_shard_numel(z, g),
                                              .dtype = z->plan.grad.dtype,
                                              .x = shard,
                                              .square = true,
                                              .out = &zero_report(z)->squares[g],
                                          });
}

static void hand_over(struct Zero *z) {
    device_record(z->device, QUEUE_COMPUTE, z->backward_done);
    device_wait(z->device, QUEUE_COMM, z->backward_done);
}

static void *own_shard(struct Zero *z, int g) {
    size_t begin = zero_shard_numel(z, g) * (size_t)z->dp->rank;
    return dtype_at(z->state[g].grad.mem, z->plan.grad.dtype, begin);
}

void grads_all_reduce_at_end(struct Zero *z, int u, int g) {
    if (!is_last_use(u, g) || !is_last_micro(z))
        return;
    hand_over(z);
    z->dp->ops->all_reduce(z->dp, z->state[g].grad.mem, zero_shard_numel(z, g), z->plan.grad.dtype);
    sum_squares(z, g, own_shard(z, g));
}

void grads_reduce_at_end(struct Zero *z, int u, int g) {
    if (!is_last_use(u, g) || !is_last_micro(z))
        return;
    hand_over(z);
    z->dp->ops->reduce_scatter(z->dp, own_shard(z, g), z->state[g].grad.mem, zero_shard_numel(z, g),
                               z->plan.grad.dtype, false);
    sum_squares(z, g, own_shard(z, g));
}

void grads_reduce_each(struct Zero *z, int u, int g) {
    if (!is_last_use(u, g))
        return;
    struct Slot *slot = slots_find(&z->buckets, g);
    hand_over(z);
    z->dp->ops->reduce_scatter(z->dp, z->state[g].grad.mem, slot->block.mem, zero_shard_numel(z, g),
                               z->plan.grad.dtype, z->micro > 0);
    device_record(z->device, QUEUE_COMM, slot->filled);
    slot->group = -1;
    z->dw[g] = (struct Grad){0};
    if (is_last_micro(z))
        sum_squares(z, g, z->state[g].grad.mem);
}
