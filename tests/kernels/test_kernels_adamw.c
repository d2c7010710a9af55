// AdamW in every table, with every dtype of gradients, moments and parameters: against the oracle;
// every table's bits against each other's, for wild values too; that a shard's update has the bits
// of the whole's, on which ZeRO depends; and the formats of master weights (kernels/master.h):
// split has the bits of fp32, and bf16 rounds at random with the mean it should have.
#define ISA base // of vec.h: this file is compiled for what every x86-64 has
#include "kernels/cpu/vec.h"
#include "tests/lib/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

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
static float wild_value(uint64_t seed, size_t i) {
    uint64_t bits = rng_bits(seed, i);
    float sign = bits >> 63 ? -1 : 1;
    if (bits >> 62 & 1)
        return sign * wild[(bits >> 32 & 0xffff) % NWILD];
    uint32_t any = (uint32_t)bits & 0x7fffffffu;
    return sign * f32_from_bits(any < 0x7f800000u ? any : any & 0x3fffffffu);
}

static float *make_values(const struct Case *c, uint64_t seed, bool positive) {
    float *x = base_alloc(c->n * sizeof *x);
    for (size_t i = 0; i < c->n; i++) {
        x[i] = c->wild ? wild_value(seed, i) : (positive ? 0.01f : -0.5f) + rng_uniform(seed, i);
        if (positive)
            x[i] = fabsf(x[i]);
    }
    return x;
}

