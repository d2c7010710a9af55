// Weights with a backing store in host memory or on NVMe: moves them to a slot and back.
//
// A rank that keeps a shard fetches that, and the ranks gather; one that keeps the whole fetches
// the whole. From host memory it is one copy. From disk the bytes come to a staging buffer first
// (move.h): a GPU's queue cannot wait for that, so the copy is queued when the walk gets there. A
// CPU that only generates or evaluates reads them into the slot itself.
//
//   in       copy 1 | copy 2   | copy 3   | ...
//   comm            | gather 1 | gather 2 | gather 3 | ...
//   compute                    | unit 1   | unit 2   | ...
//
// Read next: gradients.c.
#include "zero/offload/offload.h"

// The hop's context says what it moves: all that is kept of a group, a shard or the whole; or the
// part that this rank updates.
static struct Move weights_move(struct Zero *z, const struct HopArgs *a) {
    const struct WeightsPart *part = a->context;
    const struct Placement *p = &z->plan.param;
    const struct Slots *slots = z->state[a->group].slots;
    struct Staging *staging = offload_of(z)->staging[slots - z->weights];
    size_t size = dtype_size(p->dtype);
    bool packed = params_packs(z->params, a->group);
    size_t own = zero_owned_numel(z, a->group) * size;
    return (struct Move){
        .store = &z->state[a->group].param,
        .offset = part->own ? weights_own_offset(z, a->group) * size : 0,
        .bytes = part->own ? own : weights_bytes(z, a->group),
        .mem = a->mem[part->own || p->shard_group || packed ? BUFFER_SHARD : BUFFER_WHOLE],
        .staging = staging ? staging + (a->slot[BUFFER_WHOLE] - slots->slot) : NULL};
}

// Starts reading from disk as soon as a fetch begins.
static void run_read(struct Zero *z, const struct HopArgs *a) {
    const struct WeightsPart *part = a->context;
    struct Move m = weights_move(z, a);
    z->backing.host->label = z->device->label;
    move_begin(part->mover, &m);
}

static void run_h2d(struct Zero *z, const struct HopArgs *a) {
    const struct WeightsPart *part = a->context;
    struct Move m = weights_move(z, a);
    move_in(part->mover, &m);
}

static void run_d2h(struct Zero *z, const struct HopArgs *a) {
    const struct WeightsPart *part = a->context;
    struct Move m = weights_move(z, a);
    move_out(part->mover, &m);
}

// Makes parameters again from the master weights, also if the update was skipped.
static void run_cast(struct Zero *z, const struct HopArgs *a) {
    struct AdamW adamw = update_args(z, a->group);
    z->device->kernels->cast(z->device->queue[QUEUE_COMPUTE],
                             &(struct Cast){adamw.n, z->plan.param.dtype,
                                            master_dtype(adamw.master_format), a->mem[BUFFER_SHARD],
                                            adamw.master});
}

enum { USES_BOTH = USES_WHOLE | USES_SHARD };
static const struct Hop read_hop = {"read",     POINT_READ,      WHEN_ANY,      QUEUE_IN,
                                    USES_STORE, .run = run_read, .where = HERE, .on_host = true};
static const struct Hop h2d_of_disk = {"h2d",     POINT_LOAD,     WHEN_ANY,      QUEUE_IN,
                                       USES_BOTH, .run = run_h2d, .where = HERE, .not_ahead = true};
static const struct Hop h2d = {
    "h2d", POINT_LOAD, WHEN_ANY, QUEUE_IN, USES_BOTH | USES_STORE, .run = run_h2d, .where = HERE};
static const struct Hop cast = {"cast",    POINT_STORE,     WHEN_ANY,     QUEUE_COMPUTE,
                                USES_BOTH, .run = run_cast, .where = HERE};
static const struct Hop d2h = {"d2h",     POINT_STORE,    WHEN_ANY,     QUEUE_OUT,
                               USES_BOTH, .run = run_d2h, .where = HERE};

// Adds hops that bring weights to a slot, and take what the device has updated back to the store.
// If the store has whole weights, also hops around the gather of all ranks' parts in a slot.
void offload_attach_weights(struct Zero *z, int g) {
    struct Chain *chain = z->state[g].chain;
    struct Offload *o = offload_of(z);
    bool disk = lies_on(&z->plan.param, TIER_NVME) && !o->options.no_staging;
    if (disk)
        chain_add(&chain[FETCH], &read_hop, &o->kept);
    chain_add(&chain[FETCH], disk ? &h2d_of_disk : &h2d, &o->kept);
    if (!host_updates(z, g) && zero_trains(z, g)) {
        chain_add(&chain[UPDATE], &cast, NULL);
        chain_add(&chain[UPDATE], &d2h, &o->own);
    }
    if (!chain[PUBLISH].n)
        return;
    if (disk)
        chain_add(&chain[PUBLISH], &read_hop, &o->own);
    chain_add(&chain[PUBLISH], &h2d, &o->own);
    chain_add(&chain[PUBLISH], &d2h, &o->kept);
}

// Installs the host's new weights before they are read or fetched; compute also waits for `updated`
// of whole ones on the device, unless a gather follows it.
void offload_weights_due(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    if (lies_on(&z->plan.param, TIER_DEVICE) && !host_updates(z, g))
        return;
    host_install(z, g);
    if (!s->slots && s->gathered.last < 0)
        mark_wait(&s->updated, z->device, QUEUE_COMPUTE);
}
