// Weights with a backing store in host memory or on NVMe: their way to a slot and back.
//
// A rank that keeps a shard fetches that, and the ranks gather; one that keeps the whole fetches
// the whole. From host memory it is one copy. From the disk the bytes come to a staging first
// (move.h): a GPU's queue cannot wait for that, so the copy is left until the walk is there.
//
//   in       copy 1 | copy 2   | copy 3   | ...
//   comm            | gather 1 | gather 2 | gather 3 | ...
//   compute                    | unit 1   | unit 2   | ...
//
// Read next: gradients.c.
#include "zero/offload/offload.h"

static struct Staging *staging_of(const struct Zero *z, const struct Slot *slot) {
    struct Staging *first = offload_of(z)->staging;
    return first ? &first[slot - z->weights.slot] : NULL;
}

// n elements from `at` on of what is kept of a group, and their place in its slot.
static struct Move move_of(struct Zero *z, const struct HopArgs *a, size_t at, size_t n,
                           void *mem) {
    size_t size = dtype_size(z->plan.param.dtype);
    return (struct Move){.store = &z->state[a->group].param,
                         .offset = at * size,
                         .bytes = n * size,
                         .mem = mem,
                         .staging = staging_of(z, a->slot[BUFFER_WHOLE])};
}

// All that is kept: a shard, or the whole.
static struct Move move_of_all(struct Zero *z, const struct HopArgs *a) {
    void *mem = a->mem[z->plan.param.over ? BUFFER_SHARD : BUFFER_WHOLE];
    return move_of(z, a, 0, zero_part_numel(z, &z->plan.param, a->group), mem);
}

// What this rank updates of it.
static struct Move move_of_own(struct Zero *z, const struct HopArgs *a) {
    return move_of(z, a, weights_own_offset(z, a->group), zero_owned_numel(z, a->group),
                   a->mem[BUFFER_SHARD]);
}

// From the disk the bytes begin to come as soon as they are wanted.
static void read_all(struct Zero *z, const struct HopArgs *a) {
    struct Move m = move_of_all(z, a);
    z->backing.host->label = z->device->label;
    move_begin(a->context, &m);
}

static void load_all(struct Zero *z, const struct HopArgs *a) {
    struct Move m = move_of_all(z, a);
    move_in(a->context, &m);
}

static void store_all(struct Zero *z, const struct HopArgs *a) {
    struct Move m = move_of_all(z, a);
    move_out(a->context, &m);
}

static void read_own(struct Zero *z, const struct HopArgs *a) {
    struct Move m = move_of_own(z, a);
    move_begin(a->context, &m);
}

static void load_own(struct Zero *z, const struct HopArgs *a) {
    struct Move m = move_of_own(z, a);
    move_in(a->context, &m);
}

static void store_own(struct Zero *z, const struct HopArgs *a) {
    struct Move m = move_of_own(z, a);
    move_out(a->context, &m);
}

// Parameters are made again from the master weights, also where the update was skipped.
static void cast_own(struct Zero *z, const struct HopArgs *a) {
    struct AdamW of = update_of(z, a->group);
    z->device->kernels->cast(z->device->queue[QUEUE_COMPUTE],
                             &(struct Cast){of.n, z->plan.param.dtype,
                                            master_dtype(of.master_format), a->mem[BUFFER_SHARD],
                                            of.master});
}

enum { USES_BOTH = USES_WHOLE | USES_SHARD };

// To a slot, for a unit.
static const struct Hop read_hop = {"read",     POINT_READ,      WHEN_ANY,       QUEUE_IN,
                                    USES_STORE, .run = read_all, .on_host = true};
static const struct Hop h2d_of_disk = {"h2d",     POINT_LOAD,      WHEN_ANY,     QUEUE_IN,
                                       USES_BOTH, .run = load_all, .later = true};
static const struct Hop h2d = {
    "h2d", POINT_LOAD, WHEN_ANY, QUEUE_IN, USES_BOTH | USES_STORE, .run = load_all};
// What the device has updated, back to its store.
static const struct Hop cast = {"cast",        POINT_STORE, WHEN_ANY,
                                QUEUE_COMPUTE, USES_SHARD,  .run = cast_own};
static const struct Hop d2h = {"d2h",     POINT_STORE, WHEN_ANY,
                               QUEUE_OUT, USES_SHARD,  .run = store_own};
// Weights that are whole in their store, of which this rank has updated a part: that comes to a
// slot, all ranks' parts are gathered there, and the whole goes back.
static const struct Hop read_part = {"read",     POINT_READ,      WHEN_ANY,       QUEUE_IN,
                                     USES_STORE, .run = read_own, .on_host = true};
static const struct Hop h2d_part = {
    "h2d", POINT_LOAD, WHEN_ANY, QUEUE_IN, USES_BOTH | USES_STORE, .run = load_own};
static const struct Hop d2h_whole = {"d2h",     POINT_STORE, WHEN_ANY,
                                     QUEUE_OUT, USES_WHOLE,  .run = store_all};

void offload_serve_weights(struct Zero *z, int g) {
    struct Chain *chain = z->state[g].chain;
    struct Mover *mover = &offload_of(z)->mover;
    bool disk = lies_on(&z->plan.param, TIER_NVME);
    if (disk)
        chain_add(&chain[FETCH], &read_hop, mover);
    chain_add(&chain[FETCH], disk ? &h2d_of_disk : &h2d, mover);
    if (!host_updates(z, g)) {
        chain_add(&chain[UPDATE], &cast, NULL);
        chain_add(&chain[UPDATE], &d2h, mover);
    }
    if (!chain[PUBLISH].n)
        return;
    if (disk)
        chain_add(&chain[PUBLISH], &read_part, mover);
    chain_add(&chain[PUBLISH], &h2d_part, mover);
    chain_add(&chain[PUBLISH], &d2h_whole, mover);
}

// Whole weights on the device that the host updates.
void offload_weights_due(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    if (lies_on(&z->plan.param, TIER_DEVICE) && !host_updates(z, g))
        return;
    host_install(z, g);
    if (!s->slots && s->gathered.last < 0)
        mark_wait(&s->updated, z->device, QUEUE_COMPUTE);
}
