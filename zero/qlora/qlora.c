// The base of adapters in fewer bits: see qlora.h. Next: zero/wire/wire.h.
#include "zero/qlora/qlora.h"

#include "zero/master/master.h"

#include <string.h>

const char *const qlora_words[] = {
    [BASE_PLAIN] = "none", [BASE_INT8] = "int8", [BASE_NF4] = "nf4", [NBASE] = NULL};

enum { INT8_BITS = 8 };
_Static_assert((int)BASE_RUN == (int)NF4_RUN && BASE_RUN % QUANTIZE_BLOCK == 0,
               "runs of two sizes");

static enum BaseFormat pack_format(const struct Zero *z) {
    return z->params->config.lora.base;
}

static size_t run_bytes(const struct Zero *z) {
    return pack_format(z) == BASE_NF4 ? nf4_bytes(BASE_RUN) : quantized_bytes(INT8_BITS, BASE_RUN);
}

// ---- which runs are packed ----

// Runs [first, end) of a group are raw: those with norms and biases.
struct RawRuns {
    size_t first, end;
};

static struct RawRuns raw_runs(const struct Zero *z, int g) {
    const struct Group *group = &z->params->group[g];
    size_t end = ceil_div(group->numel, BASE_RUN);
    return (struct RawRuns){group->numel > group->decay_end ? group->decay_end / BASE_RUN : end,
                            end};
}

// The runs of a part of n elements that begins at element `begin` of a group: packed ones, then raw
// ones, then padding alone.
struct Part {
    size_t first, runs;       // the group's run that it begins with; how many runs it has
    size_t packed, raw;       // how many of these are packed, and raw
    size_t raw_offset, bytes; // where the raw ones begin, in bytes; of the part as it is kept
};

static struct Part describe_part(const struct Zero *z, int g, size_t begin, size_t n) {
    struct RawRuns raw = raw_runs(z, g);
    struct Part p = {.first = begin / BASE_RUN, .runs = n / BASE_RUN};
    CHECK(begin % BASE_RUN == 0 && n % BASE_RUN == 0, "a part of group %d from %zu on", g, begin);
    size_t end = p.first + p.runs;
    p.packed = size_min(p.runs, raw.first - size_min(raw.first, p.first));
    p.raw = size_min(end, raw.end) - size_min(size_min(end, raw.end), size_max(p.first, raw.first));
    p.raw_offset = p.runs * run_bytes(z);
    // Parts of n elements have one size, with space for as many raw runs as any of them may have.
    p.bytes = p.raw_offset +
              size_min(p.runs, raw.end - raw.first) * BASE_RUN * dtype_size(z->plan.param.dtype);
    return p;
}

size_t qlora_bytes(const struct Zero *z, int g, size_t n) {
    return describe_part(z, g, 0, n).bytes;
}

// ---- the hop ----

// Dequantizes `runs` packed runs. d: the device, or the host's.
static void dequantize_runs(struct Zero *z, struct Device *d, void *to, enum Dtype to_dtype,
                            const void *packed, size_t runs) {
    struct Stream *queue = d->queue[QUEUE_COMPUTE];
    if (runs && pack_format(z) == BASE_NF4)
        d->kernels->nf4_dequantize(
            queue, &(struct Nf4Dequantize){
                       .n = runs * BASE_RUN, .dtype = to_dtype, .from = packed, .x = to});
    else if (runs)
        d->kernels->dequantize(queue, &(struct Dequantize){.n = BASE_RUN,
                                                           .parts = runs,
                                                           .ranks = 1,
                                                           .bits = INT8_BITS,
                                                           .dtype = to_dtype,
                                                           .from = packed,
                                                           .x = to});
}

// All ranks' parts lie where they have arrived, or the one part where it is kept.
static void dequantize_whole(struct Zero *z, const struct HopArgs *a) {
    const struct Placement *p = &z->plan.param;
    size_t n = zero_part_numel(z, p, a->group), parts = z->params->group[a->group].padded / n;
    size_t size = dtype_size(p->dtype);
    bool here = !p->shard_group && z->state[a->group].param_tier->kind == TIER_DEVICE;
    const char *from = here ? a->mem[BUFFER_SHARD] : weights_gather_target(z, a);
    for (size_t i = 0; i < parts; i++) {
        struct Part part = describe_part(z, a->group, i * n, n);
        char *to = (char *)a->mem[BUFFER_WHOLE] + i * n * size;
        dequantize_runs(z, z->device, to, p->dtype, from, part.packed);
        if (part.raw)
            device_copy(z->device, QUEUE_COMPUTE, to + part.packed * BASE_RUN * size,
                        from + part.raw_offset, part.raw * BASE_RUN * size);
        from += part.bytes;
    }
}

static const struct Hop dequantize = {"dequantize",
                                      POINT_UNPACK,
                                      WHEN_ANY,
                                      QUEUE_COMPUTE,
                                      USES_WHOLE | USES_STORE,
                                      .run = dequantize_whole,
                                      .where = HERE};

// ---- between steps ----

// Describes the part that this rank keeps.
static struct Part describe_own_part(const struct Zero *z, int g) {
    return describe_part(z, g, zero_owned_begin(z, g), zero_owned_numel(z, g));
}

