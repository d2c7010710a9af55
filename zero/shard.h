// What this rank has of a group: which state, and which elements of it.
#ifndef ZERO_SHARD_H
#define ZERO_SHARD_H
#include "zero/zero.h"

// True if a group has gradients and optimizer state; and master weights apart from its parameters.
static inline bool zero_trains(const struct Zero *z, int g) {
    return !z->plan.inference && !z->params->group[g].frozen;
}
static inline bool zero_has_master(const struct Zero *z, int g) {
    return z->plan.has_master && zero_trains(z, g);
}

// Where this rank's part of a placement begins in group g, and how many elements it has. owned: of
// the optimizer state; of a packed group, all that it keeps. shard: of a gradient, once it is
// reduced.
static inline size_t zero_part_numel(const struct Zero *z, const struct Placement *p, int g) {
    return z->params->group[g].padded / (p->shard_group ? (size_t)p->shard_group->size : 1);
}
static inline size_t zero_part_begin(const struct Zero *z, const struct Placement *p, int g) {
    return p->shard_group ? zero_part_numel(z, p, g) * (size_t)p->shard_group->rank : 0;
}
static inline const struct Placement *zero_owner(const struct Zero *z, int g) {
    return params_packs(z->params, g) ? &z->plan.param : &z->plan.optimizer;
}
static inline size_t zero_owned_numel(const struct Zero *z, int g) {
    return zero_part_numel(z, zero_owner(z, g), g);
}
static inline size_t zero_owned_begin(const struct Zero *z, int g) {
    return zero_part_begin(z, zero_owner(z, g), g);
}
static inline size_t zero_shard_numel(const struct Zero *z, int g) {
    return z->params->group[g].padded / (size_t)z->shard_group->size;
}

#endif
