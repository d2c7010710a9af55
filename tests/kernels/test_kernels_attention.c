// Causal attention, forward and backward, in every table: against the oracle, PyTorch, and finite
// differences of the oracle; and that no query sees a key after it. What the first key of a query
// hides is test_kernels_seen.c's.
#include "kernels/cpu/cpu.h"
#include "tests/kernels/first.h"
#include "tests/lib/test.h"

#include <stdlib.h>

struct Shape {
    size_t b, t, nh, hs;
    float scale; // standard deviation of queries, keys and values; large: one key takes all
    size_t nkv;  // 0: nh
    struct Pattern pattern;
};

// Around the edges of tiles, with head sizes that no vector length divides, and the largest one.
static const struct Shape shapes[] = {
    {1, 1, 1, 1, .scale = 1},
    {1, 1, 4, 9, .scale = 1},
    {1, 17, 4, 9, .scale = 1},
    {3, 17, 4, 9, .scale = 1},
    {2, 64, 2, 64, .scale = 1},
    {1, 65, 3, 64, .scale = 1},
    {1, 130, 1, 64, .scale = 4},
    {2, 40, 2, 32, .scale = 10},
    {1, 33, 1, 128, .scale = 1},
    {1, 19, 1, 256, .scale = 1},
    {1, 257, 1, 16, .scale = 1},
    {2, 31, 3, 7, .scale = 30},
    {1, 200, 2, 48, .scale = 1},
    {1, 129, 2, 80, .scale = 0.1f},
    // The tiles of the tensor-core kernels: 64 and 128 rows, warps of 32 and 16.
    {1, 1, 1, 64, .scale = 1},
    {2, 1, 2, 128, .scale = 1},
    {1, 133, 1, 128, .scale = 3},
    // More heads than are started together, of two blocks each.
    {13, 33, 5, 4, .scale = 1},
    // Grouped queries.
    {1, 70, 4, 64, 1, .nkv = 2},
    {2, 33, 8, 16, 1, .nkv = 1},
    {1, 65, 6, 80, 1, .nkv = 3},
    {1, 130, 4, 128, 1, .nkv = 1},
    {1, 19, 2, 256, 1, .nkv = 1},
    {2, 31, 6, 7, 30, .nkv = 2},
    // Windows around the size of a tile, up to the whole sequence.
    {1, 133, 1, 64, 1, .pattern = {.window = 1}},
    {1, 150, 1, 64, 1, .pattern = {.window = 63}},
    {1, 150, 1, 64, 1, .pattern = {.window = 64}},
    {1, 150, 1, 64, 1, .pattern = {.window = 65}},
    {1, 200, 2, 128, 1, .nkv = 1, .pattern = {.window = 100}},
    {1, 140, 1, 16, 1, .pattern = {.window = 140}},
    {2, 133, 6, 9, 1, .nkv = 2, .pattern = {.window = 30}},
    {1, 140, 1, 256, 1, .pattern = {.window = 20}},
    // Packed documents, which begin in the middle of tiles.
    {2, 150, 2, 64, 1, .pattern = {.document = 40}},
    {1, 200, 2, 80, 1, .nkv = 1, .pattern = {.document = 90}},
    {1, 260, 2, 64, 3, .nkv = 1, .pattern = {.document = 130, .window = 70}},
    {3, 65, 2, 128, 1, .pattern = {.document = 5}},
};

static size_t rows(const struct Shape *s) {
    return s->b * s->t * s->nh * s->hs;
}
static size_t key_heads(const struct Shape *s) {
    return s->nkv ? s->nkv : s->nh;
}
static size_t qkv_size(const struct Shape *s) {
    return s->b * s->t * (s->nh + 2 * key_heads(s)) * s->hs;
}

// A score is off by some 2^-24 of its size, and its exp by as much of itself.
static double score_slack(const struct Shape *s) {
    return 32 * (1 + s->scale * s->scale);
}

