// Activations that lie elsewhere between a layer's two passes: see offload/activations.h.
//
// Which layer a slot belongs to is the caller's knowledge, as the walk is queued. Marks keep the
// queues apart:
//
//   compute -> out   layer made     a layer's activations leave before its forward pass is done
//   out -> compute   layer stored   another layer overwrites activations that have not left yet
//   compute -> in    layer drained  another layer's arrive before the backward pass has read these
//   in -> compute    layer arrived  a backward pass reads activations that have not come yet
//
// Nothing else is needed. A layer's home is written before it is read: another layer came into its
// slot, whose forward pass waited for `stored`, and whose backward pass recorded `drained`; and on
// NVMe a landing is read into when what was written from it is on the disk (move.c). When a walk
// begins, each slot's last layer has had both its passes, or was of a walk without a backward pass;
// what else used the slot, compute has waited for. And a home is written anew by the next
// micro-batch, behind all of the backward pass that read it.
//
// Called by stages.c. Read next: move.c.
#include "zero/offload/activations.h"

#include "zero/offload/offload.h"

#include <stdlib.h>

// ---- opening ----

size_t keep_slots(enum TierKind home, size_t layers, size_t prefetch) {
    return home == TIER_DEVICE ? layers : size_min(layers, 1 + size_max(prefetch, 1));
}

static int open_slot(struct Zero *z, struct KeepSlot *slot, const struct KeepSpec *s, char *mem,
                     struct Error *e) {
    slot->mem = mem;
    slot->layer = -1;
    zero_open_mark(z, &slot->stored, "layer stored");
    zero_open_mark(z, &slot->drained, "layer drained");
    zero_open_mark(z, &slot->arrived, "layer arrived");
    if (s->home->kind != TIER_NVME)
        return 0;
    return landing_open(&slot->landing, &offload_of(z)->mover, TAG_ACTIVATION,
                        "activations to and from disk", s->bytes, s->cpu, e);
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
    *k = (struct Keep){.bytes = s->bytes,
                       .layers = (int)s->layers,
                       .nslot = (int)s->slots,
                       .nhome = (int)(s->layers - s->slots)};
    k->made = device_open_event(z->device, "layer made");
    zero_slots(z, s);
    k->slot = base_alloc_zeroed(s->slots * sizeof *k->slot);
    k->home = base_alloc_zeroed((size_t)k->nhome * sizeof *k->home);
    int err = 0;
    for (int i = 0; i < k->nslot && !err; i++)
        err = open_slot(z, &k->slot[i], s, s->mem + (size_t)i * s->bytes, e);
    for (int i = 0; i < k->nhome && !err; i++)
        err =
            tier_alloc(s->home, TAG_ACTIVATION, "activations of a layer", s->bytes, &k->home[i], e);
    return err;
}

void keep_close(struct Zero *z) {
    struct Keep *k = offload_of(z)->keep;
    if (!k)
        return;
    for (int i = 0; i < k->nslot; i++) {
        struct KeepSlot *slot = &k->slot[i];
        landing_close(&slot->landing);
        mark_close(&slot->stored);
        mark_close(&slot->drained);
        mark_close(&slot->arrived);
    }
    for (int i = 0; i < k->nhome; i++)
        tier_free(&k->home[i]);
    device_close_event(z->device, k->made);
    free(k->slot);
    free(k->home);
    free(k);
    offload_of(z)->keep = NULL;
}

// ---- which is where ----

// Unit u is layer u - 1; -1: one of the ends, or nothing leaves.
static int layer_of(const struct Keep *k, int u) {
    return k && u - 1 < k->layers ? u - 1 : -1;
}

static struct KeepSlot *slot_of(const struct Keep *k, int layer) {
    return &k->slot[layer % k->nslot];
}

static struct Move move_of(struct Keep *k, int layer) {
    struct KeepSlot *slot = slot_of(k, layer);
    return (struct Move){
        .home = &k->home[layer], .bytes = k->bytes, .mem = slot->mem, .landing = &slot->landing};
}

