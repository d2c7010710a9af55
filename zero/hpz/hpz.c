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
    struct Comm *neighbours;
    struct Block kept;      // 1/H of the group
    bool is_filled;         // something is kept,
    uint64_t update_record; // since this record of `updated`
};

struct Hpz {
    int count;
    struct HpzShard shard[];
};

// Returns the bytes of a neighbour's part of a group, in the form in which it travels (zero/wire).
static size_t neighbour_part_bytes(const struct Zero *z, int g, const struct Comm *neighbours) {
    return z->state[g].message_bytes * (size_t)(z->shard_group->size / neighbours->size);
}

static bool kept_is_current(const struct Zero *z, int g, void *context) {
    const struct HpzShard *s = context;
    return s->is_filled && s->update_record == z->state[g].updated.records;
}

static bool kept_is_stale(const struct Zero *z, int g, void *context) {
    return !kept_is_current(z, g, context);
}

static void gather_from_neighbours(struct Zero *z, const struct HopArgs *a) {
    struct HpzShard *s = a->context;
    size_t part = neighbour_part_bytes(z, a->group, s->neighbours);
    s->neighbours->ops->all_gather(s->neighbours, weights_gather_target(z, a), s->kept.mem, part);
}

static void keep_shard(struct Zero *z, const struct HopArgs *a) {
    struct HpzShard *s = a->context;
    size_t part = neighbour_part_bytes(z, a->group, s->neighbours);
    char *own = weights_gather_target(z, a) + part * (size_t)s->neighbours->rank;
    device_copy(z->device, QUEUE_COMM, s->kept.mem, own, part);
    s->is_filled = true;
    s->update_record = z->state[a->group].updated.records;
}

static const struct Hop hpz_all_gather = {"hpz_all_gather", POINT_BEFORE,
                                          WHEN_ANY,         QUEUE_COMM,
                                          USES_WHOLE,       .run = gather_from_neighbours,
                                          .where = HERE,    .wanted = kept_is_current,
                                          .instead = true};
// Runs after the gather in its queue; a unit need not wait for it.
static const struct Hop hpz_keep_shard = {
    "keep_shard",           POINT_AFTER, WHEN_ANY, QUEUE_COMM, 0, .run = keep_shard, .where = HERE,
    .wanted = kept_is_stale};

int hpz_open(struct Hpz **out, struct Zero *z, struct Comm *neighbours, struct Tier *tier,
             struct Error *e) {
    int n = z->params->ngroup, err = 0;
    struct Hpz *hpz = base_alloc_zeroed(sizeof *hpz + (size_t)n * sizeof hpz->shard[0]);
    hpz->count = n;
    for (int g = 0; g < n && !err; g++) {
        struct HpzShard *shard = &hpz->shard[g];
        char purpose[64];
        snprintf(purpose, sizeof purpose, "the second partition of %s", z->params->group[g].name);
        shard->neighbours = neighbours;
        err = tier_alloc(tier, TAG_PARAM, purpose, neighbour_part_bytes(z, g, neighbours),
                         &shard->kept, e);
        chain_add(&z->state[g].chain[FETCH], &hpz_all_gather, shard);
        chain_add(&z->state[g].chain[FETCH], &hpz_keep_shard, shard);
    }
    *out = hpz;
    return err;
}

void hpz_close(struct Hpz *hpz) {
    for (int g = 0; hpz && g < hpz->count; g++)
        tier_free(&hpz->shard[g].kept);
    free(hpz);
}