// On a GPU's tensor cores, and by AVX512_BF16, P and dS are rounded to the format before they are
// multiplied, as FlashAttention does. That moves a sum of p v by at most half a unit of the format
// times the sum of p |v|, which is about the largest output; likewise for the gradients.
static double rounding_slack(const struct Run *r, enum Dtype d, const struct Shape *s) {
    static const double half_unit[NDTYPE] = {[BF16] = 0x1p-9, [F16] = 0x1p-12};
    bool tensor_cores = strcmp(r->device->name, "cuda") == 0 && !r->skew && d != F32 &&
                        (s->hs == 64 || s->hs == 128);
    bool pairs = d == BF16 && cpu_kernels_dot_bf16(r->device->kernels);
    return tensor_cores || pairs ? half_unit[d] / 0x1p-24 : 0;
}

static void queue_forward(struct Run *r, struct AttentionForward *a) {
    a->work = scratch(r, r->device->kernels->attention_forward_work(r->device, a));
    r->device->kernels->attention_forward(r->device->queue[QUEUE_COMPUTE], a);
}

static void queue_backward(struct Run *r, struct AttentionBackward *a) {
    a->work = scratch(r, r->device->kernels->attention_backward_work(r->device, a));
    r->device->kernels->attention_backward(r->device->queue[QUEUE_COMPUTE], a);
}

static void forward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    struct AttentionForward a = {
        .b = s->b, .t = s->t, .nh = s->nh, .nkv = key_heads(s), .hs = s->hs, .dtype = d};
    a.qkv = input_random(r, d, qkv_size(s), 0, s->scale);
    a.first = input_pattern(r, &s->pattern, s->b, s->t);
    a.out = output_poison(r, "out", d, rows(s), score_slack(s) + rounding_slack(r, d, s));
    a.lse = output_poison(r, "lse", F32, s->b * s->nh * s->t, 16);
    queue_forward(r, &a);
}

TEST(test_forward_oracle) {
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_check(*state, forward_body, &shapes[i], true);
}

// What the backward pass starts from: the oracle's outputs, the same for every table.
struct Prepared {
    const struct Shape *shape;
    float *qkv, *out[NDTYPE], *lse[NDTYPE];
};

static float *widen(const struct Run *r, const char *name, enum Dtype d, size_t n) {
    float *x = base_alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = dtype_load(run_result(r, name), d, i);
    return x;
}

static void prepare(struct Prepared *p, struct Device *oracle, enum Dtype d) {
    const struct Shape *s = p->shape;
    struct Run r;
    run_init(&r, oracle, false);
    struct AttentionForward a = {
        .b = s->b, .t = s->t, .nh = s->nh, .nkv = key_heads(s), .hs = s->hs, .dtype = d};
    a.qkv = input_values(&r, d, qkv_size(s), p->qkv);
    a.first = input_pattern(&r, &s->pattern, s->b, s->t);
    a.out = output_poison(&r, "out", d, rows(s), 0);
    a.lse = output_poison(&r, "lse", F32, s->b * s->nh * s->t, 0);
    queue_forward(&r, &a);
    run_finish(&r);
    p->out[d] = widen(&r, "out", d, rows(s));
    p->lse[d] = widen(&r, "lse", F32, s->b * s->nh * s->t);
    run_close(&r);
}

static void backward_body(struct Run *r, enum Dtype d, const void *prepared) {
    const struct Prepared *p = prepared;
    const struct Shape *s = p->shape;
    struct AttentionBackward a = {
        .b = s->b, .t = s->t, .nh = s->nh, .nkv = key_heads(s), .hs = s->hs, .dtype = d};
    a.qkv = input_values(r, d, qkv_size(s), p->qkv);
    a.first = input_pattern(r, &s->pattern, s->b, s->t);
    a.out = input_values(r, d, rows(s), p->out[d]);
    a.lse = input_values(r, F32, s->b * s->nh * s->t, p->lse[d]);
    a.dout = input_random(r, d, rows(s), 0, 1);
    double slack = score_slack(s) + rounding_slack(r, d, s);
    a.dqkv = output_poison(r, "dqkv", d, qkv_size(s), slack);
    queue_backward(r, &a);
}

TEST(test_backward_oracle) {
    const struct Rig *rig = *state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct Prepared p = {.shape = &shapes[i]};
        p.qkv = base_alloc(qkv_size(p.shape) * sizeof *p.qkv);
        for (size_t j = 0; j < qkv_size(p.shape); j++)
            p.qkv[j] = p.shape->scale * rng_normal(i, j);
        for (enum Dtype d = F32; d < NDTYPE; d++)
            prepare(&p, rig->device[0][0], d);
        rig_check(rig, backward_body, &p, true);
        free(p.qkv);
        for (enum Dtype d = F32; d < NDTYPE; d++) {
            free(p.out[d]);
            free(p.lse[d]);
        }
    }
}

