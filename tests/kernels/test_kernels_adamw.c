// AdamW in every table, with every dtype of gradients, moments and parameters: against the oracle;
// every table's bits against each other's, for wild values too; and that a shard's update has the
// bits of the whole's, on which ZeRO depends. Read next: test_kernels_master.c.
#define ISA base // of vec.h: this file is compiled for what every x86-64 has
#include "kernels/cpu/vec.h"
#include "tests/lib/adamw_case.h"
#include "tests/lib/test.h"

#include <stdlib.h>

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

TEST(test_oracle) {
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

TEST(test_same_bits) {
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

TEST(test_fmaf) {
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

TEST(test_moments) {
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

TEST(test_param) {
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

TEST(test_shards) {
    each_case(*state, check_shards, false);
}

// A skipped step, parts of an update, and all tables: as of fp32 masters.
TEST(test_masters_alike) {
    for (int i = 0; i < 2 * NSIZES; i++) {
        struct Case c = sizes[i / 2];
        c.master = i % 2 ? MASTER_SPLIT : MASTER_BF16;
        c.param = BF16;
        c.cut = c.cut / 4 * 4;
        check_masters(*state, &c);
    }
}

AROUND_ALL(rig_setup, rig_teardown);
