// The optimizer's state as a whole: initial values, copies for checkpoints, and the weights' hash.
//
// What a training step does with it is in opt.c and offload/update.c. Here it is read and written
// from the host's side in chunks, wherever it lies, so that no memory grows with the model.
//
// Called between steps. Read next: checkpoint.h.
#include "zero/zero.h"

#include <stdlib.h>

// ---- this rank's part ----

size_t zero_shard_numel(const struct Zero *z, int g) {
    return z->params->group[g].padded / (size_t)z->dp->size;
}

size_t zero_kept_numel(const struct Zero *z, int g) {
    return z->plan.optimizer.sharded ? zero_shard_numel(z, g) : z->params->group[g].padded;
}

size_t zero_kept_begin(const struct Zero *z, int g) {
    return z->plan.optimizer.sharded ? zero_shard_numel(z, g) * (size_t)z->dp->rank : 0;
}

float *zero_master(struct Zero *z, int g) {
    struct StatePlace p = zero_state_place(z, g, STATE_MASTER);
    return p.block->mem ? (float *)((char *)p.block->mem + p.offset) : NULL;
}

struct StatePlace zero_state_place(struct Zero *z, int g, enum State what) {
    struct GroupState *s = &z->state[g];
    if (what == STATE_M)
        return (struct StatePlace){&s->m, 0, z->plan.moments_dtype};
    if (what == STATE_V)
        return (struct StatePlace){&s->v, 0, z->plan.moments_dtype};
    if (what == STATE_MASTER && z->plan.own_master)
        return (struct StatePlace){&s->master, 0, F32};
    size_t offset = params_own_offset(z, g) * dtype_size(z->plan.param.dtype);
    return (struct StatePlace){&s->param, offset, z->plan.param.dtype};
}

// ---- chunks ----

// Narrow elements lie in the second half of a chunk, so that they can be made wide from the front
// on in the same memory: element i is written at 4 i, and read at 2 n + 2 i.
static void *narrow_part(float *chunk, size_t n, enum Dtype dtype) {
    return (char *)chunk + n * (sizeof *chunk - dtype_size(dtype));
}

void zero_read_state(struct Zero *z, int g, enum State what, size_t i, size_t n, float *out) {
    struct StatePlace p = zero_state_place(z, g, what);
    size_t size = dtype_size(p.dtype);
    void *raw = narrow_part(out, n, p.dtype);
    CHECK(n <= STATE_CHUNK, "%zu elements at once", n);
    move_now_in(&z->mover, p.block, p.offset + i * size, raw, n * size);
    if (p.dtype != F32)
        for (size_t j = 0; j < n; j++)
            out[j] = dtype_load(raw, p.dtype, j);
}

void zero_write_state(struct Zero *z, int g, enum State what, size_t i, size_t n, float *in) {
    struct StatePlace p = zero_state_place(z, g, what);
    size_t size = dtype_size(p.dtype);
    CHECK(n <= STATE_CHUNK, "%zu elements at once", n);
    if (p.dtype != F32) // element j is read at 4 j, and written at 2 j
        for (size_t j = 0; j < n; j++)
            dtype_store(in, p.dtype, j, in[j]);
    move_now_out(&z->mover, p.block, p.offset + i * size, in, n * size);
}

void zero_sync(struct Zero *z) {
    for (int q = 0; q < NQUEUE; q++)
        device_sync_queue(z->device, (enum Queue)q);
    for (int q = 0; q < NQUEUE && z->host; q++)
        device_sync_queue(z->host, (enum Queue)q);
}

// ---- initial values ----

static void init_device(struct Zero *z, int g, uint64_t seed) {
    struct GroupState *s = &z->state[g];
    size_t begin = zero_kept_begin(z, g), end = begin + zero_kept_numel(z, g);
    params_init(z->params, g, begin, end, seed, z->device, zero_master(z, g));
    device_zero(z->device, QUEUE_COMPUTE, s->m.mem, s->m.bytes);
    device_zero(z->device, QUEUE_COMPUTE, s->v.mem, s->v.bytes);
}

static void init_elsewhere(struct Zero *z, int g, uint64_t seed, float *chunk) {
    size_t begin = zero_kept_begin(z, g), numel = zero_kept_numel(z, g);
    for (size_t i = 0; i < numel; i += STATE_CHUNK) {
        size_t n = size_min(STATE_CHUNK, numel - i);
        params_init(z->params, g, begin + i, begin + i + n, seed, z->host, chunk);
        device_sync_queue(z->host, QUEUE_COMPUTE);
        zero_write_state(z, g, STATE_MASTER, i, n, chunk);
        for (enum State what = STATE_M; what <= STATE_V; what++) {
            for (size_t j = 0; j < n; j++)
                chunk[j] = 0;
            zero_write_state(z, g, what, i, n, chunk);
        }
    }
}

