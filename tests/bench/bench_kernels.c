// How fast the kernels beside matmul are, at the shapes of GPT-2 124M with B = 4, T = 512.
//
//   build/release/tests/bench_kernels [threads] [table]      tables: oracle, base, avx2, avx512
//
// Each row is the median of 9 runs. GB/s counts the bytes that a kernel must move, once each; a
// kernel whose operands stay in the cache can therefore exceed the memory's bandwidth. GFLOP/s of
// attention counts the multiplications below the diagonal only, 2 products forward and 5 backward.
// How near AdamW comes to a copy: bench_adamw.c.
#include "kernels/cost.h"
#include "kernels/device.h"
#include "kernels/kernels.h"
#include "tests/bench/bench_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    B = 4,
    T = 512,
    NH = 12,
    HS = 64,
    C = NH * HS,
    V = 50257,
    VP = 50304,
    ROWS = B * T,
    HEAD_ROWS = 512,     // rows of logits at a time
    ELEMENTS = 24 << 20, // of AdamW: far more than any cache holds
    RUNS = 9,
    MAX_BUFFERS = 64
};

struct Bench {
    struct Device *device;
    enum Dtype dtype;
    int buffers;
    void *buffer[MAX_BUFFERS];
    size_t buffer_bytes[MAX_BUFFERS];
};

typedef void BenchRun(struct Device *, const void *args);

// queue_OP puts kernel OP on the compute queue: one function per kernel, all of one type.
#define X(op, Args)                                                                                \
    __attribute__((unused)) static void queue_##op(struct Device *d, const void *args) {           \
        d->kernels->op(d->queue[QUEUE_COMPUTE], args);                                             \
    }
KERNEL_LIST(X)
#undef X

static void *buffer_raw(struct Bench *b, size_t bytes) {
    CHECK(b->buffers < MAX_BUFFERS, "more than %d buffers", MAX_BUFFERS);
    void *mem = b->device->ops->alloc(b->device, bytes);
    CHECK(mem, "no memory for %zu bytes", bytes);
    b->buffer_bytes[b->buffers] = bytes;
    return b->buffer[b->buffers++] = mem;
}

// n elements, small and all different from zero.
static void *buffer(struct Bench *b, enum Dtype d, size_t n) {
    void *mem = buffer_raw(b, n * dtype_size(d));
    for (size_t i = 0; i < n; i++)
        dtype_store(mem, d, i, 0.01f + 0.001f * (float)(i * 2654435761u >> 7 & 1023));
    return mem;
}

static struct Work scratch(struct Bench *b, size_t bytes) {
    return (struct Work){buffer_raw(b, bytes), bytes};
}

static void buffers_free(struct Bench *b) {
    while (b->buffers--)
        b->device->ops->free(b->device, b->buffer[b->buffers], b->buffer_bytes[b->buffers]);
    b->buffers = 0;
}

static double time_once(struct Device *d, BenchRun *run, const void *args) {
    double begin = base_seconds();
    run(d, args);
    device_sync_queue(d, QUEUE_COMPUTE);
    return base_seconds() - begin;
}

// Prints a row; `amount` is in bytes, operations or values, `unit` says which (per 10^9 and
// second).
static void report(struct Bench *b, const char *name, BenchRun *run, const void *args,
                   double amount, const char *unit) {
    double seconds[RUNS];
    time_once(b->device, run, args);
    for (int i = 0; i < RUNS; i++)
        seconds[i] = time_once(b->device, run, args);
    double s = bench_median(seconds, RUNS);
    printf("%-20s %-5s %9.3f ms %8.1f %s\n", name, dtype_name(b->dtype), s * 1e3, amount / s / 1e9,
           unit);
    fflush(stdout);
}