// Copies bytes of a group as it is kept, from `offset` on, to mem; to_group: from mem.
static void copy_packed(struct Zero *z, int g, size_t offset, void *mem, size_t bytes,
                        bool to_group) {
    if (bytes)
        z->backing.ops->copy(z, &z->state[g].param, offset, mem, bytes, to_group);
}

static void quantize_runs(struct Zero *z, void *to, const float *from, size_t runs) {
    struct Device *host = zero_host_open(z);
    struct Stream *queue = host->queue[QUEUE_COMPUTE];
    if (pack_format(z) == BASE_NF4)
        host->kernels->nf4_quantize(queue, &(struct Nf4Quantize){runs * BASE_RUN, F32, from, to});
    else
        host->kernels->quantize(queue, &(struct Quantize){.n = BASE_RUN,
                                                          .parts = runs,
                                                          .columns = 1,
                                                          .bits = INT8_BITS,
                                                          .dtype = F32,
                                                          .x = from,
                                                          .to = to});
    device_sync_queue(host, QUEUE_COMPUTE);
    zero_host_close(z, host);
}

// Writes elements [i, i + n) of this rank's part, which are whole runs, as they are kept. Counted
// in runs of the part, they are [first, end), of which those from `from` on are raw, or padding.
static void write_packed(struct Zero *z, int g, enum State what, size_t i, size_t n, float *in) {
    struct Part p = describe_own_part(z, g);
    size_t first = i / BASE_RUN, end = (i + n) / BASE_RUN, size = dtype_size(z->plan.param.dtype);
    size_t packed = size_min(end, p.packed) - size_min(size_min(end, p.packed), first);
    size_t raw_end = p.packed + p.raw, from = size_max(first, p.packed);
    CHECK(what == STATE_MASTER && !(i % BASE_RUN) && !(n % BASE_RUN), "array %d from %zu on", what,
          i);
    if (packed) {
        char *runs = device_alloc_host(z->device, packed * run_bytes(z));
        quantize_runs(z, runs, in, packed);
        copy_packed(z, g, first * run_bytes(z), runs, packed * run_bytes(z), true);
        device_free_host(z->device, runs);
    }
    if (from >= size_min(end, raw_end))
        return;
    float *raw = in + (from - first) * BASE_RUN;
    size_t count = (size_min(end, raw_end) - from) * BASE_RUN;
    for (size_t k = 0; k < count; k++) // in place: element k is read at 4 k
        dtype_store(raw, z->plan.param.dtype, k, raw[k]);
    copy_packed(z, g, p.raw_offset + (from - p.packed) * BASE_RUN * size, raw, count * size, true);
}

// Reads one run of the part as fp32. buffer: a run's elements, and its bytes as they are kept.
static const float *read_run(struct Zero *z, struct Device *host, int g, const struct Part *p,
                             size_t run, float *buffer) {
    enum Dtype dtype = z->plan.param.dtype;
    size_t size = dtype_size(dtype);
    void *kept = buffer + BASE_RUN;
    if (run < p->packed) {
        copy_packed(z, g, run * run_bytes(z), kept, run_bytes(z), false);
        dequantize_runs(z, host, buffer, F32, kept, 1);
        device_sync_queue(host, QUEUE_COMPUTE);
    } else if (run < p->packed + p->raw) {
        copy_packed(z, g, p->raw_offset + (run - p->packed) * BASE_RUN * size, kept,
                    BASE_RUN * size, false);
        for (size_t k = 0; k < BASE_RUN; k++)
            buffer[k] = dtype_load(kept, dtype, k);
    } else {
        memset(buffer, 0, BASE_RUN * sizeof *buffer);
    }
    return buffer;
}

static void read_packed(struct Zero *z, int g, enum State what, size_t i, size_t n, float *out) {
    struct Part p = describe_own_part(z, g);
    float *buffer = device_alloc_host(z->device, 2 * BASE_RUN * sizeof *buffer);
    struct Device *host = zero_host_open(z);
    CHECK(what == STATE_MASTER, "array %d of a packed group", what);
    for (size_t some, end = i + n; i < end; i += some, out += some) {
        some = size_min(BASE_RUN - i % BASE_RUN, end - i);
        const float *run = read_run(z, host, g, &p, i / BASE_RUN, buffer);
        memcpy(out, run + i % BASE_RUN, some * sizeof *out);
    }
    zero_host_close(z, host);
    device_free_host(z->device, buffer);
}

// Writes initial values, unless weights are read next: then all are (zero/weights/weights.c).
static void init_packed(struct Zero *z, int g) {
    if (!zero_reads(z, g))
        master_fill(z, g, STATE_MASTER, 0, false);
}

static const struct MasterOps packed_ops = {
    .init = init_packed, .read = read_packed, .write = write_packed};

static void attach_group(struct Zero *z, int g) {
    z->state[g].masters = &packed_ops;
    chain_add(&z->state[g].chain[FETCH], &dequantize, NULL);
}

const struct PackOps qlora_pack = {qlora_bytes, attach_group};
