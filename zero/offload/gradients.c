// Gradients of groups that the host updates: they are kept in host memory.
//
// Such a gradient is made in a bucket at every stage, and leaves as soon as it is reduced: only
// some buckets of gradient are ever on the device. With accumulation the sum so far comes back to
// be added to, whole or as a shard; the host could add as well, but would round the sum once more.
//
//   in -> compute         bucket arrived    a unit adds to a sum that has not come yet
//   in -> comm            shard arrived     a reduction adds to a sum that has not come yet
//   comm -> out           gradient reduced  a gradient leaves before it is reduced
//   out -> compute, in    bucket drained    the next gradient, or sum, overwrites one that leaves
//   out -> in, comm       shard drained     the next shard, or sum, overwrites one that leaves
//
// Called through struct GroupOps (serve.c). Read next: update.c.
#include "model/grad.h"
#include "zero/offload/offload.h"
#include "zero/report.h"

int offload_turn(const struct Zero *z) {
    return offload_of(z)->options.delayed ? (int)(z->step % 2) : 0;
}

struct Block *offload_grad(struct Zero *z, int g, int turn) {
    return turn ? &offload_of(z)->group[g].second_grad : &z->state[g].grad;
}

// Elements [begin, begin + n) of a group, between their store and `mem`.
static struct Move move_of(struct Zero *z, int g, size_t begin, size_t n, void *mem) {
    size_t size = dtype_size(z->plan.grad.dtype);
    return (struct Move){.store = offload_grad(z, g, offload_turn(z)),
                         .offset = (begin - z->state[g].grad_begin) * size,
                         .bytes = n * size,
                         .mem = mem};
}

static void bring_sum(struct Zero *z, struct Slot *slot, const struct Move *m) {
    mark_wait(&slot->drained, z->device, QUEUE_IN); // bucket drained, shard drained
    move_in(&offload_of(z)->mover, m);
    mark_record(&slot->arrived, z->device, QUEUE_IN); // bucket arrived, shard arrived
}

// ---- the whole gradient, of which a sum is kept between micro-batches ----

// A bucket into which the sum so far is on its way: there is none in the first micro-batch of a
// step, which overwrites what is there.
static struct Slot *begin_whole(struct Zero *z, int g) {
    struct Slot *bucket = slots_take(&z->buckets, g);
    struct Move m = move_of(z, g, 0, z->params->group[g].padded, bucket->block.mem);
    if (z->micro > 0)
        bring_sum(z, bucket, &m);
    return bucket;
}

// A group that two units use has its bucket from the later one's backward pass on.
void offload_take_whole(struct Zero *z, const struct Visit *v) {
    int g = v->group;
    struct Slot *bucket = slots_find(&z->buckets, g);
    if (!bucket)
        bucket = begin_whole(z, g);
    if (!z->dw[g].mem)
        mark_wait(z->micro > 0 ? &bucket->arrived : &bucket->drained, z->device, QUEUE_COMPUTE);
    z->dw[g] = (struct Grad){bucket->block.mem, z->micro > 0};
}

// Behind a visit, which has been queued: the next unit's sum comes while it computes.
void offload_sum_ahead(struct Zero *z, const struct Visit *v) {
    const struct Visit *next = v + 1;
    bool follows = next->backward && next->micro == v->micro && z->plan.prefetch > 0;
    if (!follows || z->micro == 0 || z->plan.grad.over || !host_updates(z, next->group))
        return;
    if (!slots_find(&z->buckets, next->group))
        begin_whole(z, next->group);
}

// What comm has reduced goes to its backing store; `done` tells who may write its buffer next.
static void leave(struct Zero *z, const struct Move *m, struct Mark *done) {
    struct Offload *o = offload_of(z);
    device_record(z->device, QUEUE_COMM, o->reduced);
    device_wait(z->device, QUEUE_OUT, o->reduced);
    move_out(&o->mover, m);
    mark_record(done, z->device, QUEUE_OUT); // bucket drained, shard drained
}

static void reduce_whole(struct Zero *z, int g, bool all) {
    struct Slot *bucket = slots_find(&z->buckets, g);
    size_t begin = zero_owned_begin(z, g);
    void *kept = dtype_at(bucket->block.mem, z->plan.grad.dtype, begin);
    struct Move m = move_of(z, g, begin, zero_owned_numel(z, g), kept);
    grads_reduce_whole(z, g, bucket->block.mem, all);
    leave(z, &m, &bucket->drained);
    grads_give_up(z, bucket);
}

// This rank's sum so far, back to where the next micro-batch finds it.
static void put_aside(struct Zero *z, int g) {
    struct Slot *bucket = slots_find(&z->buckets, g);
    struct Move m = move_of(z, g, 0, z->params->group[g].padded, bucket->block.mem);
    grads_hand_over(z, QUEUE_OUT);
    move_out(&offload_of(z)->mover, &m);
    mark_record(&bucket->drained, z->device, QUEUE_OUT);
    grads_give_up(z, bucket);
}

static void reduce_at_end(struct Zero *z, const struct Visit *v, bool all) {
    if (v->gradient_ends && grads_last_micro(z))
        reduce_whole(z, v->group, all);
    else if (v->gradient_ends)
        put_aside(z, v->group);
}

void offload_all_reduce(struct Zero *z, const struct Visit *v) {
    reduce_at_end(z, v, true);
}

void offload_reduce_scatter(struct Zero *z, const struct Visit *v) {
    reduce_at_end(z, v, false);
}

// ---- a shard ----

// A bucket, and the shard that it will be reduced into, where the host has the sum so far.
void offload_take_bucket(struct Zero *z, const struct Visit *v) {
    int g = v->group;
    bool taken = slots_find(&z->buckets, g);
    grads_take_bucket(z, v);
    if (taken)
        return;
    struct Slot *shard = slots_take(&offload_of(z)->shards, g);
    struct Move m = move_of(z, g, z->state[g].grad_begin, z->state[g].grad_numel, shard->block.mem);
    if (z->micro > 0)
        bring_sum(z, shard, &m);
}

void offload_reduce_each(struct Zero *z, const struct Visit *v) {
    int g = v->group;
    if (!v->gradient_ends)
        return;
    struct Slot *shard = slots_find(&offload_of(z)->shards, g);
    struct Move m = move_of(z, g, z->state[g].grad_begin, z->state[g].grad_numel, shard->block.mem);
    z->parts->complete(z, g, slots_find(&z->buckets, g)->block.mem);
    grads_hand_over(z, QUEUE_COMM);
    mark_wait(z->micro > 0 ? &shard->arrived : &shard->drained, z->device, QUEUE_COMM);
    grads_add_up(z, g, shard->block.mem);
    leave(z, &m, &shard->drained);
    shard->owner = -1;
}