static void bench_norm(struct Bench *b) {
    enum Dtype d = b->dtype;
    size_t n = ROWS * C;
    struct NormForward f = {ROWS, C, d, 1e-5f, .x = buffer(b, d, n), .delta = buffer(b, d, n)};
    f.sum = buffer(b, d, n);
    f.y = buffer(b, d, n);
    f.mean = buffer(b, F32, ROWS);
    f.rstd = buffer(b, F32, ROWS);
    f.weight = buffer(b, d, C);
    f.bias = buffer(b, d, C);
    double bytes = (double)n * (double)dtype_size(d);
    report(b, "norm_forward", queue_norm_forward, &f, 4 * bytes, "GB/s");
    struct NormBackward g = {ROWS, C, d, d, .dy = f.y, .x = f.sum, .weight = f.weight};
    g.mean = f.mean;
    g.rstd = f.rstd;
    g.dx = buffer(b, d, n);
    g.dweight = buffer(b, d, C);
    g.dbias = buffer(b, d, C);
    g.work = scratch(b, b->device->kernels->norm_backward_work(b->device, &g));
    report(b, "norm_backward", queue_norm_backward, &g, 4 * bytes, "GB/s");
    f.mean = NULL;
    f.bias = NULL;
    report(b, "RMS norm_forward", queue_norm_forward, &f, 4 * bytes, "GB/s");
    g.mean = NULL;
    g.dbias = NULL;
    report(b, "RMS norm_backward", queue_norm_backward, &g, 4 * bytes, "GB/s");
    buffers_free(b);
}

// Of a model with RNH query and RNKV key heads of RHS channels, without the norms of heads and with
// them; in place without. The bytes are those of cost.h.
static void bench_rotate(struct Bench *b) {
    enum { RNH = 16, RNKV = 8, RHS = 128, SIZE = ROWS * (RNH + 2 * RNKV) * RHS };
    enum Dtype d = b->dtype;
    float *table = buffer(b, F32, T * RHS);
    for (size_t i = 0; i < T * RHS; i++) // what is rotated in place again and again keeps its size
        table[i] = i % 2 ? sinf((float)(i / 2)) : cosf((float)(i / 2));
    struct RotateForward f = {B, T, RNH, RNKV, RHS, d, .table = table};
    f.x = buffer(b, d, SIZE);
    f.y = (void *)f.x;
    f.eps = 1e-6f;
    report(b, "rotate_forward", queue_rotate_forward, &f, cost_rotate_forward(&f).bytes, "GB/s");
    struct RotateBackward g = {B, T, RNH, RNKV, RHS, d, d, .table = f.table, .eps = f.eps};
    g.dy = buffer(b, d, SIZE);
    report(b, "rotate_backward", queue_rotate_backward, &g, cost_rotate_backward(&g).bytes, "GB/s");
    f.y = g.dy;
    f.q_norm = buffer(b, d, RHS);
    f.k_norm = f.q_norm;
    report(b, "rotate_forward norm", queue_rotate_forward, &f, cost_rotate_forward(&f).bytes,
           "GB/s");
    g.x = f.x;
    g.q_norm = f.q_norm;
    g.k_norm = f.k_norm;
    g.dq_norm = buffer(b, d, RHS);
    g.dk_norm = buffer(b, d, RHS);
    g.work = scratch(b, b->device->kernels->rotate_backward_work(b->device, &g));
    report(b, "rotate_backward norm", queue_rotate_backward, &g, cost_rotate_backward(&g).bytes,
           "GB/s");
    buffers_free(b);
}

static void bench_swiglu(struct Bench *b) {
    enum Dtype d = b->dtype;
    size_t n = 4 * C;
    double bytes = (double)(ROWS * n) * (double)dtype_size(d);
    struct SwigluForward f = {ROWS, n, d, .x = buffer(b, d, 2 * ROWS * n)};
    f.y = buffer(b, d, ROWS * n);
    report(b, "swiglu_forward", queue_swiglu_forward, &f, 3 * bytes, "GB/s");
    struct SwigluBackward g = {ROWS, n, d, .x = f.x, .dy = f.y, .dx = buffer(b, d, 2 * ROWS * n)};
    report(b, "swiglu_backward", queue_swiglu_backward, &g, 5 * bytes, "GB/s");
    buffers_free(b);
}

