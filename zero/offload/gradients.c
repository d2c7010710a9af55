// Gradients of groups that the host updates: they are kept in host memory.
//
// Such a gradient is made in a bucket at every stage, and leaves as soon as it is reduced: only
// some buckets of gradients are ever on the device. With accumulation the sum so far comes back to
// be added to, whole or as a shard; the host could add as well, but would round the sum once more.
//
// attach.c adds the hops of this file to a group's chains; zero/chain.c makes the queues wait. Read
// next: update.c.
#include "zero/offload/offload.h"

int offload_turn(const struct Zero *z) {
    return offload_of(z)->options.delayed ? (int)(z->step % 2) : 0;
}

struct Block *offload_grad(struct Zero *z, int g, int turn) {
    return turn ? &offload_of(z)->group[g].second_grad : &z->state[g].grad;
}

// Describes the move of elements [begin, begin + n) of a group between their store and `mem`.
static struct Move gradient_move(struct Zero *z, int g, size_t begin, size_t n, void *mem) {
    size_t size = dtype_size(z->plan.grad.dtype);
    return (struct Move){.store = offload_grad(z, g, offload_turn(z)),
                         .offset = (begin - z->state[g].grad_begin) * size,
                         .bytes = n * size,
                         .mem = mem};
}

// The host keeps the whole sum between micro-batches or, if only shards are kept, the shard.
static struct Move gradient_sum_move(struct Zero *z, const struct HopArgs *a) {
    size_t padded = z->params->group[a->group].padded, n = zero_shard_numel(z, a->group);
    if (z->plan.grad.shard_group)
        return gradient_move(z, a->group, z->state[a->group].grad_begin, n, a->mem[BUFFER_SHARD]);
    return gradient_move(z, a->group, 0, padded, a->mem[BUFFER_WHOLE]);
}

static void load_gradient_sum(struct Zero *z, const struct HopArgs *a) {
    struct Move m = gradient_sum_move(z, a);
    move_in(a->context, &m);
}

static void store_gradient_sum(struct Zero *z, const struct HopArgs *a) {
    struct Move m = gradient_sum_move(z, a);
    move_out(a->context, &m);
}

// Sends the part that this rank updates of a whole gradient.
static void store_reduced_gradient(struct Zero *z, const struct HopArgs *a) {
    size_t begin = zero_owned_begin(z, a->group), n = zero_owned_numel(z, a->group);
    void *mem = dtype_at(a->mem[BUFFER_WHOLE], z->plan.grad.dtype, begin);
    struct Move m = gradient_move(z, a->group, begin, n, mem);
    move_out(a->context, &m);
}

static const struct Hop h2d = {
    "h2d", POINT_LOAD, WHEN_ANY, QUEUE_IN, USES_WHOLE, .run = load_gradient_sum, .where = HERE};
static const struct Hop d2h_sum = {"d2h",        POINT_STORE, WHEN_NOT_REDUCED,
                                   QUEUE_OUT,    USES_WHOLE,  .run = store_gradient_sum,
                                   .where = HERE};
static const struct Hop d2h = {"d2h",        POINT_STORE, WHEN_REDUCED,
                               QUEUE_OUT,    USES_WHOLE,  .run = store_reduced_gradient,
                               .where = HERE};
static const struct Hop h2d_shard = {
    "h2d", POINT_LOAD, WHEN_ANY, QUEUE_IN, USES_SHARD, .run = load_gradient_sum, .where = HERE};
static const struct Hop d2h_shard = {"d2h",        POINT_STORE, WHEN_REDUCED,
                                     QUEUE_OUT,    USES_SHARD,  .run = store_gradient_sum,
                                     .where = HERE};

void offload_attach_gradient(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    struct Offload *o = offload_of(z);
    s->buckets = &z->buckets[ring_of(z->params, g)];
    if (z->plan.grad.shard_group) {
        s->shards = &o->shards[ring_of(z->params, g)];
        chain_add(&s->chain[ACCUMULATE], &h2d_shard, &o->mover);
        chain_add(&s->chain[REDUCE], &d2h_shard, &o->mover);
        return;
    }
    chain_add(&s->chain[ACCUMULATE], &h2d, &o->mover);
    chain_add(&s->chain[REDUCE], &d2h_sum, &o->mover);
    chain_add(&s->chain[REDUCE], &d2h, &o->mover);
    if (z->plan.nmicro > 1)
        return;
    s->grad_begin = zero_owned_begin(z, g); // no sum is kept
    s->grad_numel = zero_owned_numel(z, g);
}

// Called when a visit is queued: fetches the next unit's sum while that visit computes. Only whole
// sums: a pass adds to those, while a shard's is needed when the pass is reduced.
void offload_sum_ahead(struct Zero *z, const struct Visit *v) {
    const struct Visit *next = v + 1;
    bool follows = next->backward && next->micro == v->micro && z->plan.prefetch > 0;
    if (follows && z->backwards_done > 0 && !z->plan.grad.shard_group && next->trained >= 0 &&
        host_updates(z, next->trained))
        gradient_begin(z, next->trained);
}
