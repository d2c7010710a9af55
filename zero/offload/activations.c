// Activations that are kept elsewhere between a layer's two passes: see offload/activations.h.
//
// Layers have slots by turns, as groups have for their weights (zero/slots.c); marks keep the
// queues apart:
//
//   compute -> out   layer made      a layer's activations leave before its forward pass is done
//   out -> compute   layer drained   another layer overwrites activations that have not left yet
//   compute -> in    layer drained   another layer's arrive before the backward pass has read these
//   in -> compute    layer arrived   a backward pass reads activations that have not come yet
//
// Nothing else is needed. A layer's store is written before it is read: another layer came into its
// slot, whose forward pass waited for what left it, and whose backward pass was its last reader;
// and on NVMe a staging buffer is read into when what was written from it is on the disk (move.c).
// When a walk begins, each slot's last layer has had both its passes, or was of a walk without a
// backward pass; what else used the slot, compute has waited for. And a store is written anew by
// the next micro-batch, behind all of the backward pass that read it.
//
// Called through struct BackingOps (serve.c). Read next: move.c.
#include "zero/offload/activations.h"

#include "zero/offload/offload.h"

#include <stdlib.h>

struct Keep {
    int layers, nstore;
    struct Slots slots;
    struct Staging *staging;    // of each slot, where stores are on NVMe; else NULL
    struct Block *store;        // (nstore), of layers 0 .. nstore - 1
    size_t bytes;               // of each: of a slot, or of this place's part of it
    const struct Across *parts; // or NULL
    struct Event *made;
};

// ---- opening ----

size_t keep_slots(enum TierKind store, bool in_parts, size_t layers, size_t prefetch) {
    bool stays = store == TIER_DEVICE && !in_parts;
    return stays ? layers : size_min(layers, 1 + size_max(prefetch, 1));
}

static int open_stagings(struct Zero *z, struct Keep *k, const struct KeepSpec *s,
                         struct Error *e) {
    int err = 0;
    k->staging = base_alloc_zeroed(s->slots * sizeof *k->staging);
    for (size_t i = 0; i < s->slots && !err; i++)
        err = staging_open(&k->staging[i], &offload_of(z)->mover, TAG_ACTIVATION,
                           "activations to and from disk", k->bytes, s->cpu, e);
    return err;
}

// Slots are moved whole, with the gaps between tensors and what a small batch does not use.
static void zero_slots(struct Zero *z, const struct KeepSpec *s) {
    if (s->dry)
        return;
    device_zero(z->device, QUEUE_COMPUTE, s->mem, s->slots * s->bytes);
    device_sync_queue(z->device, QUEUE_COMPUTE);
}

int keep_open(struct Zero *z, const struct KeepSpec *s, struct Error *e) {
    if (s->slots == s->layers)
        return 0;
    struct Keep *k = offload_of(z)->keep = base_alloc_zeroed(sizeof *k);
    struct SlotsSpec slots = {.turns = (int)s->slots,
                              .bytes = {0, s->bytes},
                              .mem = s->mem,
                              .mark_names = {NULL, "layer arrived", "layer drained"}};
    *k = (struct Keep){.layers = (int)s->layers,
                       .nstore = (int)(s->layers - s->slots),
                       .bytes = s->bytes / across_places(s->parts),
                       .parts = s->parts};
    k->made = device_open_event(z->device, "layer made");
    k->store = base_alloc_zeroed((size_t)k->nstore * sizeof *k->store);
    zero_slots(z, s);
    int err = slots_open(z, &k->slots, &slots, e);
    if (!err && s->store->kind == TIER_NVME)
        err = open_stagings(z, k, s, e);
    for (int i = 0; i < k->nstore && !err; i++)
        err = tier_alloc(s->store, TAG_ACTIVATION, "activations of a layer", k->bytes, &k->store[i],
                         e);
    return err;
}

void keep_close(struct Zero *z) {
    struct Keep *k = offload_of(z)->keep;
    if (!k)
        return;
    for (int i = 0; k->staging && i < k->slots.count; i++)
        staging_close(&k->staging[i]);
    for (int i = 0; i < k->nstore; i++)
        tier_free(&k->store[i]);
    device_close_event(z->device, k->made);
    slots_close(&k->slots);
    free(k->staging);
    free(k->store);
    free(k);
    offload_of(z)->keep = NULL;
}

// ---- which is where ----

// Unit u is layer u - 1; -1: one of the ends, or nothing leaves.
static int layer_of(const struct Keep *k, int u) {
    return k && u - 1 < k->layers ? u - 1 : -1;
}

static struct Move move_of(struct Keep *k, struct Slot *slot) {
    return (struct Move){
        .store = &k->store[slot->owner],
        .bytes = k->bytes,
        .mem = (char *)slot->block.mem + (k->parts ? k->parts->place * k->bytes : 0),
        .staging = k->staging ? &k->staging[slot - k->slots.slot] : NULL,
    };
}

// ---- forward ----

