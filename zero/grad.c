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
// Where the host updates a group, its gradient is kept in host memory. It is made in a bucket in
// both ways, and leaves as soon as it is reduced: only some buckets of gradient are ever on the
// device. With accumulation the sum so far comes back to be added to, whole or as a shard; the host
// could add as well, but would round the sum once more.
//
//   in -> compute, comm   own             the sum so far is in the bucket, or in a slot for a shard
//   compute -> comm, out  backward_done   a gradient is complete
//   comm -> out           reduced         it, or this rank's shard of it, may leave
//   comm, out -> compute  filled          a bucket may be written again
//   out -> in, comm       drained         likewise a slot for a shard
//   out -> in             state.reduced   the sum so far is at home; the update: told (update.c)
//
// The device's own updates wait for all of it, through the reports that follow on the comm queue
// (step.c).
//
// Read next: opt.c.
#include "zero/zero.h"

#include "model/grad.h"

// ---- where it is kept ----

int grads_turn(const struct Zero *z) {
    return z->plan.delayed ? (int)(z->step % 2) : 0;
}

// In host memory a whole gradient has no place but where micro-batches are added up.
static bool is_kept_whole(const struct Zero *z, int g) {
    return !z->plan.grad.sharded && (z->plan.nmicro > 1 || !host_updates(z, g));
}

size_t grads_home_begin(const struct Zero *z, int g) {
    if (is_kept_whole(z, g))
        return 0;
    return z->plan.grad.sharded ? zero_shard_numel(z, g) * (size_t)z->dp->rank
                                : zero_kept_begin(z, g);
}

size_t grads_home_numel(const struct Zero *z, int g) {
    if (is_kept_whole(z, g))
        return z->params->group[g].padded;
    return z->plan.grad.sharded ? zero_shard_numel(z, g) : zero_kept_numel(z, g);
}

static size_t grad_bytes(const struct Zero *z, size_t elements) {
    return elements * dtype_size(z->plan.grad.dtype);
}

// Elements [begin, begin + n) of a group, between its home and `mem`.
static struct Move move_of(struct Zero *z, int g, size_t begin, size_t n, void *mem) {
    return (struct Move){.home = &z->state[g].grad[grads_turn(z)],
                         .offset = grad_bytes(z, begin - grads_home_begin(z, g)),
                         .bytes = grad_bytes(z, n),
                         .mem = mem,
                         .stored = &z->state[g].reduced[grads_turn(z)]};
}

// ---- before the backward pass ----

// A bucket for a whole gradient, into which the sum so far is on its way: there is none in the
// first micro-batch of a step, which overwrites what is there.
static struct Slot *begin_whole(struct Zero *z, int g) {
    struct Slot *slot = slots_take(&z->buckets, g);
    if (z->micro == 0)
        return slot;
    struct Move m = move_of(z, g, 0, z->params->group[g].padded, slot->block.mem);
    mark_wait(&slot->filled, z->device, QUEUE_IN);
    move_in(&z->mover, &m);
    mark_record(&slot->own, z->device, QUEUE_IN);
    return slot;
}

// The tied group has its bucket from the head's backward pass to the embedding's.
static void use_whole_bucket(struct Zero *z, int g) {
    struct Slot *slot = slots_find(&z->buckets, g);
    if (!slot)
        slot = begin_whole(z, g);
    if (!z->dw[g].mem)
        mark_wait(z->micro > 0 ? &slot->own : &slot->filled, z->device, QUEUE_COMPUTE);
    z->dw[g] = (struct Grad){slot->block.mem, z->micro > 0};
}

// Behind unit u, which has been queued: the next unit's sum comes while it computes.
static void fetch_next_sum(struct Zero *z, int u) {
    int g = u > 0 ? params_unit_group(z->params, u - 1) : 0;
    if (u > 0 && z->micro > 0 && z->plan.prefetch > 0 && host_updates(z, g) &&
        !slots_find(&z->buckets, g))
        begin_whole(z, g);
}

void grads_resident(struct Zero *z, int u, int g) {
    params_resident_backward(z, u, g);
    if (host_updates(z, g))
        use_whole_bucket(z, g);
    else
        z->dw[g] = (struct Grad){z->state[g].grad[0].mem, z->micro > 0};
}

// The shard that the bucket will be reduced into, where the sum so far lies with the host.
static void take_shard(struct Zero *z, int g) {
    struct Slot *slot = slots_take(&z->shards, g);
    if (z->micro == 0)
        return;
    struct Move m = move_of(z, g, grads_home_begin(z, g), zero_shard_numel(z, g), slot->block.mem);
    mark_wait(&slot->drained, z->device, QUEUE_IN);
    move_in(&z->mover, &m);
    mark_record(&slot->own, z->device, QUEUE_IN);
}

