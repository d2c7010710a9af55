// What a training step moves, foretold from the plan.
//
// Three links carry it: the network between ranks, which collectives use; the bus between device
// memory and the host's; and the disk. All three are counted in a run (comm.h, move.h), and the
// counts must be these numbers to the byte: a fetch too many is a slow run that nobody notices.
//
// The figures are of a step after others. The first one lacks what an update leaves for the next
// step: the weights that it makes are installed when the next forward pass is there
// (offload/update.c).
//
// Called by footprint.c, whose tables set the counts beside these figures. Read next: bound.c, the
// time that they take at least.
#include "zero/plan/traffic.h"

#include "zero/offload/activations.h"
#include "zero/offload/offload.h"

// Elements of all groups' shards.
static uint64_t shard_elements(const struct Params *params, int ranks) {
    return params->padded / (uint64_t)ranks;
}

// The next visit of a step, from `v` on, for which a group is fetched: one that reads its weights,
// where the visit before it did not leave them there (param.c). NULL: none. How far ahead it is
// fetched does not matter.
static const struct Visit *next_fetch(const struct Zero *z, const struct Visit *v) {
    while (v->unit >= 0 && !(v->reads && (v == z->train || !v[-1].stays)))
        v++;
    return v->unit >= 0 ? v : NULL;
}

// Shards of the weights that a step gathers.
static uint64_t fetched_bytes(const struct Zero *z) {
    uint64_t n = 0;
    for (const struct Visit *v = next_fetch(z, z->train); v; v = next_fetch(z, v + 1))
        n += zero_shard_numel(z, v->group);
    return n * dtype_size(z->plan.param.dtype);
}

struct Traffic zero_traffic(const struct Zero *z) {
    const struct ZeroPlan *p = &z->plan;
    struct Traffic t = {{0}};
    uint64_t others = (uint64_t)z->dp->size - 1;
    uint64_t shards = others * shard_elements(z->params, z->dp->size);
    uint64_t grads = shards * dtype_size(p->grad.dtype);
    uint64_t weights = shards * dtype_size(p->param.dtype);
    if (p->grad.sharded)
        t.bytes[COMM_REDUCE_SCATTER] = grads * p->nmicro;
    else if (p->optimizer.sharded)
        t.bytes[COMM_REDUCE_SCATTER] = grads;
    else
        t.bytes[COMM_ALL_REDUCE] = 2 * grads;
    if (p->param.sharded)
        t.bytes[COMM_ALL_GATHER] = others * fetched_bytes(z);
    else if (p->optimizer.sharded)
        t.bytes[COMM_ALL_GATHER] = weights;
    t.bytes[COMM_ALL_GATHER] += others * z->report_bytes;
    return t;
}

// ---- the bus and the disk ----

// Weights that come to the device from where they lie, and such that go home.
static struct Moved weights_in(const struct Zero *z, size_t elements) {
    uint64_t bytes = elements * dtype_size(z->plan.param.dtype);
    return (struct Moved){.in = bytes, .read = lies_on(&z->plan.param, TIER_NVME) ? bytes : 0};
}
static struct Moved weights_out(const struct Zero *z, size_t elements) {
    struct Moved m = weights_in(z, elements);
    return (struct Moved){.out = m.in, .written = m.read};
}

static void add_fetches(struct Zero *z, struct Moves *m) {
    const struct Placement *p = &z->plan.param;
    if (lies_on(p, TIER_DEVICE))
        return;
    for (const struct Visit *v = next_fetch(z, z->train); v; v = next_fetch(z, v + 1)) {
        size_t whole = z->params->group[v->group].padded;
        size_t n = p->sharded ? zero_shard_numel(z, v->group) : whole;
        moved_add(v->backward ? &m->backward : &m->forward, weights_in(z, n), 1);
    }
}

// The gradient that the host wants, and between micro-batches the sum so far (grad.c).
static void add_gradients(struct Zero *z, int g, struct Moves *m) {
    const struct Placement *p = &z->plan.grad;
    uint64_t size = dtype_size(p->dtype), sums = z->plan.nmicro - 1;
    uint64_t sum = size * (p->sharded ? zero_shard_numel(z, g) : z->params->group[g].padded);
    if (!host_updates(z, g))
        return;
    moved_add(&m->backward, (struct Moved){.in = sum, .out = sum}, sums);
    m->backward.out += p->sharded ? sum : size * zero_kept_numel(z, g);
}

// The update, and the whole that ranks make of their parts where the weights lie elsewhere.
static void add_update(struct Zero *z, int g, struct Moves *m) {
    const struct ZeroPlan *p = &z->plan;
    bool elsewhere = !lies_on(&p->param, TIER_DEVICE);
    if (host_updates(z, g))
        moved_add(&m->update, host_moves(z, g), 1);
    else if (elsewhere)
        moved_add(&m->update, weights_out(z, zero_kept_numel(z, g)), 1);
    if (elsewhere && p->optimizer.sharded && !p->param.sharded && z->dp->size > 1) {
        moved_add(&m->update, weights_in(z, zero_shard_numel(z, g)), 1);
        moved_add(&m->update, weights_out(z, z->params->group[g].padded), 1);
    }
}

// What blocks keep leaves behind their forward passes, and is back before their backward passes.
static void add_kept(const struct Zero *z, struct Moves *m) {
    struct Moved kept = keep_moved(z);
    moved_add(&m->forward, (struct Moved){.out = kept.out, .written = kept.written}, 1);
    moved_add(&m->backward, (struct Moved){.in = kept.in, .read = kept.read}, 1);
}

struct Moves zero_moves(struct Zero *z) {
    struct Moves m = {0};
    add_kept(z, &m);
    add_fetches(z, &m);
    for (int g = 0; g < z->params->ngroup; g++) {
        add_gradients(z, g, &m);
        add_update(z, g, &m);
    }
    return m;
}
