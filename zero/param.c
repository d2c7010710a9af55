// Parameters: how a unit gets its weights whole, and the fp32 master weights behind them.
//
// A rank keeps the weights of a group whole, or its shard of them. Where they are whole, ranks that
// updated only their part hand it round afterwards (params_gather). Where they are shards, a group
// is gathered into a slot just before a unit needs it and given up right after; and since the order
// of units is known, the gathers of the next units are queued along, to run while this one
// computes:
//
//   comm     gather 1 | gather 2 | gather 3 | ...
//   compute           | unit 1   | unit 2   | ...
//
//   compute -> comm   drained    the slot's last unit has read it
//   compute -> comm   updated    this rank's part of the weights is that of the new step
//   comm -> compute   filled     the slot holds the group; gathered: the group is whole again
//
// Read next: grad.c.
#include "zero/zero.h"

#include <stdlib.h>

size_t zero_shard_numel(const struct Zero *z, int g) {
    return z->params->group[g].padded / (size_t)z->dp->size;
}

size_t zero_kept_numel(const struct Zero *z, int g) {
    return z->plan.optimizer.sharded ? zero_shard_numel(z, g) : z->params->group[g].padded;
}

size_t zero_kept_begin(const struct Zero *z, int g) {
    return z->plan.optimizer.sharded ? zero_shard_numel(z, g) * (size_t)z->dp->rank : 0;
}

// Where the weights lie of which this rank has the optimizer state.
static void *kept_params(const struct Zero *z, int g) {
    size_t begin = z->plan.param.sharded ? 0 : zero_kept_begin(z, g);
    return dtype_at(z->state[g].param.mem, z->plan.param.dtype, begin);
}

float *zero_master(struct Zero *z, int g) {
    return z->plan.own_master ? z->state[g].master.mem : kept_params(z, g);
}

// ---- whole weights ----

// At stage 0 `gathered` is never recorded, and a wait for it is none.
void params_resident(struct Zero *z, int u, int g) {
    (void)u;
    device_wait(z->device, QUEUE_COMPUTE, z->state[g].gathered);
    z->w[g] = z->state[g].param.mem;
}

void params_gather(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    device_wait(z->device, QUEUE_COMM, s->updated);
    z->dp->ops->all_gather(z->dp, s->param.mem, kept_params(z, g),
                           zero_shard_numel(z, g) * dtype_size(z->plan.param.dtype));
    device_record(z->device, QUEUE_COMM, s->gathered);
}

// ---- weights in shards ----

// The walk as one line of positions: all units forward, then all backward.
static int position_forward(int u) {
    return u;
}
static int position_backward(const struct Zero *z, int u) {
    return 2 * params_units(z->params) - 1 - u;
}

static int unit_at(const struct Zero *z, int position) {
    int units = params_units(z->params);
    return position < units ? position : 2 * units - 1 - position;
}

// The group whose weights are read at a position; -1 where none are: beyond the end of this walk,
// and in the embedding's backward pass, which only adds up the rows of its gradient.
static int group_at(const struct Zero *z, int position) {
    int units = params_units(z->params), end = z->backward_follows ? 2 * units - 1 : units;
    return position < end ? params_unit_group(z->params, unit_at(z, position)) : -1;
}

// Queues the gather of a group, unless it is here or on its way.
static struct Slot *fetch(struct Zero *z, int unit, int g) {
    struct Device *d = z->device;
    int labelled = d->label.unit;
    struct Slot *slot = slots_find(&z->weights, g);
    if (slot)
        return slot;
    slot = slots_take(&z->weights, g);
    d->label.unit = unit;
    device_wait(d, QUEUE_COMM, slot->drained);
    device_wait(d, QUEUE_COMM, z->state[g].updated);
    z->dp->ops->all_gather(z->dp, slot->block.mem, z->state[g].param.mem,
                           zero_shard_numel(z, g) * dtype_size(z->plan.param.dtype));
    device_record(d, QUEUE_COMM, slot->filled);
    d->label.unit = labelled;
    return slot;
}

