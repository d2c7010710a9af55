// Parameters: how a unit gets its weights whole.
//
// A rank keeps the weights of a group whole, and uses them where they are; ranks that updated only
// their part hand it round afterwards (weights_gather). Or it keeps its shard: then the group is
// gathered into a slot just before a unit needs it, and given up right after. Since the order of
// visits is known, the next groups are gathered as soon as this visit is queued, to arrive while it
// computes:
//
//   comm     | gather 1 | gather 2 | gather 3 | ...
//   compute             | unit 1   | unit 2   | ...
//
//   compute -> comm   weights drained   a group is gathered over weights that a unit still reads
//   compute -> comm   group updated     ranks gather this one's part before it is updated
//   comm -> compute   weights arrived   a unit reads a slot before its group has come
//   comm -> compute   group gathered    a unit reads other ranks' parts before they have come
//
// A slot may be filled from elsewhere, too (struct SlotSource).
//
// Read next: grad.c.
#include "zero/zero.h"

// ---- whole weights ----

// At stage 0 `gathered` is never recorded: compute itself has updated them.
void weights_here(struct Zero *z, const struct Visit *v) {
    struct GroupState *s = &z->state[v->group];
    mark_wait(&s->gathered, z->device, QUEUE_COMPUTE);
    z->w[v->group] = s->param.mem;
}

void weights_nothing(struct Zero *z, const struct Visit *v) {
    (void)z;
    (void)v;
}

void weights_gather(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    struct Comm *over = z->plan.optimizer.over;
    enum Dtype dtype = z->plan.param.dtype;
    const void *own = dtype_at(zero_own_block(z, g)->mem, dtype, weights_own_offset(z, g));
    mark_wait(&s->updated, z->device, QUEUE_COMM);
    wire_gather(z->wire, over, s->param.mem, own, zero_owned_numel(z, g), dtype);
    mark_record(&s->gathered, z->device, QUEUE_COMM);
}

// ---- weights that come to a slot ----

void weights_gather_slot(struct Zero *z, struct Slot *slot, struct Comm *over, const void *shard) {
    size_t n = z->params->group[slot->owner].padded / (size_t)over->size;
    wire_gather(z->wire, over, slot->block.mem, shard, n, z->plan.param.dtype);
    mark_record(&slot->arrived, z->device, QUEUE_COMM);
}

static void gather_shards(struct Zero *z, struct Slot *slot, int g) {
    mark_wait(&slot->drained, z->device, QUEUE_COMM);
    mark_wait(&z->state[g].updated, z->device, QUEUE_COMM);
    weights_gather_slot(z, slot, z->plan.param.over, z->state[g].param.mem);
}

static void nothing_left(struct Zero *z, struct Slot *slot, int g) {
    (void)z;
    (void)slot;
    (void)g;
}

const struct SlotSource slot_source_shards = {.begin = gather_shards, .finish = nothing_left};

// Begins to fetch a group, unless it is here or on its way, or the model's other end still has the
// slot: with few layers the head is within reach while the embedding computes.
void weights_fetch(struct Zero *z, const struct Visit *v) {
    int labelled = z->device->label.unit;
    if (slots_taken(&z->weights, v->group))
        return;
    z->device->label.unit = z->params->first_unit + v->unit;
    z->state[v->group].source->begin(z, slots_take(&z->weights, v->group), v->group);
    z->device->label.unit = labelled;
}

void weights_arrive(struct Zero *z, const struct Visit *v) {
    weights_fetch(z, v);
    struct Slot *slot = slots_find(&z->weights, v->group);
    z->state[v->group].source->finish(z, slot, v->group);
    mark_wait(&slot->arrived, z->device, QUEUE_COMPUTE);
    z->w[v->group] = slot->block.mem;
}

// Weights stay where a pass ends with the unit that the next one begins with, such as the head.
void weights_give_up(struct Zero *z, const struct Visit *v) {
    struct Slot *slot = slots_find(&z->weights, v->group);
    if (v->stays)
        return;
    mark_record(&slot->drained, z->device, QUEUE_COMPUTE);
    slot->owner = -1;
    z->w[v->group] = NULL;
}