// Of split masters, v gets the signs.
static void take_master(struct Run *r, struct AdamW *a, const struct Case *c, float *w, float *v) {
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

static struct AdamW operands(struct Run *r, enum Dtype d, const struct Case *c) {
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

static struct Stream *compute(const struct Run *r) {
    return r->device->queue[QUEUE_COMPUTE];
}

static void adamw_body(struct Run *r, enum Dtype d, const void *c) {
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

typedef void EachCase(const struct Rig *rig, const struct Case *c);

// Every size, and for one of them every dtype of parameters. rig_check and rig_each go through the
// gradient's.
static void each_case(const struct Rig *rig, EachCase *each, bool are_wild) {
    for (int bf16 = 0; bf16 < 2; bf16++) {
        for (int i = 0; i < NSIZES; i++) {
            struct Case c = sizes[i];
            c.moments = bf16 ? BF16 : F32;
            c.param = PARAM_SAME;
            c.wild = are_wild;
            each(rig, &c);
            for (c.param = F32; c.param <= PARAM_NONE && i == 2; c.param++)
                each(rig, &c);
        }
    }
}

static void check_oracle(const struct Rig *rig, const struct Case *c) {
    rig_check(rig, adamw_body, c, true);
}

static void test_oracle(void **state) {
    each_case(*state, check_oracle, false);
}

// The bits of operand i of two finished runs; any NaN is like any other.
static void same_operand(const struct Run *x, const struct Run *y, int i, const char *what) {
    const struct Operand *a = &x->operand[i], *b = &y->operand[i];
    const char *p = a->end + a->at_bytes, *q = b->end + b->at_bytes;
    size_t size = dtype_size(a->dtype);
    if (a->name && !a->n) // bytes that are no numbers
        assert_memory_equal(p, q, a->size_bytes);
    for (size_t j = 0; a->name && j < a->n && memcmp(p, q, a->size_bytes) != 0; j++) {
        float f = dtype_load(p, a->dtype, j), g = dtype_load(q, a->dtype, j);
        if (memcmp(p + j * size, q + j * size, size) != 0 && !(isnan(f) && isnan(g)))
            fail_msg("%s: %s %s[%zu of %zu] is %a, %s %a", x->device->kernels->name,
                     dtype_name(a->dtype), a->name, j, a->n, f, what, g);
    }
}

static void same_run(struct Run *x, struct Run *y, const char *what) {
    run_finish(x);
    run_finish(y);
    assert_int_equal(x->noperand, y->noperand);
    for (int i = 0; i < x->noperand; i++)
        same_operand(x, y, i, what);
    run_close(x);
    run_close(y);
}

// A run that goes on elsewhere must not drift: every table has the bits of the one that has no
// fused multiply-add and must make it.
static void check_same_bits(const struct Rig *rig, const struct Case *c) {
    struct Device *base;
    struct Error e = {0};
    assert_int_equal(device_open_cpu(&base, 1, "base", &e), 0);
    for (int t = 1; t < rig->ntable; t++) {
        for (enum Dtype d = F32; d < NDTYPE; d++) {
            struct Run want, got;
            run_init(&want, base, false);
            run_init(&got, rig->device[t][1], true);
            adamw_body(&want, d, c);
            adamw_body(&got, d, c);
            same_run(&got, &want, "of table base");
        }
    }
    device_close(base);
}

static void test_same_bits(void **state) {
    each_case(*state, check_same_bits, false);
    each_case(*state, check_same_bits, true);
}

// The fused multiply-add of a table without the instruction against libm's. Random bits, every
// three of the list, and sums that lie beside the middle of two fp32 numbers by less than fp64
// shows: there a product rounded to fp64 and a sum rounded twice go wrong.
static void check_fmaf(const float a[4], const float b[4], const float c[4]) {
    float got[4];
    vec_store_f32(got, vec_fmaf(vec_load_f32(a), vec_load_f32(b), vec_load_f32(c)));
    for (int i = 0; i < 4; i++) {
        float want = fmaf(a[i], b[i], c[i]);
        if (isnan(want) ? !isnan(got[i]) : f32_bits(got[i]) != f32_bits(want))
            fail_msg("fma(%a, %a, %a) is %a, should be %a", a[i], b[i], c[i], got[i], want);
    }
}

static void test_fmaf(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 500000; i++) {
        float a[4], b[4], c[4];
        for (int j = 0; j < 4; j++) {
            uint64_t bits = rng_bits(9, 4 * i + (uint64_t)j);
            a[j] = wild_value(5, 4 * i + (uint64_t)j);
            b[j] = wild_value(6, 4 * i + (uint64_t)j);
            c[j] = wild_value(7, 4 * i + (uint64_t)j);
            if (j < 2)
                continue;
            // 2^-24 of c's power of two, but for a factor of 1 - (k 2^-23)^2.
            int k = (int)(bits & 15), power = j == 2 ? (int)(bits >> 8 & 127) - 64 : -125;
            c[j] = ldexpf(1 + 0x1p-23f * (float)(bits >> 20 & 7), power);
            a[j] = ldexpf(bits >> 40 & 1 ? -1 : 1, power - 24) * (1 + 0x1p-23f * (float)k);
            b[j] = 1 - 0x1p-23f * (float)k;
        }
        check_fmaf(a, b, c);
    }
    for (int i = 0; i < NWILD * NWILD * NWILD; i++) {
        float x = wild[i % NWILD], y = wild[i / NWILD % NWILD], z = wild[i / NWILD / NWILD];
        check_fmaf((float[4]){x, x, -x, x}, (float[4]){y, y, y, -y}, (float[4]){z, -z, z, -z});
    }
}

// Moments in bf16 are the rounded ones of a run with fp32 moments, and the weights are the same.
static void moments_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Case *c = shape;
    struct Case wide = *c;
    wide.moments = F32;
    struct Run fp32;
    run_init(&fp32, r->device, r->skew);
    adamw_body(r, d, c);
    adamw_body(&fp32, d, &wide);
    run_finish(r);
    run_finish(&fp32);
    assert_memory_equal(run_result(r, "master"), run_result(&fp32, "master"), c->n * 4);
    for (int i = 0; i < 2; i++) {
        const uint16_t *got = run_result(r, i ? "v" : "m");
        const float *want = run_result(&fp32, i ? "v" : "m");
        for (size_t j = 0; j < c->n; j++)
            if (got[j] != bf16_from_f32(want[j]))
                fail_msg("%s: %s[%zu] is %x, not the rounded %a", r->device->kernels->name,
                         i ? "v" : "m", j, got[j], want[j]);
    }
    run_close(&fp32);
}

static void test_moments(void **state) {
    for (int i = 0; i < NSIZES; i++) {
        struct Case c = sizes[i];
        c.moments = BF16;
        c.param = PARAM_SAME;
        // The oracle rounds an fp64 number once, and begins with the same ones.
        rig_each(*state, moments_body, &c);
    }
}

static void expect_nothing_written(const struct Run *r) {
    for (int i = 0; i < r->noperand; i++) {
        const struct Operand *o = &r->operand[i];
        if (memcmp(o->start + o->at_bytes, o->end + o->at_bytes, o->size_bytes) != 0)
            fail_msg("%s: a skipped step wrote operand %d", r->device->kernels->name, i);
    }
}

// The stored parameter is the rounded master, to the bit; a skipped step writes nothing at all.
static void param_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Case *c = shape;
    adamw_body(r, d, shape);
    run_finish(r);
    const float *master = run_result(r, "master");
    enum Dtype p = c->param < NDTYPE ? (enum Dtype)c->param : d;
    for (size_t i = 0; i < c->n && c->param != PARAM_NONE && !c->skip; i++) {
        uint32_t want = dtype_bits(p, master[i]); // its first bytes are the low ones
        if (memcmp(&want, (const char *)run_result(r, "param") + i * dtype_size(p), dtype_size(p)))
            fail_msg("%s %s: param[%zu] is not the rounded %a", r->device->kernels->name,
                     dtype_name(p), i, master[i]);
    }
    if (c->skip)
        expect_nothing_written(r);
}

