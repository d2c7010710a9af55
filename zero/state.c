// The optimizer's state as a whole: initial values, and copies for checkpoints, which the host
// makes in chunks, so that no memory grows with the model. What a training step does with it is in
// opt.c. Read next: open.c, then zero/checkpoint/checkpoint.h.
#include "zero/state.h"

// ---- this rank's part ----

struct Block *zero_own_block(struct Zero *z, int g) {
    return z->plan.unquantized_shard ? &z->state[g].unquantized : &z->state[g].param;
}
size_t weights_own_offset(const struct Zero *z, int g) {
    return z->plan.param.shard_group || z->plan.unquantized_shard ? 0 : zero_owned_begin(z, g);
}

static void *location_mem(struct StateLocation p) {
    return p.block && p.block->mem ? (char *)p.block->mem + p.offset : NULL;
}
void *zero_own_weights(struct Zero *z, int g) {
    return location_mem(zero_state_location(z, g, PARAM_CURRENT));
}
void *zero_master(struct Zero *z, int g) {
    return location_mem(zero_state_location(z, g, STATE_MASTER));
}
void *zero_newest_weights(struct Zero *z, int g) { // bf16 master weights are all that is written
    bool same = z->state[g].masters->format == MASTER_BF16;
    return same ? NULL : location_mem(zero_state_location(z, g, PARAM_NEWEST));
}

struct StateLocation zero_state_location(struct Zero *z, int g, enum State what) {
    struct GroupState *s = &z->state[g];
    if (what == STATE_M)
        return (struct StateLocation){&s->m, 0, z->plan.moments_dtype};
    if (what == STATE_V)
        return (struct StateLocation){&s->v, 0, z->plan.moments_dtype};
    if (what == STATE_MASTER && zero_has_master(z, g) && s->masters->format != MASTER_BF16)
        return (struct StateLocation){&s->master, 0, master_dtype(s->masters->format)};
    bool newest = what != PARAM_CURRENT && zero_has_master(z, g);
    struct Block *own = zero_own_block(z, g), *b = newest ? s->update_dst : own;
    size_t offset = weights_own_offset(z, g) * dtype_size(z->plan.param.dtype);
    return (struct StateLocation){b, b == own ? offset : 0, z->plan.param.dtype};
}

// ---- chunks ----

// Narrow elements are in the second half of a chunk, so that they can be widened in place from the
// front: element i is written at 4 i, and read at 2 n + 2 i.
static void *narrow_part(float *chunk, size_t n, enum Dtype dtype) {
    return (char *)chunk + n * (sizeof *chunk - dtype_size(dtype));
}

void zero_read_array(struct Zero *z, int g, enum State what, size_t i, size_t n, float *out) {
    struct StateLocation p = zero_state_location(z, g, what);
    size_t size = dtype_size(p.dtype);
    void *raw = narrow_part(out, n, p.dtype);
    CHECK(n <= STATE_CHUNK, "%zu elements at once", n);
    z->backing.ops->copy(z, p.block, p.offset + i * size, raw, n * size, false);
    if (p.dtype != F32)
        for (size_t j = 0; j < n; j++)
            out[j] = dtype_load(raw, p.dtype, j);
}

void zero_write_array(struct Zero *z, int g, enum State what, size_t i, size_t n, float *in) {
    struct StateLocation p = zero_state_location(z, g, what);
    size_t size = dtype_size(p.dtype);
    CHECK(n <= STATE_CHUNK, "%zu elements at once", n);
    if (p.dtype != F32) // element j is read at 4 j, and written at 2 j
        for (size_t j = 0; j < n; j++)
            dtype_store(in, p.dtype, j, in[j]);
    z->backing.ops->copy(z, p.block, p.offset + i * size, in, n * size, true);
}

// ---- the host's kernels ----

struct Device *zero_host_open(struct Zero *z) {
    struct Device *host = z->device->is_host ? z->device : z->backing.host;
    struct Error e;
    if (!host)
        CHECK(device_open_cpu(&host, size_max(1, (size_t)z->plan.host_threads), NULL, &e) == 0,
              "%s", e.text);
    return host;
}

void zero_host_close(struct Zero *z, struct Device *host) {
    if (host != z->device && host != z->backing.host)
        device_close(host);
}

// ---- initial values ----

// A block is empty where a pipeline stage has no layers.
static void fill_with_zeros(struct Zero *z, const struct Block *b) {
    if (b->bytes)
        device_zero(z->device, QUEUE_COMPUTE, b->mem, b->bytes);
}

static void init_fp32(struct Zero *z, int g) {
    size_t begin = zero_owned_begin(z, g), n = zero_owned_numel(z, g);
    params_init(z->params, g, begin, begin + n, z->seed, z->device, zero_master(z, g));
}
const struct MasterOps zero_masters_fp32 = {
    .init = init_fp32, .read = zero_read_array, .write = zero_write_array};

// Initializes a whole group, or this rank's shard of it. Padding of gradients stays 0 for ever.
void zero_init_group(struct Zero *z, int g) {
    struct GroupState *s = &z->state[g];
    fill_with_zeros(z, &s->m);
    fill_with_zeros(z, &s->v);
    fill_with_zeros(z, &s->grad);
    s->masters->init(z, g);
}

void zero_init_weights(struct Zero *z, uint64_t seed) {
    zero_sync(z);
    z->seed = seed;
    for (int g = 0; g < z->params->ngroup; g++)
        z->backing.ops->init(z, g);
    for (int ring = 0; ring < NRING; ring++)
        for (int i = 0; i < z->buckets[ring].count; i++)
            fill_with_zeros(z, &z->buckets[ring].slot[i].block);
    bool all_are_read = z->plan.inference; // read next: until then only padding is known
    for (int g = 0; g < z->params->ngroup; g++)
        all_are_read = all_are_read && zero_reads(z, g);
    if (!all_are_read)
        zero_store_params(z, false);
    z->step = z->known = 0;
}

// ---- parameters := master weights ----

void zero_store_group(struct Zero *z, int g, bool late) {
    struct Device *d = z->device;
    enum Dtype dtype = z->plan.param.dtype;
    CHECK(!late, "a delayed update where none is");
    if (zero_has_master(z, g) && z->state[g].masters->format == MASTER_FP32)
        d->kernels->cast(d->queue[QUEUE_COMPUTE],
                         &(struct Cast){zero_owned_numel(z, g), dtype, F32, zero_own_weights(z, g),
                                        zero_master(z, g)});
}

void zero_after_store_group(struct Zero *z, int g, bool late) {
    (void)late;
    mark_record(&z->state[g].updated, z->device, QUEUE_COMPUTE);
    weights_publish(z, g);
}

void zero_store_params(struct Zero *z, bool late) {
    zero_sync(z);
    for (int g = 0; g < z->params->ngroup; g++)
        z->backing.ops->store(z, g, late);
    for (int g = 0; g < z->params->ngroup; g++)
        z->backing.ops->after_store(z, g, late);
}