static void bench_attention(struct Bench *b) {
    enum Dtype d = b->dtype;
    const struct Kernels *k = b->device->kernels;
    struct AttentionForward f = {B, T, NH, NH, HS, .dtype = d, .qkv = buffer(b, d, 3 * ROWS * C)};
    f.out = buffer(b, d, ROWS * C);
    f.lse = buffer(b, F32, B * NH * T);
    f.work = scratch(b, k->attention_forward_work(b->device, &f));
    double product = (double)B * NH * T * (T + 1) * HS; // 2 operations for half the T x T pairs
    report(b, "attention_forward", queue_attention_forward, &f, 2 * product, "GFLOP/s");
    struct AttentionBackward g = {B, T, NH, NH, HS, .dtype = d, .qkv = f.qkv};
    g.out = f.out;
    g.lse = f.lse;
    g.dout = buffer(b, d, ROWS * C);
    g.dqkv = buffer(b, d, 3 * ROWS * C);
    g.work = scratch(b, k->attention_backward_work(b->device, &g));
    report(b, "attention_backward", queue_attention_backward, &g, 5 * product, "GFLOP/s");
    buffers_free(b);
}

static void bench_ends(struct Bench *b) {
    enum Dtype d = b->dtype;
    double row_bytes = (double)C * (double)dtype_size(d);
    int32_t *tokens = buffer_raw(b, ROWS * sizeof *tokens);
    for (size_t i = 0; i < ROWS; i++) // as text: some tokens often, many rarely
        tokens[i] = (int32_t)(rng_bits(1, i) % (i % 2 ? V : 50));
    struct EmbedForward f = {B, T, C, VP, 0, d, .tokens = tokens};
    f.wte = buffer(b, d, (size_t)VP * C);
    f.wpe = buffer(b, d, T * C);
    f.out = buffer(b, d, ROWS * C);
    report(b, "embed_forward", queue_embed_forward, &f, (2 * ROWS + T) * row_bytes, "GB/s");
    struct EmbedBackward g = {B, T, C, VP, 0, d, d, .tokens = tokens, .dout = f.out};
    g.dwte = buffer(b, d, (size_t)VP * C);
    g.dwpe = buffer(b, d, T * C);
    g.work = scratch(b, b->device->kernels->embed_backward_work(b->device, &g));
    report(b, "embed_backward", queue_embed_backward, &g, (3 * ROWS + T) * row_bytes, "GB/s");
    struct Classifier c = {HEAD_ROWS, V, VP, d, .targets = tokens, .dloss = 1e-3f};
    c.logits = buffer(b, d, (size_t)HEAD_ROWS * VP);
    c.loss = buffer(b, F32, HEAD_ROWS);
    double bytes = (double)HEAD_ROWS * VP * (double)dtype_size(d);
    report(b, "classifier, loss", queue_classifier, &c, bytes, "GB/s");
    c.backward = true;
    report(b, "classifier, both", queue_classifier, &c, 2 * bytes, "GB/s");
    struct ClassifierPart p = {HEAD_ROWS, V, VP, 0, d, c.logits, tokens, NULL};
    p.part = buffer_raw(b, HEAD_ROWS * sizeof *p.part);
    report(b, "classifier_part", queue_classifier_part, &p, bytes, "GB/s");
    struct ClassifierMerge m = {HEAD_ROWS, V, VP, 0, 1, d, c.logits, tokens, .all = p.part};
    m.loss = c.loss;
    m.dloss = 1e-3f;
    m.backward = true;
    report(b, "classifier_merge", queue_classifier_merge, &m, 2 * bytes, "GB/s");
    buffers_free(b);
}

