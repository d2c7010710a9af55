// AdamW's formats of master weights (kernels/master.h) in every table: split has the bits of fp32,
// also where a weight is rounded in a tie; bf16 rounds at random, each element with the number that
// is its own, and with the mean that it should have.
#include "tests/lib/adamw_case.h"
#include "tests/lib/test.h"

#include <stdlib.h>

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

TEST(test_split) {
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
    if (c->param == BF16 && !c->wild) // a NaN has many forms
        assert_memory_equal(got, run_result(r, "param"), c->n * sizeof *got);
    run_close(&fp32);
}

TEST(test_bf16) {
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

// The mean of many weights that were rounded at random is that of the weights that were not: an
// update of a small part of bf16's steps is neither lost nor taken whole, whatever its part.
TEST(test_unbiased) {
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

AROUND_ALL(rig_setup, rig_teardown);