static void before_forward(struct Zero *z, const struct Visit *v) {
    struct Keep *k = offload_of(z)->keep;
    int layer = layer_of(k, v->unit);
    if (layer < 0)
        return;
    struct Slot *slot = slots_take(&k->slots, layer);
    mark_wait(&slot->drained, z->device, QUEUE_COMPUTE);
    slot->fill_queued = true;
}

static void leave(struct Zero *z, struct Slot *slot) {
    struct Offload *o = offload_of(z);
    struct Move m = move_of(o->keep, slot);
    device_record(z->device, QUEUE_COMPUTE, o->keep->made);
    device_wait(z->device, QUEUE_OUT, o->keep->made);
    z->backing.host->label = z->device->label;
    move_out(&o->mover, &m);
    mark_record(&slot->drained, z->device, QUEUE_OUT);
}

// The last layers stay until their backward passes; without these nothing is kept.
static void after_forward(struct Zero *z, const struct Visit *v) {
    struct Keep *k = offload_of(z)->keep;
    int layer = layer_of(k, v->unit);
    if (layer < 0 || (v->keeps && layer >= k->nstore))
        return;
    struct Slot *slot = slots_find(&k->slots, layer);
    if (v->keeps)
        leave(z, slot);
    slot->owner = -1;
}

// ---- backward ----

// Queues the copy into a layer's slot, unless it never left.
static void finish_fill(struct Zero *z, struct Slot *slot) {
    struct Move m = move_of(offload_of(z)->keep, slot);
    if (slot->fill_queued)
        return;
    slot->fill_queued = true;
    mark_wait(&slot->drained, z->device, QUEUE_IN);
    move_in(&offload_of(z)->mover, &m);
    mark_record(&slot->arrived, z->device, QUEUE_IN);
}

// Begins to fetch a layer, unless it is here or on its way. From the disk it comes to staging
// first: a GPU's queue cannot wait for that, so the rest is left until the walk is there.
static void fetch(struct Zero *z, int layer) {
    struct Keep *k = offload_of(z)->keep;
    int unit = z->device->label.unit;
    if (slots_find(&k->slots, layer))
        return;
    struct Slot *slot = slots_take(&k->slots, layer);
    struct Move m = move_of(k, slot);
    z->device->label.unit = layer + 1;
    z->backing.host->label = z->device->label;
    move_begin(&offload_of(z)->mover, &m);
    if (!m.staging)
        finish_fill(z, slot);
    z->device->label.unit = unit;
}

// Behind a layer's own part, of those that left.
static void gather(const struct Keep *k, const struct Slot *slot, int layer) {
    char *whole = slot->block.mem;
    if (k->parts && layer < k->nstore)
        k->parts->gather(k->parts, whole, whole + k->parts->place * k->bytes, k->bytes);
}

static void before_backward(struct Zero *z, const struct Visit *v) {
    struct Keep *k = offload_of(z)->keep;
    int layer = layer_of(k, v->unit);
    if (layer < 0)
        return;
    fetch(z, layer);
    struct Slot *slot = slots_find(&k->slots, layer);
    finish_fill(z, slot);
    mark_wait(&slot->arrived, z->device, QUEUE_COMPUTE);
    gather(k, slot, layer);
    for (int ahead = 1; (size_t)ahead <= z->plan.prefetch && ahead < k->slots.count; ahead++)
        if (layer >= ahead)
            fetch(z, layer - ahead);
}

static void after_backward(struct Zero *z, const struct Visit *v) {
    struct Keep *k = offload_of(z)->keep;
    int layer = layer_of(k, v->unit);
    if (layer < 0)
        return;
    struct Slot *slot = slots_find(&k->slots, layer);
    mark_record(&slot->drained, z->device, QUEUE_COMPUTE);
    slot->owner = -1;
}

// ---- around a visit ----

void keep_before_unit(struct Zero *z, const struct Visit *v) {
    if (v->backward)
        before_backward(z, v);
    else
        before_forward(z, v);
}

void keep_after_unit(struct Zero *z, const struct Visit *v) {
    if (v->backward)
        after_backward(z, v);
    else
        after_forward(z, v);
}

// ---- predicted ----

struct Moved keep_moved(const struct Zero *z, const struct Visit *v) {
    const struct Offload *o = offload_of(z);
    const struct Keep *k = o ? o->keep : NULL;
    int layer = layer_of(k, v->unit);
    if (layer < 0 || layer >= k->nstore || !(v->backward || v->keeps))
        return (struct Moved){0};
    bool stays = k->store[layer].tier->kind == TIER_DEVICE;
    uint64_t bytes = stays ? 0 : k->bytes, disk = k->staging ? bytes : 0;
    return v->backward ? (struct Moved){.in = bytes, .read = disk}
                       : (struct Moved){.out = bytes, .written = disk};
}

size_t keep_gathered(const struct Zero *z) {
    const struct Offload *o = offload_of(z);
    const struct Keep *k = o ? o->keep : NULL;
    return k && k->parts ? (size_t)k->nstore * k->bytes : 0;
}
