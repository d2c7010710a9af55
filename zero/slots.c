// Buffers for groups, used by one group after another.
//
// A rank that keeps only shards, or keeps a group elsewhere, needs it whole on the device for the
// time of a unit's forward or backward pass. The walk is known, so the buffers are a ring: blocks
// take turns, and group 0, which is larger and is used at both ends of the walk, has its own. Which
// group a slot holds is the host's knowledge, as the walk is queued; marks keep the queues apart
// (param.c, grad.c).
#include "zero/zero.h"

#include <stdlib.h>
#include <string.h>

static int open_slot(struct Zero *z, struct Slot *slot, int g, const struct SlotsSpec *spec,
                     struct Tier *tier, struct Error *e) {
    size_t n = spec->whole ? z->params->group[g].padded : zero_shard_numel(z, g);
    size_t bytes = n * dtype_size(spec->dtype);
    slot->group = -1;
    mark_open(&slot->own, z->device, z->host);
    mark_open(&slot->filled, z->device, z->host);
    mark_open(&slot->drained, z->device, z->host);
    int err = tier_alloc(tier, spec->tag, spec->purpose, bytes, &slot->block, e);
    size_t home = z->plan.param.sharded ? zero_shard_numel(z, g) * dtype_size(spec->dtype) : bytes;
    if (!err && spec->landing)
        err = landing_open(&slot->landing, &z->mover, spec->tag, "weights from disk", home,
                           spec->landing, e);
    return err;
}

// One slot for group 0 and `blocks` for the others.
int slots_open(struct Zero *z, struct Slots *s, const struct SlotsSpec *spec, struct Tier *tier,
               struct Error *e) {
    int err = 0;
    *s = (struct Slots){.count = 1 + spec->blocks, .next = 1};
    s->slot = base_alloc_zeroed((size_t)s->count * sizeof *s->slot);
    for (int i = 0; i < s->count && !err; i++)
        err = open_slot(z, &s->slot[i], i ? 1 : 0, spec, tier, e);
    return err;
}

void slots_close(struct Slots *s) {
    for (int i = 0; i < s->count; i++) {
        struct Slot *slot = &s->slot[i];
        landing_close(&slot->landing);
        tier_free(&slot->block);
        mark_close(&slot->own);
        mark_close(&slot->filled);
        mark_close(&slot->drained);
    }
    free(s->slot);
    *s = (struct Slots){0};
}

struct Slot *slots_find(struct Slots *s, int g) {
    for (int i = 0; i < s->count; i++)
        if (s->slot[i].group == g)
            return &s->slot[i];
    return NULL;
}

struct Slot *slots_take(struct Slots *s, int g) {
    struct Slot *slot = &s->slot[0];
    // Where the walk turns round, a block that is still in use is not fetched again, and slots come
    // free in another order than they were taken.
    for (int tries = 1; g > 0 && tries < s->count; tries++) {
        slot = &s->slot[s->next];
        s->next = s->next + 1 < s->count ? s->next + 1 : 1;
        if (slot->group < 0)
            break;
    }
    CHECK(slot->group < 0, "group %d wants a slot that group %d still has", g, slot->group);
    slot->group = g;
    slot->complete = false;
    return slot;
}