static void skipped_body(struct Run *r, enum Dtype d, const void *shape) {
    adamw_body(r, d, shape);
    run_finish(r);
    expect_nothing_written(r);
}

static void check_param(const struct Rig *rig, const struct Case *c) {
    struct Case skipped = *c;
    skipped.skip = true;
    rig_each(rig, param_body, c);
    rig_each(rig, param_body, &skipped);
}

static void test_param(void **state) {
    each_case(*state, check_param, false);
}

// The same elements in two calls.
static void shards_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Case *c = shape;
    struct Run whole;
    run_init(&whole, r->device, !r->skew);
    adamw_body(&whole, d, c);
    struct AdamW a = operands(r, d, c), b = a;
    a.n = c->cut;
    a.n_decay = size_min(c->n_decay, c->cut);
    b.n = c->n - c->cut;
    b.n_decay = c->n_decay - a.n_decay;
    b.master = dtype_at(b.master, master_dtype(b.master_format), c->cut);
    b.index += c->cut;
    b.m = dtype_at(b.m, b.moments_dtype, c->cut);
    b.v = dtype_at(b.v, b.moments_dtype, c->cut);
    b.grad = dtype_at(b.grad, d, c->cut);
    b.param = b.param ? dtype_at(b.param, b.param_dtype, c->cut) : NULL;
    r->device->kernels->adamw(compute(r), &a);
    r->device->kernels->adamw(compute(r), &b);
    same_run(r, &whole, "in one call");
}

static void check_masters(const struct Rig *rig, const struct Case *c) {
    struct Case skipped = *c;
    skipped.skip = true;
    rig_each(rig, skipped_body, &skipped);
    check_same_bits(rig, c);
    if (c->cut)
        rig_each(rig, shards_body, c);
}

static void check_shards(const struct Rig *rig, const struct Case *c) {
    rig_each(rig, shards_body, c);
}

static void test_shards(void **state) {
    each_case(*state, check_shards, false);
}

// ---- formats of master weights ----

// A run with fp32 masters that begin as those of c do.
static void run_fp32(struct Run *fp32, const struct Run *like, enum Dtype d, const struct Case *c) {
    struct Case wide = *c;
    wide.master = MASTER_FP32;
    wide.param = BF16;
    run_init(fp32, like->device, like->skew);
    if (c->master == MASTER_BF16) { // which holds fewer numbers: those that bf16 has
        struct AdamW a = operands(fp32, d, c);
        struct Cast cast = {c->n, F32, BF16, a.master, a.master};
        a.master_format = MASTER_FP32;
        cast.dst = a.master = output_poison(fp32, "wide", F32, c->n, 2);
        fp32->device->kernels->cast(compute(fp32), &cast);
        fp32->device->kernels->adamw(compute(fp32), &a);
    } else {
        adamw_body(fp32, d, &wide);
    }
    run_finish(fp32);
}

static void split_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Case *c = shape;
    struct Run fp32;
    adamw_body(r, d, c);
    run_finish(r);
    run_fp32(&fp32, r, d, c);
    const uint16_t *low = run_result(r, "low"), *weight = run_result(r, "param");
    const float *want = run_result(&fp32, "master");
    assert_memory_equal(weight, run_result(&fp32, "param"), c->n * sizeof *weight);
    assert_memory_equal(run_result(r, "m"), run_result(&fp32, "m"), c->n * dtype_size(c->moments));
    for (size_t i = 0; i < c->n; i++) {
        float v = dtype_load(run_result(r, "v"), c->moments, i);
        float got = master_join(weight[i], low[i], signbit(v));
        bool same_v = fabsf(v) == dtype_load(run_result(&fp32, "v"), c->moments, i) || isnan(v);
        if (!same_v || (f32_bits(got) != f32_bits(want[i]) && !(isnan(got) && isnan(want[i]))))
            fail_msg("%s: split master[%zu] of %zu is %a, should be %a; v is %a",
                     r->device->kernels->name, i, c->n, got, want[i], v);
    }
    run_close(&fp32);
}

