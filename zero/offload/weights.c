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
//   compute -> in         weights drained       a copy overwrites weights that a unit still reads
//   out -> in, compute    weights drained       new weights overwrite some that have not left yet
//   in -> comm            weights part arrived  ranks gather a part that has not come here yet
//   in -> compute         weights arrived       a unit reads a slot before its group has come
//   in -> compute         group updated         a unit reads weights before new ones are installed
//   compute, comm -> out  weights arrived       weights leave before they are made, or whole
//
// serve.c adds the hops to a group's chain, and puts the other calls into the group's row. Read
// next: gradients.c.
#include "zero/offload/offload.h"

static size_t param_bytes(const struct Zero *z, size_t elements) {
    return elements * dtype_size(z->plan.param.dtype);
}

// This rank's part of a slot.
static char *own_part(const struct Zero *z, const struct Slot *slot, const struct Comm *over) {
    size_t part = z->params->group[slot->owner].padded / (size_t)over->size;
    return (char *)slot->block.mem + param_bytes(z, part * (size_t)over->rank);
}

static struct Staging *staging_of(const struct Zero *z, const struct Slot *slot) {
    struct Staging *first = offload_of(z)->staging;
    return first ? &first[slot - z->weights.slot] : NULL;
}

// Between its backing store and its place in a slot: a shard, or the whole.
static struct Move move_of(struct Zero *z, struct Slot *slot, int g) {
    struct GroupState *s = &z->state[g];
    struct Comm *over = z->plan.param.over;
    return (struct Move){
        .store = &s->param,
        .bytes = param_bytes(z, zero_part_numel(z, &z->plan.param, g)),
        .mem = over ? own_part(z, slot, over) : slot->block.mem,
        .staging = staging_of(z, slot),
    };
}

// ---- to a slot ----

// From the disk the bytes begin to come as soon as they are wanted.
static void run_read(struct Zero *z, const struct HopArgs *a, void *mover) {
    struct Slot *slot = a->slot[BUFFER_WHOLE];
    struct Move m = move_of(z, slot, a->group);
    z->backing.host->label = z->device->label;
    move_begin(mover, &m);
}

static void run_h2d(struct Zero *z, const struct HopArgs *a, void *mover) {
    struct Move m = move_of(z, a->slot[BUFFER_WHOLE], a->group);
    move_in(mover, &m);
}

static const struct Hop read_hop = {"read",     FETCH_READ,      WHEN_ANY,       QUEUE_IN,
                                    USES_STORE, .run = run_read, .on_host = true};
static const struct Hop h2d = {
    "h2d", FETCH_LOAD, WHEN_ANY, QUEUE_IN, USES_WHOLE | USES_SHARD | USES_STORE, .run = run_h2d};
static const struct Hop h2d_of_disk = {
    "h2d", FETCH_LOAD, WHEN_ANY, QUEUE_IN, USES_WHOLE | USES_SHARD, .run = run_h2d, .later = true};

void offload_serve_weights(struct Zero *z, int g) {
    struct Chain *fetch = &z->state[g].chain[FETCH];
    struct Mover *mover = &offload_of(z)->mover;
    bool disk = lies_on(&z->plan.param, TIER_NVME);
    if (disk)
        chain_add(fetch, &read_hop, mover);
    chain_add(fetch, disk ? &h2d_of_disk : &h2d, mover);
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

// ---- back to the backing store ----

// Parameters are made again from the master weights, also where the update was skipped.
void offload_update_and_send(struct Zero *z, int g) {
    struct Device *d = z->device;
    struct Slot *slot = slots_take(&z->weights, g);
    struct AdamW a = update_of(z, g);
    enum Dtype dtype = z->plan.param.dtype;
    void *own = dtype_at(slot->block.mem, dtype, zero_owned_begin(z, g));
    struct Move m = {.store = &z->state[g].param,
                     .offset = param_bytes(z, weights_own_offset(z, g)),
                     .bytes = param_bytes(z, zero_owned_numel(z, g)),
                     .mem = own,
                     .staging = staging_of(z, slot)};
    a.state = z->control;
    d->kernels->adamw(d->queue[QUEUE_COMPUTE], &a);
    mark_wait(&slot->drained, d, QUEUE_COMPUTE);
    d->kernels->cast(d->queue[QUEUE_COMPUTE],
                     &(struct Cast){zero_owned_numel(z, g), dtype, master_dtype(a.master_format),
                                    own, a.master});
    mark_record(&slot->arrived, d, QUEUE_COMPUTE);
    mark_wait(&slot->arrived, d, QUEUE_OUT);
    move_out(&offload_of(z)->mover, &m);
    mark_record(&slot->drained, d, QUEUE_OUT);
    slot->owner = -1;
}

// After an update of which each rank made a part. Through a slot: this rank's part comes in, all
// are gathered, and the whole goes back.
void offload_weights_gather(struct Zero *z, int g) {
    struct Slot *slot = slots_take(&z->weights, g);
    struct Mover *mover = &offload_of(z)->mover;
    struct Comm *over = z->plan.optimizer.over;
    enum Dtype dtype = z->plan.param.dtype;
    struct Move own = move_of(z, slot, g), whole = own;
    own.offset = param_bytes(z, weights_own_offset(z, g));
    own.bytes = param_bytes(z, zero_owned_numel(z, g));
    own.mem = own_part(z, slot, over);
    own.updated = &z->state[g].updated;
    move_begin(mover, &own);
    mark_wait(&slot->drained, z->device, QUEUE_IN);
    move_in(mover, &own);
    chain_hand_over(z, QUEUE_IN, QUEUE_COMM);
    wire_gather(z->wire, over, slot->block.mem, own.mem, zero_owned_numel(z, g), dtype);
    mark_record(&slot->arrived, z->device, QUEUE_COMM);
    mark_wait(&slot->arrived, z->device, QUEUE_OUT);
    move_out(mover, &whole);
    mark_record(&slot->drained, z->device, QUEUE_OUT);
    slot->owner = -1;
}