static void fetch_from(struct Zero *z, int position) {
    int g = group_at(z, position);
    if (g < 0)
        return;
    struct Slot *slot = fetch(z, unit_at(z, position), g);
    for (size_t ahead = 1; ahead <= z->plan.prefetch; ahead++) {
        int next = position + (int)ahead;
        if (group_at(z, next) >= 0)
            fetch(z, unit_at(z, next), group_at(z, next));
    }
    device_wait(z->device, QUEUE_COMPUTE, slot->filled);
    z->w[g] = slot->block.mem;
}

// The head's backward pass follows its forward pass: its weights stay.
static void release_at(struct Zero *z, int position) {
    int g = group_at(z, position);
    if (g < 0 || group_at(z, position + 1) == g)
        return;
    struct Slot *slot = slots_find(&z->weights, g);
    device_record(z->device, QUEUE_COMPUTE, slot->drained);
    slot->group = -1;
    z->w[g] = NULL;
}

void params_fetch_forward(struct Zero *z, int u, int g) {
    (void)g;
    fetch_from(z, position_forward(u));
}

void params_fetch_backward(struct Zero *z, int u, int g) {
    (void)g;
    fetch_from(z, position_backward(z, u));
}

void params_release_forward(struct Zero *z, int u, int g) {
    (void)g;
    release_at(z, position_forward(u));
}

void params_release_backward(struct Zero *z, int u, int g) {
    (void)g;
    release_at(z, position_backward(z, u));
}

// ---- initial values, and the hash ----

void zero_store_params(struct Zero *z) {
    struct Device *d = z->device;
    for (int g = 0; g < z->params->ngroup; g++) {
        if (z->plan.own_master)
            d->kernels->cast(d->queue[QUEUE_COMPUTE], &(struct Cast){
                                                          .n = zero_kept_numel(z, g),
                                                          .dst_dtype = z->plan.param.dtype,
                                                          .src_dtype = F32,
                                                          .dst = kept_params(z, g),
                                                          .src = zero_master(z, g),
                                                      });
        device_record(d, QUEUE_COMPUTE, z->state[g].updated);
        z->stage->after_update(z, g);
    }
}

static void zero_block(struct Zero *z, const struct Block *b) {
    device_zero(z->device, QUEUE_COMPUTE, b->mem, b->bytes);
}

void zero_init_weights(struct Zero *z, uint64_t seed) {
    for (int g = 0; g < z->params->ngroup; g++) {
        struct GroupState *s = &z->state[g];
        size_t begin = zero_kept_begin(z, g), end = begin + zero_kept_numel(z, g);
        params_init(z->params, g, begin, end, seed, z->device, zero_master(z, g));
        zero_block(z, &s->m);
        zero_block(z, &s->v);
        zero_block(z, &s->grad); // its padding stays 0 for ever
    }
    for (int i = 0; i < z->buckets.count; i++)
        zero_block(z, &z->buckets.slot[i].block); // likewise
    zero_store_params(z);
    z->step = 0;
}

enum {
    HASH_ELEMENTS = 1 << 18
}; // copied to the host at a time: no memory that grows with the model

static uint64_t hash_piece(struct Zero *z, int g, size_t begin, size_t end, float *host) {
    struct Device *d = z->device;
    device_copy(d, QUEUE_OUT, host, zero_master(z, g) + (begin - zero_kept_begin(z, g)),
                (end - begin) * sizeof *host);
    device_sync_queue(d, QUEUE_OUT);
    return params_hash(z->params, g, begin, end, host);
}

// Each rank hashes its own shard, whatever it keeps; the shards' hashes add up.
uint64_t zero_weights_hash(struct Zero *z) {
    uint64_t hash = 0, *all = base_alloc_zeroed((size_t)z->dp->size * sizeof *all);
    float *host = device_alloc_host(z->device, HASH_ELEMENTS * sizeof *host);
    device_sync_queue(z->device, QUEUE_COMPUTE);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t n = zero_shard_numel(z, g), end = n * ((size_t)z->dp->rank + 1);
        for (size_t begin = end - n; begin < end; begin += HASH_ELEMENTS)
            hash += hash_piece(z, g, begin, size_min(begin + HASH_ELEMENTS, end), host);
    }
    device_free_host(z->device, host);
    zero_share(z, hash, all);
    hash = 0;
    for (int r = 0; r < z->dp->size; r++)
        hash += all[r];
    free(all);
    return hash;
}
