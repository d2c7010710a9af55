// Activations that are kept elsewhere between a layer's two passes: see offload/activations.h.
//
// Layers use slots in turn, as groups do for their weights (zero/slots.c); marks order the queues
// (docs/events.md: layer ...).
//
// No other waits are needed. A layer's store is written before it is read: either it was the last
// to leave its slot, or another layer came there, whose forward pass waited for the copy out, and
// which left in its turn or had its backward pass; and on NVMe a staging buffer is filled again
// only when its last bytes are on the disk (move.c). When a walk begins, each slot's last layer has
// had both its passes, or has left, or was of a walk without a backward pass; compute has waited
// for anything else that used the slot. And a store is written anew by the next micro-batch of its
// set, after all of the backward pass that read it.
//
// Called through struct BackingOps (attach.c). Read next: move.c.
#include "zero/offload/activations.h"

#include "zero/offload/offload.h"

#include <stdlib.h>

struct ActOffload {
    size_t layers, sets;
    size_t offloaded_layers;    // layers 0 .. offloaded_layers - 1 of each set leave the device
    struct Slots slots;         // their owners: set * layers + layer
    struct Staging *staging;    // of each slot, if stores are on NVMe; else NULL
    struct Block *store;        // (sets, offloaded_layers)
    size_t bytes;               // of each: of a slot, or of this TP rank's part of it
    const struct TpComm *parts; // TP ranks that keep a part each; or NULL
    struct Event *layer_made;
};

// ---- opening ----

size_t act_offload_slots(enum TierKind store, bool in_parts, size_t kept, size_t prefetch) {
    bool stays = store == TIER_DEVICE && !in_parts;
    return stays ? kept : size_min(kept, 1 + size_max(prefetch, 1));
}

static int open_stagings(struct Zero *z, struct ActOffload *k, const struct ActOffloadSpec *s,
                         struct Error *e) {
    int err = 0;
    k->staging = base_alloc_zeroed(s->slots * sizeof *k->staging);
    for (size_t i = 0; i < s->slots && !err; i++)
        err = staging_open(&k->staging[i], &offload_of(z)->mover, TAG_ACTIVATION,
                           "activations to and from disk", k->bytes, s->cpu, e);
    return err;
}

int act_offload_open(struct Zero *z, const struct ActOffloadSpec *s, struct Error *e) {
    if (s->slots == s->layers * s->sets)
        return 0;
    // With several sets a fill waits until the newest layer is made (queue_fill), but a head reads
    // the last layer's slot after that. (A plan's stage that stands for all of a pipeline has one.)
    bool head = z->params->unit[z->params->nunit - 1].kind == UNIT_HEAD;
    CHECK(s->dry || s->sets == 1 || !head, "%zu sets beside a head", s->sets);
    struct ActOffload *k = offload_of(z)->acts = base_alloc_zeroed(sizeof *k);
    struct SlotsSpec slots = {.device = z->device,
                              .host = z->backing.host,
                              .turns = (int)s->slots,
                              .bytes = {0, s->bytes},
                              .mem = s->mem,
                              .mark_names = {"layer arrived", "layer drained"}};
    *k = (struct ActOffload){.layers = s->layers,
                             .sets = s->sets,
                             .offloaded_layers = s->sets > 1 ? s->layers : s->layers - s->slots,
                             .bytes = s->bytes / tp_comm_size(s->parts),
                             .parts = s->parts};
    k->layer_made = device_open_event(z->device, "layer made");
    k->store = base_alloc_zeroed(k->sets * k->offloaded_layers * sizeof *k->store);
    if (!s->dry) { // slots are moved whole, with gaps and the space that a small batch leaves
        device_zero(z->device, QUEUE_COMPUTE, s->mem, s->slots * s->bytes);
        device_sync_queue(z->device, QUEUE_COMPUTE);
    }
    int err = slots_open(&k->slots, &slots, e);
    if (!err && s->store->kind == TIER_NVME)
        err = open_stagings(z, k, s, e);
    for (size_t i = 0; i < k->sets * k->offloaded_layers && !err; i++)
        if (i % k->offloaded_layers >= s->forgotten)
            err = tier_alloc(s->store, TAG_ACTIVATION, "activations of a layer", k->bytes,
                             &k->store[i], e);
    return err;
}

void act_offload_close(struct Zero *z) {
    struct ActOffload *k = offload_of(z)->acts;
    if (!k)
        return;
    for (int i = 0; k->staging && i < k->slots.count; i++)
        staging_close(&k->staging[i]);
    for (size_t i = 0; i < k->sets * k->offloaded_layers; i++)
        tier_free(&k->store[i]);
    device_close_event(z->device, k->layer_made);
    slots_close(&k->slots);
    free(k->staging);
    free(k->store);
    free(k);
    offload_of(z)->acts = NULL;
}

// ---- which layer is where ----

// Returns the owner of what a visit keeps; -1: it is a unit without layer, or nothing leaves.
static int visit_owner(const struct Zero *z, const struct Visit *v) {
    const struct Offload *o = offload_of(z);
    const struct ActOffload *k = o ? o->acts : NULL;
    int layer = v->unit < 0 ? -1 : z->params->unit[v->unit].layer;
    return k && layer >= 0 ? (int)(v->micro % k->sets * k->layers) + layer : -1;
}

// True if the activations of this owner, which is not -1, leave the device.
static bool leaves_device(const struct ActOffload *k, int owner) {
    return (size_t)owner % k->layers < k->offloaded_layers;
}

