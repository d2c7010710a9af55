// Buffers that several owners use in turn.
//
// A rank that keeps only its shard of a group needs it whole during a unit's forward or backward
// pass. The walk is known, and groups that are needed together are neighbours in it, so the buffers
// are a ring in which an owner always has the same slot. The host tracks the owners as it queues
// the walk; marks order the queues (param.c, grad.c, offload/activations.c).
//
// Read next: backing.h, then open.c.
#include "zero/slots.h"

#include <stdlib.h>

static int open_slot(struct Slot *slot, int i, const struct SlotsSpec *spec, struct Error *e) {
    size_t bytes = spec->bytes[i > 0 || !spec->params];
    slot->owner = -1;
    mark_open(&slot->arrived, spec->mark_names[0], spec->device, spec->host);
    mark_open(&slot->drained, spec->mark_names[1], spec->device, spec->host);
    if (spec->tier)
        return tier_alloc(spec->tier, TAG_COMM, spec->purpose, bytes, &slot->block, e);
    slot->block = (struct Block){.mem = spec->mem + (size_t)i * bytes, .bytes = bytes};
    return 0;
}

int slots_open(struct Slots *s, const struct SlotsSpec *spec, struct Error *e) {
    int err = 0;
    *s = (struct Slots){spec->params, (spec->params != NULL) + spec->turns, NULL};
    s->slot = base_alloc_zeroed((size_t)s->count * sizeof *s->slot);
    for (int i = 0; i < s->count && !err; i++)
        err = open_slot(&s->slot[i], i, spec, e);
    return err;
}

void slots_close(struct Slots *s) {
    for (int i = 0; i < s->count; i++) {
        struct Slot *slot = &s->slot[i];
        tier_free(&slot->block);
        mark_close(&slot->arrived);
        mark_close(&slot->drained);
    }
    free(s->slot);
    *s = (struct Slots){0};
}

static struct Slot *owner_slot(const struct Slots *s, int owner) {
    int first = s->params ? 1 : 0; // first slot of the ring
    bool is_end = s->params && s->params->group[owner].kind == GROUP_END;
    return &s->slot[is_end ? 0 : first + owner % (s->count - first)];
}

struct Slot *slots_find(const struct Slots *s, int owner) {
    struct Slot *slot = owner_slot(s, owner);
    return slot->owner == owner ? slot : NULL;
}

bool slots_is_taken(const struct Slots *s, int owner) {
    return owner_slot(s, owner)->owner >= 0;
}

struct Slot *slots_acquire(const struct Slots *s, int owner) {
    struct Slot *slot = owner_slot(s, owner);
    CHECK(slot->owner < 0, "%d wants a slot that %d still has", owner, slot->owner);
    slot->owner = owner;
    slot->fill_queued = false;
    slot->next = 0;
    return slot;
}