static void zero_on_device(struct Zero *z, const struct Block *b) {
    if (b->tier && b->tier->kind == TIER_DEVICE)
        device_zero(z->device, QUEUE_COMPUTE, b->mem, b->bytes);
}

// Padding of gradients stays 0 for ever; an offloaded gradient's comes with it from a bucket.
static void zero_gradients(struct Zero *z) {
    for (int g = 0; g < z->params->ngroup; g++)
        zero_on_device(z, &z->state[g].grad[0]);
    for (int i = 0; i < z->buckets.count; i++)
        zero_on_device(z, &z->buckets.slot[i].block);
}

void zero_init_weights(struct Zero *z, uint64_t seed) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    zero_sync(z);
    for (int g = 0; g < z->params->ngroup; g++)
        if (z->state[g].m.tier->kind == TIER_DEVICE && zero_master(z, g))
            init_device(z, g, seed);
        else
            init_elsewhere(z, g, seed, chunk);
    zero_gradients(z);
    device_free_host(z->device, chunk);
    zero_store_params(z, false);
    z->step = z->known = 0;
}

// ---- parameters := master weights ----

static void store_device(struct Zero *z, int g) {
    struct Device *d = z->device;
    void *param = dtype_at(z->state[g].param.mem, z->plan.param.dtype, params_own_offset(z, g));
    d->kernels->cast(d->queue[QUEUE_COMPUTE], &(struct Cast){
                                                  .n = zero_kept_numel(z, g),
                                                  .dst_dtype = z->plan.param.dtype,
                                                  .src_dtype = F32,
                                                  .dst = param,
                                                  .src = zero_master(z, g),
                                              });
}

// Wherever both lie; fresh weights are those, too, and they alone if the update is late.
static void store_elsewhere(struct Zero *z, int g, bool late, float *chunk) {
    struct GroupState *s = &z->state[g];
    enum Dtype dtype = z->plan.param.dtype;
    size_t numel = zero_kept_numel(z, g), size = dtype_size(dtype);
    size_t at = params_own_offset(z, g) * size;
    for (size_t i = 0; i < numel; i += STATE_CHUNK) {
        size_t n = size_min(STATE_CHUNK, numel - i);
        zero_read_state(z, g, STATE_MASTER, i, n, chunk);
        for (size_t j = 0; j < n && dtype != F32; j++)
            dtype_store(chunk, dtype, j, chunk[j]);
        if (!late)
            move_now_out(&z->mover, &s->param, at + i * size, chunk, n * size);
        if (s->fresh.tier)
            move_now_out(&z->mover, &s->fresh, i * size, chunk, n * size);
    }
}

void zero_store_params(struct Zero *z, bool late) {
    CHECK(!late || z->plan.delayed, "a late update where none is");
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    zero_sync(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        struct GroupState *s = &z->state[g];
        bool near = s->param.tier->kind == TIER_DEVICE && s->m.tier->kind == TIER_DEVICE;
        if (z->plan.own_master && near)
            store_device(z, g);
        else if (z->plan.own_master)
            store_elsewhere(z, g, late, chunk);
    }
    device_free_host(z->device, chunk);
    // Only now, since these use the disk, too, which takes one reader and one writer at a time.
    for (int g = 0; g < z->params->ngroup; g++) {
        struct GroupState *s = &z->state[g];
        s->pending = late ? PENDING_LATE : PENDING_NOT;
        if (s->param.tier->kind == TIER_DEVICE) // elsewhere they are in their place already
            mark_record(&s->updated, z->device, QUEUE_COMPUTE);
        z->stage->after_update(z, g);
    }
}

bool zero_is_late(const struct Zero *z) {
    return z->state[0].pending == PENDING_LATE; // and so all groups
}

// ---- the hash ----

// Each rank hashes its own shard, whatever it keeps; the shards' hashes add up.
uint64_t zero_weights_hash(struct Zero *z) {
    uint64_t hash = 0, *all = base_alloc_zeroed((size_t)z->dp->size * sizeof *all);
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    host_finish(z);
    zero_sync(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t shard = zero_shard_numel(z, g), end = shard * ((size_t)z->dp->rank + 1);
        for (size_t begin = end - shard; begin < end; begin += STATE_CHUNK) {
            size_t stop = size_min(begin + STATE_CHUNK, end);
            zero_read_state(z, g, STATE_MASTER, begin - zero_kept_begin(z, g), stop - begin, chunk);
            hash += params_hash(z->params, g, begin, stop, chunk);
        }
    }
    device_free_host(z->device, chunk);
    zero_share(z, hash, all);
    hash = 0;
    for (int r = 0; r < z->dp->size; r++)
        hash += all[r];
    free(all);
    return hash;
}