static struct Move activation_move(struct ActOffload *k, struct Slot *slot) {
    size_t set = (size_t)slot->owner / k->layers, layer = (size_t)slot->owner % k->layers;
    return (struct Move){
        .store = &k->store[set * k->offloaded_layers + layer],
        .bytes = k->bytes,
        .mem = (char *)slot->block.mem + (k->parts ? k->parts->rank * k->bytes : 0),
        .staging = k->staging ? &k->staging[slot - k->slots.slot] : NULL,
    };
}

// ---- forward ----

// The first layer gets its slot earlier, since its input goes there: from the embedding or from
// another pipeline stage.
static void before_forward(struct Zero *z, const struct Visit *v) {
    struct ActOffload *k = offload_of(z)->acts;
    bool is_embedding = z->params->unit[v->unit].kind == UNIT_EMBEDDING;
    int owner = visit_owner(z, is_embedding ? v + 1 : v);
    if (owner < 0 || slots_find(&k->slots, owner))
        return;
    struct Slot *slot = slots_acquire(&k->slots, owner);
    mark_wait(&slot->drained, z->device, QUEUE_COMPUTE);
    slot->fill_queued = true;
}

// Queues the copy of a slot to its store, after the forward pass that filled it.
static void queue_slot_out(struct Zero *z, struct Slot *slot) {
    struct Offload *o = offload_of(z);
    struct Move m = activation_move(o->acts, slot);
    device_record(z->device, QUEUE_COMPUTE, o->acts->layer_made);
    device_wait(z->device, QUEUE_OUT, o->acts->layer_made);
    z->backing.host->label = z->device->label;
    move_out(&o->mover, &m);
    mark_record(&slot->drained, z->device, QUEUE_OUT);
}

// Layers that do not leave stay until their backward passes; of one without, nothing is kept: its
// slot goes on to a layer that computes after it.
static void after_forward(struct Zero *z, const struct Visit *v) {
    struct ActOffload *k = offload_of(z)->acts;
    int owner = visit_owner(z, v);
    if (owner < 0 || (v->saves_acts && !leaves_device(k, owner)))
        return;
    struct Slot *slot = slots_find(&k->slots, owner);
    if (v->saves_acts)
        queue_slot_out(z, slot);
    slot->owner = -1;
}

// ---- backward ----

// Queues the copy into a layer's slot, unless it never left. With several sets the slot may be that
// of a layer that has left, but whose output the newest layer reads: then it waits for that one.
static void queue_fill(struct Zero *z, struct Slot *slot) {
    if (slot->fill_queued)
        return;
    struct ActOffload *k = offload_of(z)->acts;
    struct Move m = activation_move(k, slot);
    slot->fill_queued = true;
    mark_wait(&slot->drained, z->device, QUEUE_IN);
    if (k->sets > 1)
        device_wait(z->device, QUEUE_IN, k->layer_made);
    move_in(&offload_of(z)->mover, &m);
    mark_record(&slot->arrived, z->device, QUEUE_IN);
}

// Begins to fetch what a visit's owner kept, unless it is here or on its way. From disk it comes to
// staging first: a GPU's queue cannot wait for that, so the rest is queued when the walk gets
// there.
static void begin_fetch(struct Zero *z, const struct Visit *v, int owner) {
    struct ActOffload *k = offload_of(z)->acts;
    struct Label label = z->device->label;
    if (slots_find(&k->slots, owner))
        return;
    struct Slot *slot = slots_acquire(&k->slots, owner);
    struct Move m = activation_move(k, slot);
    zero_label_visit(z, v);
    z->backing.host->label = z->device->label;
    move_begin(&offload_of(z)->mover, &m);
    if (!m.staging)
        queue_fill(z, slot);
    z->device->label = label;
}

// Fetches for backward passes that follow this visit without a forward pass in between: in their
// order, and as far as their slots are free.
static void prefetch_activations(struct Zero *z, const struct Visit *v) {
    struct ActOffload *k = offload_of(z)->acts;
    size_t ahead = size_min(z->plan.prefetch, (size_t)k->slots.count - 1);
    for (v++; ahead > 0 && v->unit >= 0 && v->backward; v++) {
        int owner = visit_owner(z, v);
        if (owner < 0)
            continue;
        if (!slots_find(&k->slots, owner) && slots_is_taken(&k->slots, owner))
            return;
        begin_fetch(z, v, owner);
        ahead--;
    }
}

static void before_backward(struct Zero *z, const struct Visit *v) {
    struct ActOffload *k = offload_of(z)->acts;
    int owner = visit_owner(z, v);
    if (owner < 0)
        return;
    begin_fetch(z, v, owner);
    struct Slot *slot = slots_find(&k->slots, owner);
    queue_fill(z, slot);
    mark_wait(&slot->arrived, z->device, QUEUE_COMPUTE);
    char *whole = slot->block.mem;
    if (k->parts && leaves_device(k, owner)) // after this TP rank's own part
        k->parts->all_gather(k->parts, whole, whole + k->parts->rank * k->bytes, k->bytes);
    prefetch_activations(z, v);
}

static void after_backward(struct Zero *z, const struct Visit *v) {
    struct ActOffload *k = offload_of(z)->acts;
    int owner = visit_owner(z, v);
    if (owner < 0)
        return;
    struct Slot *slot = slots_find(&k->slots, owner);
    mark_record(&slot->drained, z->device, QUEUE_COMPUTE);
    slot->owner = -1;
}

// ---- around a visit ----

void act_offload_before_unit(struct Zero *z, const struct Visit *v) {
    if (v->backward)
        before_backward(z, v);
    else
        before_forward(z, v);
}

void act_offload_after_unit(struct Zero *z, const struct Visit *v) {
    if (v->backward)
        after_backward(z, v);
    else
        after_forward(z, v);
    if (offload_of(z)->acts)
        prefetch_activations(z, v);
}