enum { B = 2, T = 17, NH = 4, HS = 9, ROWS = B * T * NH * HS };

static void torch_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    struct AttentionForward f = {.b = B, .t = T, .nh = NH, .nkv = NH, .hs = HS, .dtype = d};
    f.qkv = input_values(r, d, 3 * ROWS, values_f32(v, "attention_qkv", 3 * ROWS));
    f.out = output_poison(r, "out", d, ROWS, 0);
    f.lse = output_poison(r, "lse", F32, B * NH * T, 0);
    queue_forward(r, &f);
    struct AttentionBackward a = {
        .b = B, .t = T, .nh = NH, .nkv = NH, .hs = HS, .dtype = d, .qkv = f.qkv};
    a.out = f.out;
    a.lse = f.lse;
    a.dout = input_values(r, d, ROWS, values_f32(v, "attention_dout", ROWS));
    a.dqkv = output_poison(r, "dqkv", d, 3 * ROWS, 0);
    queue_backward(r, &a);
    run_finish(r);
    run_expect(r, "out", "PyTorch", values_f32(v, "attention_out", ROWS), d == F32 ? 16 : 1);
    run_expect(r, "lse", "PyTorch", values_f32(v, "attention_lse", B * NH * T), 16);
    run_expect(r, "dqkv", "PyTorch", values_f32(v, "attention_dqkv", 3 * ROWS), d == F32 ? 32 : 2);
}

TEST(test_torch) {
    const struct Rig *rig = *state;
    rig_each(rig, torch_body, rig->values);
}

// Attention on host arrays, for finite differences: its loss is the sum of out * dout.
enum { FB = 2, FT = 7, FNH = 4, FHS = 5, FROWS = FB * FT * FNH * FHS };
struct Layer {
    struct Device *oracle;
    size_t nkv;
    const int32_t *first;
    float qkv[3 * FROWS], out[FROWS], dout[FROWS], lse[FB * FNH * FT];
};

static double layer_loss(void *context) {
    struct Layer *l = context;
    struct AttentionForward a = {
        .b = FB, .t = FT, .nh = FNH, .nkv = l->nkv, .hs = FHS, .dtype = F32, .first = l->first};
    a.qkv = l->qkv;
    a.out = l->out;
    a.lse = l->lse;
    l->oracle->kernels->attention_forward(l->oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l->oracle, QUEUE_COMPUTE);
    return rig_dot(l->out, l->dout, FROWS);
}

static void expect_slopes(struct Layer *l) {
    size_t n = FB * FT * (FNH + 2 * l->nkv) * FHS;
    for (size_t i = 0; i < n; i++)
        l->qkv[i] = rng_normal(1, i);
    for (size_t i = 0; i < FROWS; i++)
        l->dout[i] = rng_normal(2, i);
    layer_loss(l);
    float dqkv[3 * FROWS];
    struct AttentionBackward a = {
        .b = FB, .t = FT, .nh = FNH, .nkv = l->nkv, .hs = FHS, .dtype = F32, .first = l->first};
    a.qkv = l->qkv;
    a.out = l->out;
    a.lse = l->lse;
    a.dout = l->dout;
    a.dqkv = dqkv;
    l->oracle->kernels->attention_backward(l->oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l->oracle, QUEUE_COMPUTE);
    struct RigSlopes s = {layer_loss, l, 0x1p-5f, 1e-4, 1};
    rig_expect_slopes(&s, "dqkv", l->qkv, dqkv, n);
}

TEST(test_finite_differences) {
    static const int32_t first[FB * FT] = {0, 0, 0, 1, 2, 5, 5, 0, 1, 1, 1, 4, 4, 5};
    const struct Rig *rig = *state;
    struct Layer dense = {.oracle = rig->device[0][0], .nkv = FNH};
    expect_slopes(&dense);
    struct Layer grouped = {.oracle = rig->device[0][0], .nkv = 2, .first = first};
    expect_slopes(&grouped);
}

