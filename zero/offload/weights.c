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
// Called through struct GroupOps (serve.c). Read next: gradients.c.
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
        .updated = &s->updated,
    };
}

static void copy_in(struct Zero *z, struct Slot *slot, const struct Move *m, struct Mark *done) {
    mark_wait(&slot->drained, z->device, QUEUE_IN);
    move_in(&offload_of(z)->mover, m);
    mark_record(done, z->device, QUEUE_IN); // weights part arrived, weights arrived
}

// ---- to a slot ----

static void finish_fill(struct Zero *z, struct Slot *slot, int g) {
    struct Move m = move_of(z, slot, g);
    struct Comm *over = z->plan.param.over;
    if (slot->fill_queued)
        return;
    slot->fill_queued = true;
    copy_in(z, slot, &m, over ? &slot->part : &slot->arrived);
    if (!over)
        return;
    mark_wait(&slot->part, z->device, QUEUE_COMM);
    weights_gather_slot(z, slot, over, m.mem);
}

static void begin_fill(struct Zero *z, struct Slot *slot, int g) {
    struct Move m = move_of(z, slot, g);
    if (!lies_on(&z->plan.param, TIER_NVME)) {
        finish_fill(z, slot, g);
        return;
    }
    z->backing.host->label = z->device->label;
    move_begin(&offload_of(z)->mover, &m);
}

const struct SlotSource offload_source = {.begin = begin_fill, .finish = finish_fill};

// New weights are installed before they are fetched: installing may need a slot, too.
static void install_and_fetch(struct Zero *z, const struct Visit *v) {
    int labelled = z->device->label.unit;
    if (slots_find(&z->weights, v->group))
        return;
    z->device->label.unit = z->params->first_unit + v->unit;
    host_install(z, v->group);
    z->device->label.unit = labelled;
    weights_fetch(z, v);
}

void offload_weights_ahead(struct Zero *z, const struct Visit *v) {
    if (!slots_taken(&z->weights, v->group))
        install_and_fetch(z, v);
}

void offload_weights_ready(struct Zero *z, const struct Visit *v) {
    install_and_fetch(z, v);
    weights_arrive(z, v);
}

void offload_weights_here(struct Zero *z, const struct Visit *v) {
    struct GroupState *s = &z->state[v->group];
    host_install(z, v->group);
    if (s->gathered.last < 0)
        mark_wait(&s->updated, z->device, QUEUE_COMPUTE);
    weights_here(z, v);
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
    struct Move own = move_of(z, slot, g), whole = own;
    own.offset = param_bytes(z, weights_own_offset(z, g));
    own.bytes = param_bytes(z, zero_owned_numel(z, g));
    own.mem = own_part(z, slot, over);
    move_begin(mover, &own);
    copy_in(z, slot, &own, &slot->part);
    mark_wait(&slot->part, z->device, QUEUE_COMM);
    weights_gather_slot(z, slot, over, own.mem);
    mark_wait(&slot->arrived, z->device, QUEUE_OUT);
    move_out(mover, &whole);
    mark_record(&slot->drained, z->device, QUEUE_OUT);
    slot->owner = -1;
}