// ---- forward ----

static void before_forward(struct Zero *z, const struct Visit *v) {
    struct Keep *k = offload_of(z)->keep;
    int layer = layer_of(k, v->unit);
    if (layer < 0)
        return;
    struct KeepSlot *slot = slot_of(k, layer);
    mark_wait(&slot->stored, z->device, QUEUE_COMPUTE);
    slot->layer = layer;
    slot->complete = true;
}

static void after_forward(struct Zero *z, const struct Visit *v) {
    struct Keep *k = offload_of(z)->keep;
    int layer = layer_of(k, v->unit);
    if (layer < 0 || layer >= k->nhome || !v->keeps)
        return;
    struct Move m = move_of(k, layer);
    device_record(z->device, QUEUE_COMPUTE, k->made);
    device_wait(z->device, QUEUE_OUT, k->made);
    z->backing.host->label = z->device->label;
    move_out(&offload_of(z)->mover, &m);
    mark_record(&slot_of(k, layer)->stored, z->device, QUEUE_OUT);
}

// ---- backward ----

// Queues the copy into a layer's slot, unless it never left.
static void complete(struct Zero *z, int layer) {
    struct Keep *k = offload_of(z)->keep;
    struct KeepSlot *slot = slot_of(k, layer);
    if (slot->complete)
        return;
    struct Move m = move_of(k, layer);
    slot->complete = true;
    mark_wait(&slot->drained, z->device, QUEUE_IN);
    move_in(&offload_of(z)->mover, &m);
    mark_record(&slot->arrived, z->device, QUEUE_IN);
}

// Begins to fetch a layer, unless it is here or on its way. From the disk it comes to its landing
// first: a GPU's queue cannot wait for that, so the rest is left until the walk is there.
static void fetch(struct Zero *z, int layer) {
    struct Keep *k = offload_of(z)->keep;
    struct KeepSlot *slot = slot_of(k, layer);
    if (slot->layer == layer)
        return;
    CHECK(slot->layer < 0, "layer %d wants a slot that layer %d still has", layer, slot->layer);
    int unit = z->device->label.unit;
    struct Move m = move_of(k, layer);
    z->device->label.unit = layer + 1;
    z->backing.host->label = z->device->label;
    slot->layer = layer;
    slot->complete = false;
    move_begin(&offload_of(z)->mover, &m);
    if (m.home->tier->kind != TIER_NVME)
        complete(z, layer);
    z->device->label.unit = unit;
}

static void before_backward(struct Zero *z, const struct Visit *v) {
    struct Keep *k = offload_of(z)->keep;
    int layer = layer_of(k, v->unit);
    if (layer < 0)
        return;
    fetch(z, layer);
    complete(z, layer);
    mark_wait(&slot_of(k, layer)->arrived, z->device, QUEUE_COMPUTE);
    for (int ahead = 1; (size_t)ahead <= z->plan.prefetch && ahead < k->nslot; ahead++)
        if (layer >= ahead)
            fetch(z, layer - ahead);
}

static void after_backward(struct Zero *z, const struct Visit *v) {
    struct Keep *k = offload_of(z)->keep;
    int layer = layer_of(k, v->unit);
    if (layer < 0)
        return;
    mark_record(&slot_of(k, layer)->drained, z->device, QUEUE_COMPUTE);
    slot_of(k, layer)->layer = -1;
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

// ---- foretold ----

struct Moved keep_moved(const struct Zero *z) {
    const struct Offload *o = offload_of(z);
    const struct Keep *k = o ? o->keep : NULL;
    if (!k)
        return (struct Moved){0};
    uint64_t bytes = z->plan.nmicro * (uint64_t)k->nhome * k->bytes;
    bool disk = k->home[0].tier->kind == TIER_NVME;
    return (struct Moved){bytes, bytes, disk ? bytes : 0, disk ? bytes : 0};
}