static void test_split(void **state) {
    for (int i = 0; i < 4 * NSIZES; i++) {
        struct Case c = sizes[i / 4];
        c.moments = i % 2 ? BF16 : F32;
        c.master = MASTER_SPLIT;
        c.param = BF16;
        c.ties = i / 2 % 2;
        rig_each(*state, split_body, &c);
        c.wild = !c.ties;
        rig_each(*state, split_body, &c);
    }
}

// Each new weight is the one that fp32 arithmetic has, rounded with the number of its element.
static void bf16_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Case *c = shape;
    struct Run fp32;
    adamw_body(r, d, c);
    run_finish(r);
    run_fp32(&fp32, r, d, c);
    const uint16_t *got = run_result(r, "master");
    const float *w = run_result(&fp32, "wide");
    for (size_t i = 0; i < c->n; i++) {
        uint16_t want =
            bf16_at_random(w[i], master_random(master_key(7, c->update), 1000000007 + i));
        if (got[i] != want && !(isnan(w[i]) && isnan(f32_from_bf16(got[i]))))
            fail_msg("%s: bf16 master[%zu] of %zu is %x, not %x of %a", r->device->kernels->name, i,
                     c->n, got[i], want, w[i]);
    }
    if (c->param == BF16)
        assert_memory_equal(got, run_result(r, "param"), c->n * sizeof *got);
    run_close(&fp32);
}

static void test_bf16(void **state) {
    for (int i = 0; i < 4 * NSIZES; i++) {
        struct Case c = sizes[i / 4];
        c.moments = i % 2 ? BF16 : F32;
        c.master = MASTER_BF16;
        c.param = i / 2 % 2 ? BF16 : PARAM_NONE;
        c.update = (uint64_t)i;
        rig_each(*state, bf16_body, &c);
        c.wild = true;
        rig_each(*state, bf16_body, &c);
    }
}

// A skipped step, parts of an update, and all tables: as of fp32 masters.
static void test_masters_alike(void **state) {
    for (int i = 0; i < 2 * NSIZES; i++) {
        struct Case c = sizes[i / 2];
        c.master = i % 2 ? MASTER_SPLIT : MASTER_BF16;
        c.param = BF16;
        c.cut = c.cut / 4 * 4;
        check_masters(*state, &c);
    }
}

// The mean of many weights that were rounded at random is that of the weights that were not: an
// update of a small part of bf16's steps is neither lost nor taken whole, whatever its part.
static void test_unbiased(void **state) {
    (void)state;
    enum { MANY = 1 << 18 };
    for (int part = 1; part < 16; part++)
        for (int sign = -1; sign <= 1; sign += 2) {
            float w = (float)sign * (1 + 0x1p-7f * (float)part / 16);
            double sum = 0, before = 0, together = 0;
            for (uint64_t i = 0; i < MANY; i++) {
                uint16_t random = master_random(master_key(part & 1, 5), i);
                double off = (f32_from_bf16(bf16_at_random(w, random)) - (double)w) * 128;
                sum += off;
                together += off * before; // neighbours have nothing to do with each other
                before = off;
            }
            // Five standard deviations: each is off by 1/2 at the most.
            if (fabs(sum) > 5 * 0.5 * sqrt(MANY) || fabs(together) > 5 * 0.25 * sqrt(MANY))
                fail_msg("%a rounded at random is off by %g steps of %d; neighbours %g", (double)w,
                         sum, MANY, together);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),   cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_fmaf),     cmocka_unit_test(test_moments),
        cmocka_unit_test(test_param),    cmocka_unit_test(test_shards),
        cmocka_unit_test(test_split),    cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_unbiased), cmocka_unit_test(test_masters_alike),
    };
    return cmocka_run_group_tests_name("kernels_adamw", tests, rig_setup, rig_teardown) != 0;
}
