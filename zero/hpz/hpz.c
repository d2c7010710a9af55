// A second partition of the weights: see hpz.h.
//
// All of it happens in the comm queue, so that copies and gathers are in order. A kept shard is out
// of date as soon as anything writes the group's weights: an update, a late one that is installed,
// a loaded checkpoint. Each of them records the group's mark `updated`, whose count tells whether
// the kept shard is still the newest.
#include "zero/hpz/hpz.h"

#include <stdio.h>
#include <stdlib.h>

struct HpzShard {
    struct Comm *group;
    struct Block kept;  // 1/H of the group
    bool has;           // something is kept,
    uint64_t of_update; // since this record of `updated`
};

struct Hpz {
    int count;
    struct HpzShard group[];
};

// Returns the bytes of a neighbour's part of a group, in the form in which it travels (zero/wire).
static size_t hpz_bytes(const struct Zero *z, int g, const struct Comm *neighbours) {
    return z->state[g].message_bytes * (size_t)(z->shard_group->size / neighbours->size);
}

static bool is_newest(const struct Zero *z, int g, void *second) {
    const struct HpzShard *s = second;
    return s->has && s->of_update == z->state[g].updated.records;
}

static bool is_old(const struct Zero *z, int g, void *second) {
    return !is_newest(z, g, second);
}

static void gather_hpz(struct Zero *z, const struct HopArgs *a) {
    struct HpzShard *s = a->context;
    size_t part = hpz_bytes(z, a->group, s->group);
    s->group->ops->all_gather(s->group, weights_arrive(z, a), s->kept.mem, part);
}

static void keep_shard(struct Zero *z, const struct HopArgs *a) {
    struct HpzShard *s = a->context;
    size_t part = hpz_bytes(z, a->group, s->group);
    char *own = weights_arrive(z, a) + part * (size_t)s->group->rank;
    device_copy(z->device, QUEUE_COMM, s->kept.mem, own, part);
    s->has = true;
    s->of_update = z->state[a->group].updated.records;
}

static const struct Hop hpz_all_gather = {"hpz_all_gather", POINT_BEFORE,        WHEN_ANY,
                                          QUEUE_COMM,       USES_WHOLE,          .run = gather_hpz,
                                          .where = HERE,    .wanted = is_newest, .instead = true};
// Runs after the gather in its queue; a unit need not wait for it.
static const struct Hop hpz_keep_shard = {
    "keep_shard",      POINT_AFTER,   WHEN_ANY,        QUEUE_COMM, 0,
    .run = keep_shard, .where = HERE, .wanted = is_old};

int hpz_open(struct Hpz **out, struct Zero *z, struct Comm *neighbours, struct Tier *tier,
             struct Error *e) {
    int n = z->params->ngroup, err = 0;
    struct Hpz *s = base_alloc_zeroed(sizeof *s + (size_t)n * sizeof s->group[0]);
    s->count = n;
    for (int g = 0; g < n && !err; g++) {
        struct HpzShard *group = &s->group[g];
        const struct Group *of = &z->params->group[g];
        char purpose[64];
        snprintf(purpose, sizeof purpose, "the second partition of %s", of->name);
        *group = (struct HpzShard){.group = neighbours};
        err = tier_alloc(tier, TAG_PARAM, purpose, hpz_bytes(z, g, neighbours), &group->kept, e);
        chain_add(&z->state[g].chain[FETCH], &hpz_all_gather, group);
        chain_add(&z->state[g].chain[FETCH], &hpz_keep_shard, group);
    }
    *out = s;
    return err;
}

void hpz_close(struct Hpz *s) {
    for (int g = 0; s && g < s->count; g++)
        tier_free(&s->group[g].kept);
    free(s);
}
