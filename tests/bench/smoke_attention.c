// gpu_smoke's attention: the kernels of the tensor cores, for heads of 64, and the plain ones, both
// against the CPU's oracle and so against each other. Operands that are not aligned go to the plain
// kernels.
#include "tests/bench/smoke.h"

#include <stdio.h>
#include <stdlib.h>

// The first queries of a sequence see few keys: their gradients are far above the mean, and their
// errors with them.
enum { LARGEST = 80 };

// Two sequences, three heads of 64, one token more than a tile of queries has rows.
enum { B = 2, T = 129, NH = 3, HS = 64, SIZE = B * T * NH * HS, LSE = B * NH * T };

struct Attention {
    enum Dtype dtype;
    void *qkv, *out, *dout, *dqkv;
    float *lse;
};

// Both passes on a device, whose operands lie `shift` elements past a multiple of 64 bytes. The
// backward pass starts from `from`'s results; NULL: from its own.
static struct Attention attention_run(struct Device *d, enum Dtype dtype, size_t shift,
                                      const struct Attention *from) {
    size_t size = dtype_size(dtype), at = shift * size;
    struct Stream *s = d->queue[QUEUE_COMPUTE];
    struct Attention r = {.dtype = dtype, .lse = base_alloc(LSE * sizeof(float))};
    r.qkv = smoke_normal(dtype, 3 * SIZE + shift, 1, 1);
    r.out = smoke_normal(dtype, SIZE, 2, 1);
    r.dout = smoke_normal(dtype, SIZE, 3, 1);
    r.dqkv = smoke_normal(dtype, 3 * SIZE, 4, 1);
    char *qkv = d->ops->alloc(d, 3 * SIZE * size + at), *out = d->ops->alloc(d, SIZE * size + at);
    char *dout = d->ops->alloc(d, SIZE * size + at), *dqkv = d->ops->alloc(d, 3 * SIZE * size + at);
    float *lse = d->ops->alloc(d, LSE * sizeof *lse);
    CHECK(qkv && out && dout && dqkv && lse, "no memory for attention");
    device_copy(d, QUEUE_COMPUTE, qkv + at, r.qkv, 3 * SIZE * size);
    device_copy(d, QUEUE_COMPUTE, dout + at, r.dout, SIZE * size);
    struct AttentionForward f = {.b = B,
                                 .t = T,
                                 .nh = NH,
                                 .nkv = NH,
                                 .hs = HS,
                                 .dtype = dtype,
                                 .qkv = qkv + at,
                                 .out = out + at,
                                 .lse = lse};
    f.work.bytes = d->kernels->attention_forward_work(d, &f);
    f.work.mem = d->ops->alloc(d, f.work.bytes + 1);
    d->kernels->attention_forward(s, &f);
    smoke_download(d, r.out, out + at, SIZE * size);
    smoke_download(d, r.lse, lse, LSE * sizeof *lse);
    if (from) {
        device_copy(d, QUEUE_COMPUTE, out + at, from->out, SIZE * size);
        device_copy(d, QUEUE_COMPUTE, lse, from->lse, LSE * sizeof *lse);
    }
    struct AttentionBackward g = {.b = B,
                                  .t = T,
                                  .nh = NH,
                                  .nkv = NH,
                                  .hs = HS,
                                  .dtype = dtype,
                                  .qkv = qkv + at,
                                  .out = out + at,
                                  .dout = dout + at,
                                  .lse = lse,
                                  .dqkv = dqkv + at};
    g.work.bytes = d->kernels->attention_backward_work(d, &g);
    g.work.mem = d->ops->alloc(d, g.work.bytes + 1);
    d->kernels->attention_backward(s, &g);
    smoke_download(d, r.dqkv, dqkv + at, 3 * SIZE * size);
    return r;
}

static double *widen(const void *x, enum Dtype d, size_t n) {
    double *wide = base_alloc(n * sizeof *wide);
    for (size_t i = 0; i < n; i++)
        wide[i] = dtype_load(x, d, i);
    return wide;
}

static bool attention_is_near(const char *name, const struct Attention *got,
                              const struct Attention *want) {
    double *out = widen(want->out, want->dtype, SIZE), *lse = widen(want->lse, F32, LSE);
    double *dqkv = widen(want->dqkv, want->dtype, 3 * SIZE), limit = 2 * smoke_limit[want->dtype];
    printf("%s kernels\n", name);
    bool near =
        smoke_is_near("out", got->out, got->dtype, out, SIZE, limit, LARGEST * limit) &
        smoke_is_near("lse", got->lse, F32, lse, LSE, smoke_limit[F32],
                      LARGEST * smoke_limit[F32]) &
        smoke_is_near("dqkv", got->dqkv, got->dtype, dqkv, 3 * SIZE, limit, LARGEST * limit);
    free(out);
    free(lse);
    free(dqkv);
    return near;
}

static void attention_free(struct Attention *a) {
    void *parts[] = {a->qkv, a->out, a->dout, a->dqkv, a->lse};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
}

// Operands that are not aligned go to the plain kernels.
int smoke_attention(enum Dtype dtype) {
    struct Device *gpu = smoke_open(), *cpu;
    struct Error e = {0};
    CHECK(device_open_cpu(&cpu, 1, "oracle", &e) == 0, "%s", e.text);
    struct Attention want = attention_run(cpu, dtype, 0, NULL);
    struct Attention plain = attention_run(gpu, dtype, 1, &want);
    struct Attention fast = attention_run(gpu, dtype, 0, &want);
    bool near =
        attention_is_near("plain", &plain, &want) & attention_is_near("tensor", &fast, &want);
    attention_free(&want);
    attention_free(&plain);
    attention_free(&fast);
    return !near;
}