void grads_bucket(struct Zero *z, int u, int g) {
    (void)u;
    struct Slot *slot = slots_find(&z->buckets, g);
    if (!slot) {
        slot = slots_take(&z->buckets, g);
        mark_wait(&slot->filled, z->device, QUEUE_COMPUTE);
        if (host_updates(z, g))
            take_shard(z, g);
    }
    z->dw[g] = (struct Grad){slot->block.mem, false};
}

// ---- after it ----

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

static void hand_over(struct Zero *z, enum Queue to) {
    device_record(z->device, QUEUE_COMPUTE, z->backward_done);
    device_wait(z->device, to, z->backward_done);
}

// What comm has reduced goes home; `done` tells who may write its buffer next.
static void leave(struct Zero *z, const struct Move *m, struct Mark *done) {
    device_record(z->device, QUEUE_COMM, z->reduced);
    device_wait(z->device, QUEUE_OUT, z->reduced);
    move_out(&z->mover, m);
    mark_record(done, z->device, QUEUE_OUT);
}

static void give_up_bucket(struct Zero *z, struct Slot *slot, int g) {
    slot->group = -1;
    z->dw[g] = (struct Grad){0};
}

// This rank's sum so far, back to where the next micro-batch finds it.
static void put_aside(struct Zero *z, int g) {
    struct Slot *slot = slots_find(&z->buckets, g);
    struct Move m = move_of(z, g, 0, z->params->group[g].padded, slot->block.mem);
    hand_over(z, QUEUE_OUT);
    move_out(&z->mover, &m);
    mark_record(&slot->filled, z->device, QUEUE_OUT);
    give_up_bucket(z, slot, g);
}

// Reduces whole gradients in place: to all of it, or to this rank's shard.
static void reduce_whole(struct Zero *z, int g, bool all) {
    struct Slot *slot = host_updates(z, g) ? slots_find(&z->buckets, g) : NULL;
    char *whole = slot ? slot->block.mem : z->state[g].grad[0].mem;
    size_t n = zero_shard_numel(z, g), begin = zero_kept_begin(z, g);
    char *shard = whole + grad_bytes(z, n * (size_t)z->dp->rank);
    hand_over(z, QUEUE_COMM);
    if (all)
        z->dp->ops->all_reduce(z->dp, whole, n, z->plan.grad.dtype);
    else
        z->dp->ops->reduce_scatter(z->dp, shard, whole, n, z->plan.grad.dtype, false);
    sum_squares(z, g, shard);
    if (!slot)
        return;
    struct Move m = move_of(z, g, begin, zero_kept_numel(z, g), whole + grad_bytes(z, begin));
    leave(z, &m, &slot->filled);
    give_up_bucket(z, slot, g);
}

static void reduce_at_end(struct Zero *z, int u, int g, bool all) {
    if (is_last_use(u, g) && is_last_micro(z))
        reduce_whole(z, g, all);
    else if (is_last_use(u, g) && host_updates(z, g))
        put_aside(z, g);
    fetch_next_sum(z, u);
}

void grads_all_reduce_at_end(struct Zero *z, int u, int g) {
    reduce_at_end(z, u, g, true);
}

void grads_reduce_at_end(struct Zero *z, int u, int g) {
    reduce_at_end(z, u, g, false);
}

void grads_reduce_each(struct Zero *z, int u, int g) {
    if (!is_last_use(u, g))
        return;
    struct Slot *bucket = slots_find(&z->buckets, g);
    struct Slot *kept = host_updates(z, g) ? slots_find(&z->shards, g) : NULL;
    void *shard = kept ? kept->block.mem : z->state[g].grad[0].mem;
    size_t n = zero_shard_numel(z, g);
    hand_over(z, QUEUE_COMM);
    if (kept)
        mark_wait(z->micro > 0 ? &kept->own : &kept->drained, z->device, QUEUE_COMM);
    z->dp->ops->reduce_scatter(z->dp, shard, bucket->block.mem, n, z->plan.grad.dtype,
                               z->micro > 0);
    mark_record(&bucket->filled, z->device, QUEUE_COMM);
    give_up_bucket(z, bucket, g);
    if (is_last_micro(z))
        sum_squares(z, g, shard);
    if (!kept)
        return;
    struct Move m = move_of(z, g, grads_home_begin(z, g), n, shard);
    leave(z, &m, &kept->drained);
    kept->group = -1;
}
