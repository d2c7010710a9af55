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
// Where groups of ranks are replicas, that is the sum over one of them; the last micro-batch's is
// then reduced over the replicas (Zhang et al. 2022, "MiCS", section 3). Both ends of a pipeline
// make a part of the gradient of a group that both use (zero/pipe/pipe.h).
//
//   comm -> compute   bucket drained   a unit's gradient overwrites one that is being reduced
//
// The updates wait for all of it, through the reports that follow on the comm queue (step.c). Read
// next: opt.c.
#include "zero/zero.h"
#include "zero/report.h"

#include "model/grad.h"

bool grads_last_micro(const struct Zero *z) {
    return z->micro + 1 == z->plan.nmicro;
}

// ---- before the backward pass ----

void grads_keep_whole(struct Zero *z, const struct Visit *v) {
    z->dw[v->group] = (struct Grad){z->state[v->group].grad.mem, z->micro > 0};
}

// A group that two units use has its bucket from the later one's backward pass on.
void grads_take_bucket(struct Zero *z, const struct Visit *v) {
    struct Slot *bucket = slots_find(&z->buckets, v->group);
    if (!bucket) {
        bucket = slots_take(&z->buckets, v->group);
        mark_wait(&bucket->drained, z->device, QUEUE_COMPUTE);
    }
    z->dw[v->group] = (struct Grad){bucket->block.mem, false};
}

// ---- after it ----

void grads_hand_over(struct Zero *z, enum Queue to) {
    device_record(z->device, QUEUE_COMPUTE, z->backward_done);
    device_wait(z->device, to, z->backward_done);
}

// The sum of n elements over ranks that have a part of it each; NULL: there are no others.
static void add_parts(struct Zero *z, struct Comm *c, void *mem, size_t n) {
    if (c)
        c->ops->all_reduce(c, mem, n / (size_t)c->size, z->plan.grad.dtype);
}

// Gradients are summed over all data-parallel ranks; their placement says only who keeps the sum.
void grads_reduce_whole(struct Zero *z, int g, void *whole, bool all) {
    size_t n = zero_shard_numel(z, g);
    void *shard = dtype_at(whole, z->plan.grad.dtype, n * (size_t)z->dp->rank);
    z->parts->complete(z, g, whole);
    grads_hand_over(z, QUEUE_COMM);
    add_parts(z, zero_ends(z, g), whole, z->params->group[g].padded);
    if (all)
        z->dp->ops->all_reduce(z->dp, whole, n, z->plan.grad.dtype);
    else
        wire_reduce(z->wire, z->dp, shard, whole, n, z->plan.grad.dtype, false);
    add_parts(z, z->replicas, shard, n);
    zero_tell_squares(z, g, shard);
}

void grads_all_reduce(struct Zero *z, const struct Visit *v) {
    if (v->gradient_ends && grads_last_micro(z))
        grads_reduce_whole(z, v->group, z->state[v->group].grad.mem, true);
}

void grads_reduce_scatter(struct Zero *z, const struct Visit *v) {
    if (v->gradient_ends && grads_last_micro(z))
        grads_reduce_whole(z, v->group, z->state[v->group].grad.mem, false);
}

void grads_give_up(struct Zero *z, struct Slot *bucket) {
    z->dw[bucket->owner] = (struct Grad){0};
    bucket->owner = -1;
}

void grads_add_up(struct Zero *z, int g, void *shard) {
    struct Slot *bucket = slots_find(&z->buckets, g);
    wire_reduce(z->wire, z->dp, shard, bucket->block.mem, zero_shard_numel(z, g),
                z->plan.grad.dtype, z->micro > 0);
    mark_record(&bucket->drained, z->device, QUEUE_COMM);
    grads_give_up(z, bucket);
    if (!grads_last_micro(z))
        return;
    add_parts(z, zero_ends(z, g), shard, zero_shard_numel(z, g));
    add_parts(z, z->replicas, shard, zero_shard_numel(z, g));
    zero_tell_squares(z, g, shard);
}

void grads_reduce_each(struct Zero *z, const struct Visit *v) {
    if (!v->gradient_ends)
        return;
    z->parts->complete(z, v->group, slots_find(&z->buckets, v->group)->block.mem);
    grads_hand_over(z, QUEUE_COMM);
    grads_add_up(z, v->group, z->state[v->group].grad.mem);
}
