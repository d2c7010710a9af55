// Gradients: where a unit writes them, and how they are reduced over ranks.
//
// A group's gradient is complete after the backward pass of the first unit that uses it. Then the
// comm queue reduces it over the ranks and sums the squares of this rank's shard, while compute
// goes on with the next unit's backward pass. There are two ways:
//
//   the whole gradient is kept   micro-batches add to it; it is reduced once, in the last one
//   only a shard is kept         each micro-batch's gradient is made in a bucket, reduced at once,
//                                and added to the shard; the bucket is free for the next unit
//
// The updates wait for all reductions, through the reports that follow on the comm queue
// (reports.c). Read next: opt.c.
#include "zero/shard.h"

#include "model/grad.h"

// ---- where a gradient is made ----

// Returns hop arguments: the whole is in a bucket, or where it is kept; the shard is where it is
// kept, in a slot on its way to another tier, or at its offset in the whole.
static struct HopArgs gradient_args(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    struct Slot *bucket = s->buckets ? slots_find(s->buckets, g) : NULL;
    struct Slot *shard = s->shards ? slots_find(s->shards, g) : NULL;
    void *whole = bucket ? bucket->block.mem : s->grad.mem;
    if (z->plan.grad.shard_group)
        return (struct HopArgs){.group = g,
                                .mem = {whole, shard ? shard->block.mem : s->grad.mem},
                                .slot = {bucket, shard}};
    size_t begin = zero_shard_numel(z, g) * (size_t)z->shard_group->rank;
    void *part = dtype_at(whole, z->plan.grad.dtype, begin);
    return (struct HopArgs){.group = g, .mem = {whole, part}, .slot = {bucket, bucket}};
}

// A group that two units share has its bucket from the later one's backward pass on.
void gradient_begin(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    if (!s->buckets || slots_find(s->buckets, g))
        return;
    slots_acquire(s->buckets, g);
    if (s->shards)
        slots_acquire(s->shards, g);
    struct HopArgs a = gradient_args(z, g);
    if (z->backwards_done > 0)
        chain_run(z, ACCUMULATE, 0, false, &a);
}

void gradient_set_target(struct Zero *z, const struct Visit *v) {
    int g = v->trained;
    if (g < 0)
        return;
    gradient_begin(z, g);
    struct HopArgs a = gradient_args(z, g);
    if (a.slot[BUFFER_WHOLE] && !z->dw[g].mem) // else an earlier visit has waited
        slot_wait(z, a.slot[BUFFER_WHOLE], QUEUE_COMPUTE);
    z->dw[g] =
        (struct Grad){a.mem[BUFFER_WHOLE], z->backwards_done > 0 && !z->plan.grad.shard_group};
}

// ---- how it is reduced ----

void gradient_reduce(struct Zero *z, const struct Visit *v) {
    struct HopArgs a = gradient_args(z, v->trained);
    chain_run(z, REDUCE, 0, false, &a);
    z->dw[a.group] = (struct Grad){0};
    for (int b = 0; b < HOP_BUFFERS; b++)
        if (a.slot[b])
            a.slot[b]->owner = -1;
}

static void run_all_reduce(struct Zero *z, const struct HopArgs *a) {
    size_t n = zero_shard_numel(z, a->group);
    z->shard_group->ops->all_reduce(z->shard_group, a->mem[BUFFER_WHOLE], n, z->plan.grad.dtype);
}

static void run_reduce_scatter(struct Zero *z, const struct HopArgs *a) {
    bool accumulate = z->plan.grad.shard_group && z->backwards_done > 0;
    z->shard_group->ops->reduce_scatter(z->shard_group, a->mem[BUFFER_SHARD], a->mem[BUFFER_WHOLE],
                                        zero_shard_numel(z, a->group), z->plan.grad.dtype,
                                        accumulate);
}

const struct Hop hop_all_reduce = {"all_reduce", POINT_STAGE,           WHEN_REDUCED, QUEUE_COMM,
                                   USES_WHOLE,   .run = run_all_reduce, .where = HERE};
const struct Hop hop_reduce_scatter = {
    "reduce_scatter",          POINT_STAGE,  WHEN_REDUCED, QUEUE_COMM, USES_WHOLE | USES_SHARD,
    .run = run_reduce_scatter, .where = HERE};
