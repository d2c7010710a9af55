// Buffers for groups, used by one group after another.
//
// A rank that keeps only its shard of a group needs it whole for the time of a unit's forward or
// backward pass. The walk is known, so the buffers are a ring: blocks take turns, and the groups of
// the model's ends, which are larger, have one of their own. Which group a slot holds is the host's
// knowledge, as the walk is queued; marks keep the queues apart (param.c, grad.c).
//
// Read next: state.c.
#include "zero/zero.h"

#include <stdlib.h>

static int open_slot(struct Zero *z, struct Slot *slot, int g, const struct SlotsSpec *spec,
                     struct Tier *tier, struct Error *e) {
    size_t n = spec->whole ? z->params->group[g].padded : zero_shard_numel(z, g);
    size_t bytes = n * dtype_size(spec->dtype);
    slot->group = -1;
    zero_open_mark(z, &slot->part, spec->mark_names[0]);
    zero_open_mark(z, &slot->arrived, spec->mark_names[1]);
    zero_open_mark(z, &slot->drained, spec->mark_names[2]);
    return tier_alloc(tier, spec->tag, spec->purpose, bytes, &slot->block, e);
}

// One slot for the ends' groups and `blocks` for the blocks'.
int slots_open(struct Zero *z, struct Slots *s, const struct SlotsSpec *spec, struct Tier *tier,
               struct Error *e) {
    int err = 0;
    *s = (struct Slots){.params = z->params, .count = 1 + spec->blocks, .next = 1};
    s->slot = base_alloc_zeroed((size_t)s->count * sizeof *s->slot);
    for (int i = 0; i < s->count && !err; i++)
        err = open_slot(z, &s->slot[i], z->params->largest[i > 0], spec, tier, e);
    return err;
}

void slots_close(struct Slots *s) {
    for (int i = 0; i < s->count; i++) {
        struct Slot *slot = &s->slot[i];
        tier_free(&slot->block);
        mark_close(&slot->part);
        mark_close(&slot->arrived);
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
    for (int tries = 1; params_is_block(s->params, g) && tries < s->count; tries++) {
        slot = &s->slot[s->next];
        s->next = s->next + 1 < s->count ? s->next + 1 : 1;
        if (slot->group < 0)
            break;
    }
    CHECK(slot->group < 0, "group %d wants a slot that group %d still has", g, slot->group);
    slot->group = g;
    slot->filling = false;
    return slot;
}