// Two sequences that are equal up to time `change`: outputs before it must have the same bits, and
// the gradient of a loss on those outputs alone must not reach what comes after.
enum { CT = 75, CHS = 20, CROWS = CT * 2 * CHS };

static void causal_run(struct Run *r, enum Dtype d, const float *qkv, const float *dout) {
    struct AttentionForward f = {.b = 1, .t = CT, .nh = 2, .nkv = 2, .hs = CHS, .dtype = d};
    f.qkv = input_values(r, d, 3 * CROWS, qkv);
    f.out = output_poison(r, "out", d, CROWS, 0);
    f.lse = output_poison(r, "lse", F32, 2 * CT, 0);
    queue_forward(r, &f);
    struct AttentionBackward a = {
        .b = 1, .t = CT, .nh = 2, .nkv = 2, .hs = CHS, .dtype = d, .qkv = f.qkv};
    a.out = f.out;
    a.lse = f.lse;
    a.dout = input_values(r, d, CROWS, dout);
    a.dqkv = output_poison(r, "dqkv", d, 3 * CROWS, 0);
    queue_backward(r, &a);
    run_finish(r);
}

static void causal_body(struct Run *r, enum Dtype d, const void *shape) {
    size_t change = *(const size_t *)shape, before = change * 2 * CHS;
    static float qkv[3 * CROWS], other[3 * CROWS], dout[CROWS];
    for (size_t i = 0; i < 3 * CROWS; i++) {
        qkv[i] = rng_normal(1, i);
        other[i] = i < 3 * before ? qkv[i] : 50 * rng_normal(2, i);
    }
    for (size_t i = 0; i < CROWS; i++)
        dout[i] = i < before ? rng_normal(3, i) : 0;
    struct Run two;
    run_init(&two, r->device, false);
    causal_run(r, d, qkv, dout);
    causal_run(&two, d, other, dout);
    if (memcmp(run_result(r, "out"), run_result(&two, "out"), before * dtype_size(d)) != 0)
        fail_msg("%s %s: what comes at time %zu changed an output before it",
                 r->device->kernels->name, dtype_name(d), change);
    for (size_t i = 0; i < 3 * CROWS; i++) {
        float x = dtype_load(run_result(r, "dqkv"), d, i);
        float y = dtype_load(run_result(&two, "dqkv"), d, i);
        if (i < 3 * before ? f32_bits(x) != f32_bits(y) : x != 0 || y != 0)
            fail_msg("%s %s: time %zu got the gradient of an output before it",
                     r->device->kernels->name, dtype_name(d), i / (6 * CHS));
    }
    run_close(&two);
}

TEST(test_causal) {
    static const size_t changes[] = {1, 16, 33, 64, 74};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        rig_each(*state, causal_body, &changes[i]);
}

// A NaN among the queries, keys or values of a time reaches that time's output and lse.
static void nan_body(struct Run *r, enum Dtype d, const void *shape) {
    size_t which = *(const size_t *)shape, time = 40;
    static float qkv[3 * CROWS];
    for (size_t i = 0; i < 3 * CROWS; i++)
        qkv[i] = rng_normal(1, i);
    qkv[((time * 3 + which) * 2 + 1) * CHS + 3] = NAN; // of head 1
    static const float dout[CROWS];
    causal_run(r, d, qkv, dout);
    float out = dtype_load(run_result(r, "out"), d, (time * 2 + 1) * CHS + 3);
    float lse = dtype_load(run_result(r, "lse"), F32, CT + time);
    if (!isnan(out) || (which < 2 && !isnan(lse)))
        fail_msg("%s %s: a NaN in matrix %zu of qkv was lost: out %g, lse %g",
                 r->device->kernels->name, dtype_name(d), which, out, lse);
    for (size_t i = 0; i < CT * CHS; i++) // head 0 is another computation
        if (isnan(dtype_load(run_result(r, "out"), d, i / CHS * 2 * CHS + i % CHS)))
            fail_msg("%s %s: a NaN of head 1 reached head 0", r->device->kernels->name,
                     dtype_name(d));
}

TEST(test_nan) {
    static const size_t which[] = {0, 1, 2};
    for (size_t i = 0; i < 3; i++)
        rig_each(*state, nan_body, &which[i]);
}

AROUND_ALL(rig_setup, rig_teardown);
