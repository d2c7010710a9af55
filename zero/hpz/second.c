// A second partition of the weights: see second.h.
//
// All of it happens in the comm queue, so that copy and gatherings are in order. What a rank keeps
// is out of date as soon as anything writes the group's weights: an update, a late one that is
// installed, a checkpoint that is loaded. Each of them records the group's mark `updated`, which
// counts; so the count says whether what was kept is still the newest.
//
//   compute -> comm   weights drained   a group is gathered over weights that a unit still reads
#include "zero/hpz/second.h"

#include <stdio.h>
#include <stdlib.h>

struct SecondGroup {
    struct SlotSource source; // first: the group's source is it
    struct Comm *near;
    struct Block kept;  // 1/H of the group
    bool has;           // anything,
    uint64_t of_update; // and that of this record of `updated`
};

struct Second {
    int count;
    struct SecondGroup group[];
};

static void begin(struct Zero *z, struct Slot *slot, int g);

static struct SecondGroup *second_of(const struct Zero *z, int g) {
    const struct SlotSource *source = z->state[g].source;
    return source && source->begin == begin ? (struct SecondGroup *)source : NULL;
}

const struct Comm *second_near(const struct Zero *z, int g) {
    struct SecondGroup *s = second_of(z, g);
    return s ? s->near : NULL;
}

// Of a neighbour, in bytes: of what came, in the form in which it came (zero/wire).
static size_t second_bytes(const struct Zero *z, int g, const struct Comm *near) {
    size_t n = z->params->group[g].padded / (size_t)near->size;
    return wire_weight_bytes(z->wire, z->plan.param.dtype, n);
}

static void begin(struct Zero *z, struct Slot *slot, int g) {
    struct SecondGroup *s = second_of(z, g);
    uint64_t newest = z->state[g].updated.records;
    char *arrivals = wire_arrivals(z->wire, slot->block.mem);
    size_t part = second_bytes(z, g, s->near);
    if (s->has && s->of_update == newest) {
        mark_wait(&slot->drained, z->device, QUEUE_COMM); // weights drained
        s->near->ops->all_gather(s->near, arrivals, s->kept.mem, part);
        wire_read(z->wire, slot->block.mem, (size_t)z->dp->size, zero_shard_numel(z, g),
                  z->plan.param.dtype);
        mark_record(&slot->arrived, z->device, QUEUE_COMM); // weights arrived
        return;
    }
    slot_source_shards.begin(z, slot, g);
    device_copy(z->device, QUEUE_COMM, s->kept.mem, arrivals + part * (size_t)s->near->rank, part);
    s->has = true;
    s->of_update = newest;
}

int second_open(struct Second **out, struct Zero *z, struct Comm *near, struct Tier *tier,
                struct Error *e) {
    int n = z->params->ngroup, err = 0;
    struct Second *s = base_alloc_zeroed(sizeof *s + (size_t)n * sizeof s->group[0]);
    s->count = n;
    for (int g = 0; g < n && !err; g++) {
        struct SecondGroup *group = &s->group[g];
        const struct Group *of = &z->params->group[g];
        char purpose[64];
        snprintf(purpose, sizeof purpose, "the second partition of %s", of->name);
        *group = (struct SecondGroup){.source = {begin, z->state[g].source->finish}, .near = near};
        err = tier_alloc(tier, TAG_PARAM, purpose, second_bytes(z, g, near), &group->kept, e);
        z->state[g].source = &group->source;
    }
    *out = s;
    return err;
}

void second_close(struct Second *s) {
    for (int g = 0; s && g < s->count; g++)
        tier_free(&s->group[g].kept);
    free(s);
}