static void bench_elements(struct Bench *b) {
    enum Dtype d = b->dtype;
    size_t n = (size_t)ROWS * 4 * C;
    double bytes = (double)n * (double)dtype_size(d);
    struct GeluForward g = {n, d, .x = buffer(b, d, n), .y = buffer(b, d, n)};
    report(b, "gelu_forward", queue_gelu_forward, &g, 2 * bytes, "GB/s");
    struct Sum s = {n, d, .x = g.x, .square = true, .out = buffer_raw(b, sizeof(double))};
    report(b, "sum of squares", queue_sum, &s, bytes, "GB/s");
    struct Cast c = {n, d, .src_dtype = F32, .dst = g.y, .src = buffer(b, F32, n)};
    report(b, "cast from fp32", queue_cast, &c, bytes + 4.0 * (double)n, "GB/s");
    if (d == F32) {
        struct FillNormal f = {n, .dst = g.y, .seed = 1, .std = 0.02f};
        report(b, "fill_normal", queue_fill_normal, &f, 1e3 * (double)n, "Mvalues/s");
    }
    buffers_free(b);
}

static struct StepState *step_state(struct Bench *b) {
    struct StepState *state = buffer_raw(b, sizeof *state);
    *state = (struct StepState){.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
    state->correction = (struct BiasCorrection){1, 1};
    state->grad_scale = 1;
    return state;
}

static void bench_adamw(struct Bench *b) {
    enum Dtype d = b->dtype;
    size_t n = ELEMENTS;
    struct AdamW a = {n, n, d, d, F32, .master = buffer(b, F32, n), .m = buffer(b, F32, n)};
    a.v = buffer(b, F32, n);
    a.grad = buffer(b, d, n);
    a.param = d == F32 ? NULL : buffer(b, d, n);
    a.state = step_state(b);
    report(b, "adamw", queue_adamw, &a, (double)n * 28, "GB/s");
    buffers_free(b);
}

// The formats of master weights, with moments in bf16; each operand is read, all but grad written.
static void bench_masters(struct Bench *b) {
    static const double bytes[NMASTER] = {22, 18, 14}; // of an element
    size_t n = ELEMENTS;
    struct StepState *state = step_state(b);
    for (enum MasterFormat f = 0; f < NMASTER; f++) {
        char name[32];
        struct AdamW a = {n, n, BF16, BF16, BF16, .master_format = f, .state = state};
        a.grad = buffer(b, BF16, n);
        a.m = buffer(b, BF16, n);
        a.v = buffer_raw(b, n * sizeof(uint16_t)); // zero: no sign says anything
        void *weights = buffer(b, BF16, n);
        a.master = f == MASTER_FP32    ? buffer(b, F32, n)
                   : f == MASTER_SPLIT ? buffer(b, BF16, n)
                                       : weights;
        a.param = f == MASTER_BF16 ? NULL : weights;
        snprintf(name, sizeof name, "adamw, master %s", master_name(f));
        report(b, name, queue_adamw, &a, bytes[f] * (double)n, "GB/s");
    }
    buffers_free(b);
}

int main(int argc, char **argv) {
    struct Bench b = {0};
    struct Error e = {0};
    int threads = argc > 1 ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (threads < 1) {
        fprintf(stderr, "bench_kernels: %s threads: give a number from 1 on\n", argv[1]);
        return 2;
    }
    if (device_open_cpu(&b.device, threads, argc > 2 ? argv[2] : NULL, &e)) {
        fprintf(stderr, "bench_kernels: %s\n", e.text);
        return 2;
    }
    printf("table %s, %d threads, medians of %d\n", b.device->kernels->name, threads, RUNS);
    for (b.dtype = F32; b.dtype < NDTYPE; b.dtype++) {
        bench_norm(&b);
        bench_attention(&b);
        bench_rotate(&b);
        bench_swiglu(&b);
        bench_ends(&b);
        bench_elements(&b);
        bench_adamw(&b);
        if (b.dtype == BF16)
            bench_masters(&b);
    }
    device_close(b.device);
    return 0;
}
