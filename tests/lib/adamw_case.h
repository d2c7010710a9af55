// Operands of AdamW for the tests of its kernels, test_kernels_adamw.c and test_kernels_master.c:
// sizes, values usual and wild, and master weights in every format.
#ifndef TESTS_LIB_ADAMW_CASE_H
#define TESTS_LIB_ADAMW_CASE_H
#include "tests/lib/rig.h"

#include <stdlib.h>

enum Param { PARAM_NONE = NDTYPE, PARAM_SAME }; // or a dtype; same: as the gradient

struct Case {
    size_t n, n_decay;
    size_t cut; // where shards_body cuts
    int param;
    enum Dtype moments;
    bool skip, wild;
    enum MasterFormat master;
    bool ties;       // all masters are ties of bf16, and stay
    uint64_t update; // the number of the update
};

static const struct StepState step_state = {
    .lr = 3e-3f,
    .beta1 = 0.9f,
    .beta2 = 0.95f,
    .eps = 1e-8f,
    .weight_decay = 0.1f,
    .correction = {0.271f, 0.142625f},
    .grad_scale = 0.37f,
};

// Zeros, denormals, the ends of fp32 and fp16, neighbours of 1, what overflows when squared.
static const float wild[] = {0,
                             0x1p-149f,
                             0x1p-140f,
                             0x1.fffffcp-127f,
                             0x1p-126f,
                             0x1.8p-100f,
                             0x1.234568p-63f,
                             1e-20f,
                             0x1p-24f,
                             0x1.fffffep-25f,
                             0x1p-14f,
                             0.1f,
                             0x1p-1f,
                             0x1.fffffep-1f,
                             1,
                             0x1.000002p0f,
                             3,
                             0x1.ffcp15f,
                             1e10f,
                             0x1p63f,
                             1e30f,
                             0x1.fffffep126f,
                             0x1.fffffep127f};
enum { NWILD = sizeof wild / sizeof wild[0] };

// Half of them from the list, half with any exponent and fraction.
static inline float wild_value(uint64_t seed, size_t i) {
    uint64_t bits = rng_bits(seed, i);
    float sign = bits >> 63 ? -1 : 1;
    if (bits >> 62 & 1)
        return sign * wild[(bits >> 32 & 0xffff) % NWILD];
    uint32_t any = (uint32_t)bits & 0x7fffffffu;
    return sign * f32_from_bits(any < 0x7f800000u ? any : any & 0x3fffffffu);
}

static inline float *make_values(const struct Case *c, uint64_t seed, bool positive) {
    float *x = base_alloc(c->n * sizeof *x);
    for (size_t i = 0; i < c->n; i++) {
        x[i] = c->wild ? wild_value(seed, i) : (positive ? 0.01f : -0.5f) + rng_uniform(seed, i);
        if (positive)
            x[i] = fabsf(x[i]);
    }
    return x;
}

// Of split masters, v gets the signs.
static inline void take_master(struct Run *r, struct AdamW *a, const struct Case *c, float *w,
                               float *v) {
    uint16_t *low = base_alloc(c->n * sizeof *low), weight;
    for (size_t i = 0; i < c->n; i++) {
        if (c->ties)
            w[i] = f32_from_bits((f32_bits(w[i]) & 0xffff0000) | 0x8000);
        float sign = master_cut(w[i], &weight, &low[i]);
        if (c->master == MASTER_SPLIT)
            v[i] = copysignf(v[i], sign);
    }
    a->master_format = c->master;
    a->seed = 7;
    a->index = 1000000007;
    if (c->master == MASTER_SPLIT) {
        a->master = output_bytes(r, "low", c->n * sizeof *low, low);
        a->param = output_values(r, "param", BF16, c->n, 2, w);
    } else {
        a->master = output_values(r, "master", master_dtype(c->master), c->n, 2, w);
    }
    free(low);
}

static inline struct AdamW operands(struct Run *r, enum Dtype d, const struct Case *c) {
    struct AdamW a = {.n = c->n, .n_decay = c->n_decay, .grad_dtype = d};
    a.moments_dtype = c->moments;
    a.param_dtype = c->master ? BF16 : c->param < NDTYPE ? (enum Dtype)c->param : d;
    float *master = make_values(c, 1, false), *m = make_values(c, 2, false);
    float *v = make_values(c, 3, true), *grad = make_values(c, 4, false);
    for (size_t i = 0; i < c->n; i++) { // so that fp32 moments begin with the same numbers as bf16
        m[i] = f32_from_bf16(bf16_from_f32(m[i]));
        v[i] = f32_from_bf16(bf16_from_f32(v[i]));
    }
    take_master(r, &a, c, master, v);
    a.m = output_values(r, "m", c->moments, c->n, 2, m);
    a.v = output_values(r, "v", c->moments, c->n, 2, v);
    a.grad = input_values(r, d, c->n, grad);
    if (c->param != PARAM_NONE && c->master != MASTER_SPLIT)
        a.param = output_poison(r, "param", a.param_dtype, c->n, 2);
    struct StepState state = step_state;
    state.skip = c->skip;
    state.updates = c->update;
    state.lr = c->ties ? 0 : state.lr;
    a.state = input_bytes(r, sizeof state, &state);
    free(master);
    free(m);
    free(v);
    free(grad);
    return a;
}

static inline void adamw_body(struct Run *r, enum Dtype d, const void *c) {
    struct AdamW a = operands(r, d, c);
    r->device->kernels->adamw(compute(r), &a);
}

// Sizes; every one with parameters of the gradient's dtype, for both dtypes of moments.
static const struct Case sizes[] = {
    {.n = 1, .n_decay = 1},
    {.n = 17, .n_decay = 0, .cut = 5},
    {.n = 1003, .n_decay = 501, .cut = 333},
    {.n = 1003, .n_decay = 1003, .cut = 1},
    {.n = 4096 + 64, .n_decay = 4096, .cut = 64},
    {.n = (1 << 17) + 7, .n_decay = 70001, .cut = 32768 + 64},
};
enum { NSIZES = sizeof sizes / sizeof sizes[0] };

#endif
