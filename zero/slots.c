// Buffers for whole groups, used by one group after another.
//
// A rank that keeps only shards needs a group whole for the time of a unit's forward or backward
// pass. The walk is known, so the buffers are a ring: blocks take turns, and group 0, which is
// larger and is used at both ends of the walk, has its own. Which group a slot holds is the host's
// knowledge, as the walk is queued; events keep the queues apart (param.c, grad.c).
#include "zero/zero.h"

#include <stdlib.h>
#include <string.h>

static int open_slot(struct Zero *z, struct Slot *slot, int g, enum Dtype dtype, enum Tag tag,
                     const char *purpose, struct Tier *tier, struct Error *e) {
    slot->group = -1;
    slot->filled = z->device->ops->event_open(z->device);
    slot->drained = z->device->ops->event_open(z->device);
    return tier_alloc(tier, tag, purpose, z->params->group[g].padded * dtype_size(dtype),
                      &slot->block, e);
}

// One slot for group 0 and `blocks` for the others.
int slots_open(struct Zero *z, struct Slots *s, int blocks, enum Dtype dtype, enum Tag tag,
               const char *purpose, struct Tier *tier, struct Error *e) {
    int err = 0;
    *s = (struct Slots){.count = 1 + blocks, .next = 1};
    s->slot = base_alloc_zeroed((size_t)s->count * sizeof *s->slot);
    for (int i = 0; i < s->count && !err; i++)
        err = open_slot(z, &s->slot[i], i ? 1 : 0, dtype, tag, purpose, tier, e);
    return err;
}

void slots_close(struct Zero *z, struct Slots *s) {
    for (int i = 0; i < s->count && s->slot[i].filled; i++) {
        tier_free(&s->slot[i].block);
        z->device->ops->event_close(s->slot[i].filled);
        z->device->ops->event_close(s->slot[i].drained);
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
    return slot;
}
