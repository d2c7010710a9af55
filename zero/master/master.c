// Split and bf16 master weights between steps: see master.h. Next: zero/offload/update.c, where the
// host updates them.
//
// A split master weight is in three arrays: its lower half, the newest weights, and the signs of v.
// It is written first, with a v of 0 that carries its sign; writing v later keeps that sign.
#include "zero/master/master.h"

#include <string.h>

// Copies an array of 16-bit numbers as it is to x; to_state: from x.
static void copy_halves(struct Zero *z, int g, enum State what, size_t i, size_t n, uint16_t *x,
                        bool to_state) {
    struct StateLocation p = zero_state_location(z, g, what);
    z->backing.ops->copy(z, p.block, p.offset + i * sizeof *x, x, n * sizeof *x, to_state);
}

// ---- split ----

static void read_split(struct Zero *z, int g, enum State what, size_t i, size_t n, float *out) {
    if (what != STATE_MASTER) {
        zero_read_array(z, g, what, i, n, out);
        for (size_t j = 0; j < n && what == STATE_V; j++)
            out[j] = fabsf(out[j]);
        return;
    }
    uint16_t *low = device_alloc_host(z->device, 2 * n * sizeof *low), *high = low + n;
    zero_read_array(z, g, STATE_V, i, n, out);
    copy_halves(z, g, STATE_MASTER, i, n, low, false);
    copy_halves(z, g, PARAM_NEWEST, i, n, high, false);
    for (size_t j = 0; j < n; j++)
        out[j] = master_join(high[j], low[j], signbit(out[j]));
    device_free_host(z->device, low);
}

static void write_split_master(struct Zero *z, int g, size_t i, size_t n, float *in) {
    uint16_t *low = device_alloc_host(z->device, 2 * n * sizeof *low), *high = low + n;
    for (size_t j = 0; j < n; j++)
        in[j] = master_cut(in[j], &high[j], &low[j]);
    copy_halves(z, g, STATE_MASTER, i, n, low, true);
    copy_halves(z, g, PARAM_NEWEST, i, n, high, true);
    zero_write_array(z, g, STATE_V, i, n, in);
    device_free_host(z->device, low);
}

static void write_split_v(struct Zero *z, int g, size_t i, size_t n, float *in) {
    float *old = device_alloc_host(z->device, n * sizeof *old);
    zero_read_array(z, g, STATE_V, i, n, old);
    for (size_t j = 0; j < n; j++)
        in[j] = copysignf(in[j], old[j]);
    zero_write_array(z, g, STATE_V, i, n, in);
    device_free_host(z->device, old);
}

static void write_split(struct Zero *z, int g, enum State what, size_t i, size_t n, float *in) {
    if (what == STATE_MASTER)
        write_split_master(z, g, i, n, in);
    else if (what == STATE_V)
        write_split_v(z, g, i, n, in);
    else
        zero_write_array(z, g, what, i, n, in);
}

// ---- initial values ----

void master_fill(struct Zero *z, int g, enum State what, size_t i, bool zeros) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    struct Device *host = zero_host_open(z);
    size_t begin = zero_owned_begin(z, g), numel = zero_owned_numel(z, g);
    for (size_t n; i < numel; i += n) {
        n = size_min(STATE_CHUNK, numel - i);
        if (zeros)
            memset(chunk, 0, n * sizeof *chunk);
        else
            params_init(z->params, g, begin + i, begin + i + n, z->seed, host, chunk);
        device_sync_queue(host, QUEUE_COMPUTE);
        zero_write_state(z, g, what, i, n, chunk);
    }
    zero_host_close(z, host);
    device_free_host(z->device, chunk);
}

// Makes initial values in fp32, in the memory of m, piece by piece; copies them through the host.
static void init_narrow(struct Zero *z, int g) {
    size_t begin = zero_owned_begin(z, g), numel = zero_owned_numel(z, g);
    const struct Block *m = &z->state[g].m;
    size_t most = size_min(STATE_CHUNK, m->bytes / sizeof(float));
    float *chunk = device_alloc_host(z->device, most * sizeof *chunk);
    for (size_t i = 0; i < numel; i += most) {
        size_t n = size_min(most, numel - i);
        params_init(z->params, g, begin + i, begin + i + n, z->seed, z->device, m->mem);
        device_sync_queue(z->device, QUEUE_COMPUTE);
        z->backing.ops->copy(z, m, 0, chunk, n * sizeof *chunk, false);
        zero_write_state(z, g, STATE_MASTER, i, n, chunk);
    }
    device_zero(z->device, QUEUE_COMPUTE, m->mem, m->bytes);
    device_free_host(z->device, chunk);
}

static const struct MasterOps split = {MASTER_SPLIT, init_narrow, read_split, write_split};
static const struct MasterOps bf16 = {MASTER_BF16, init_narrow, zero_read_array, zero_write_array};

// ---- none ----

// Initial values of parameters without masters go through the host, chunk by chunk. In a run that
// does not train, or whose base is read, they are read next, from a checkpoint or --init: then it
// zeroes what no file has, the padding of a group, and the rows that pad a vocabulary, which are
// the ends'.
static void init_none(struct Zero *z, int g) {
    size_t begin = zero_owned_begin(z, g), group_end = z->params->group[g].numel;
    bool reads = zero_reads(z, g), is_end = z->params->group[g].kind == GROUP_END;
    size_t first = reads && !is_end && group_end > begin ? group_end - begin : 0;
    master_fill(z, g, STATE_MASTER, first, reads);
}
const struct MasterOps zero_masters_none = {
    .init = init_none, .read = zero_read_array, .write = zero_write_array};

const struct MasterOps *master_ops(enum MasterFormat f) {
    static const struct MasterOps *const formats[NMASTER] = {
        [MASTER_FP32] = &zero_masters_fp32, [MASTER_SPLIT] = &split, [MASTER_BF16] = &bf16};
    return formats[f];
}
