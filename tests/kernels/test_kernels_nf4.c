// Weights in 4 bits: every table has the oracle's bits, and bitsandbytes', which
// scripts/gen/nf4_fixtures.py keeps in tests/fixtures/nf4; and a run keeps what kernels/nf4.h
// promises of errors, zeros and what is not finite.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

static void quantize(const struct Run *r, size_t n, enum Dtype d, const void *x, void *to) {
    struct Nf4Quantize a = {n, d, x, to};
    r->device->kernels->nf4_quantize(compute(r), &a);
}

static void dequantize(const struct Run *r, size_t n, enum Dtype d, const void *from, void *x) {
    struct Nf4Dequantize a = {n, d, from, x};
    r->device->kernels->nf4_dequantize(compute(r), &a);
}

// ---- every table against the oracle ----

// Blocks of many sizes, some of zeros; in run 1 an infinity, in run 2 a NaN.
static void quantize_body(struct Run *r, enum Dtype d, const void *shape) {
    size_t runs = *(const size_t *)shape, n = runs * NF4_RUN;
    float *x = base_alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = i / NF4_BLOCK % 7 == 3 ? 0 : ldexpf(rng_normal(3, i), (int)(i / NF4_BLOCK % 12) - 8);
    if (runs > 2) {
        x[NF4_RUN + 100] = -INFINITY;
        x[2 * NF4_RUN + 200] = NAN;
    }
    void *to = output_bytes(r, "to", nf4_bytes(n), NULL);
    quantize(r, n, d, input_values(r, d, n, x), to);
    free(x);
}

// Any bytes are codes. Bit by bit, and so by way of bytes.
static void dequantize_body(struct Run *r, enum Dtype d, const void *shape) {
    size_t runs = *(const size_t *)shape, n = runs * NF4_RUN, bytes = n * dtype_size(d);
    struct Nf4Run *from = base_alloc(nf4_bytes(n));
    for (size_t i = 0; i < nf4_bytes(n); i++)
        ((uint8_t *)from)[i] = (uint8_t)rng_bits(11, i);
    for (size_t i = 0; i < runs; i++) {
        from[i].scale = ldexpf(rng_normal(12, i), (int)(i % 5) - 3);
        from[i].offset = i % 3 == 2 ? 0 : rng_normal(13, i);
    }
    void *x = output_random(r, "x", d, n, 0), *bits = output_bytes(r, "its bits", bytes, NULL);
    dequantize(r, n, d, input_bytes(r, nf4_bytes(n), from), x);
    device_copy(r->device, QUEUE_COMPUTE, bits, x, bytes);
    free(from);
}

TEST(every_table_has_the_oracles_bits) {
    static const size_t runs[] = {1, 4, 7};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        rig_check(*state, quantize_body, &runs[i], true);
        rig_check(*state, dequantize_body, &runs[i], true);
    }
}

// ---- bitsandbytes ----

// The rows of KINDS.
enum Kind { NORMAL, HEAVY_TAILS, ZEROS, TINY, FAR_APART, ALIKE, TIES, SUMS, NKIND };

// The midpoint between two values, or a number beside it.
static float near_middle(uint64_t bits) {
    int32_t code = (int32_t)(bits % (NF4_CODES - 1));
    uint32_t middle = f32_bits((nf4_value(code) + nf4_value(code + 1)) / 2);
    return f32_from_bits(middle + (uint32_t)((bits >> 8) % 3) - 1);
}

// elements() of the generator.
static float element(enum Kind kind, size_t i) {
    uint64_t bits = rng_bits(kind, i);
    int block = (int)(i / NF4_BLOCK), sum = -131070;
    for (int k = 0; k < 4; k++)
        sum += (int)(bits >> 16 * k & 0xffff);
    float m = (float)sum;
    switch (kind) {
    case HEAVY_TAILS:
        return m * m * m * 0x1p-60f;
    case ZEROS:
        return ldexpf(block % 9 == 4 || i % 1024 >= 992 ? 0 : m, -20);
    case TINY:
        return ldexpf(m, -160 + block % 64);
    case FAR_APART:
        return ldexpf(m, block % 40 - 30);
    case ALIKE:
        return m < 0 ? -0.75f : 0.75f;
    case TIES:
        return ldexpf(i % NF4_BLOCK ? near_middle(bits) : 1, block % 16 - 8);
    case SUMS:
        return ldexpf(m, block % 32 ? -24 : 0);
    default:
        return ldexpf(m, -20);
    }
}

static uint64_t checksum(const void *x, enum Dtype d) {
    uint64_t sum = 0;
    for (size_t i = 0; i < NF4_RUN; i++)
        sum += (2 * i + 1) * (d == F32 ? ((const uint32_t *)x)[i] : ((const uint16_t *)x)[i]);
    return sum;
}

static void bitsandbytes_body(struct Run *r, enum Dtype d, const void *values) {
    for (int kind = 0; kind < NKIND; kind++) {
        struct Run one;
        char name[16];
        float x[NF4_RUN];
        run_init(&one, r->device, r->skew);
        for (size_t i = 0; i < NF4_RUN; i++)
            x[i] = element(kind, i);
        struct Nf4Run *to = output_bytes(&one, "to", nf4_bytes(NF4_RUN), NULL);
        void *back = output_poison(&one, "back", d, NF4_RUN, 0);
        quantize(&one, NF4_RUN, F32, input_values(&one, F32, NF4_RUN, x), to);
        dequantize(&one, NF4_RUN, d, to, back);
        run_finish(&one);
        snprintf(name, sizeof name, "run %d", kind);
        const uint8_t *want = (const void *)values_u16(values, name, sizeof *to / 2);
        const uint8_t *got = run_result(&one, "to");
        for (size_t i = 0; i < sizeof *to; i++)
            if (got[i] != want[i])
                fail_msg("%s, run %d: byte %zu is %02x, and bitsandbytes' %02x",
                         r->device->kernels->name, kind, i, got[i], want[i]);
        uint64_t sums[NDTYPE];
        snprintf(name, sizeof name, "back %d", kind);
        memcpy(sums, values_u16(values, name, sizeof sums / 2), sizeof sums);
        if (checksum(run_result(&one, "back"), d) != sums[d])
            fail_msg("%s, run %d: in %s other values come back than bitsandbytes'",
                     r->device->kernels->name, kind, dtype_name(d));
        run_close(&one);
    }
}

TEST(runs_are_those_of_bitsandbytes) {
    struct Values *values = values_open("tests/fixtures/nf4/runs.val");
    rig_each(*state, bitsandbytes_body, values);
    values_close(values);
}

// ---- what a run keeps ----

enum { RUNS = 3, NUMEL = RUNS * NF4_RUN };

static void there_and_back(struct Run *r, enum Dtype d, const float *x, float *back) {
    void *runs = output_bytes(r, "runs", nf4_bytes(NUMEL), NULL);
    void *to = output_bytes(r, "back", NUMEL * sizeof *back, NULL);
    quantize(r, NUMEL, d, input_values(r, d, NUMEL, x), runs);
    dequantize(r, NUMEL, F32, runs, to);
    run_finish(r);
    memcpy(back, run_result(r, "back"), NUMEL * sizeof *back);
}

static void bounds_body(struct Run *r, enum Dtype d, const void *shape) {
    (void)shape;
    float *x = base_alloc(NUMEL * sizeof *x), *back = base_alloc(NUMEL * sizeof *x);
    for (size_t i = 0; i < NUMEL; i++)
        x[i] = stored(d, rng_normal(5, i) * (float)(1 + i / NF4_BLOCK % 5));
    there_and_back(r, d, x, back);
    for (size_t run = 0; run < NUMEL; run += NF4_RUN) {
        double absmax[NF4_BLOCKS] = {0}, offset = 0, scale = 0, worst = 0;
        for (size_t i = 0; i < NF4_RUN; i++)
            absmax[i / NF4_BLOCK] = fmax(absmax[i / NF4_BLOCK], fabs((double)x[run + i]));
        for (size_t b = 0; b < NF4_BLOCKS; b++)
            offset += absmax[b] / NF4_BLOCKS;
        for (size_t b = 0; b < NF4_BLOCKS; b++)
            scale = fmax(scale, fabs(absmax[b] - offset));
        for (size_t i = 0; i < NF4_RUN; i++) {
            double bound = 0.152 * absmax[i / NF4_BLOCK] + scale / 128;
            worst = fmax(worst, fabs((double)back[run + i] - x[run + i]) / bound);
        }
        if (!(worst <= 1 + 1e-5) || !(worst > 0.5))
            fail_msg("%s, %s: an element of the run at %zu is off by %g times the bound",
                     r->device->kernels->name, dtype_name(d), run, worst);
    }
    free(x);
    free(back);
}

// A run of zeros and one small block, one with an infinity, and one that is as it should be. Every
// fourth element is 0.
static void special_body(struct Run *r, enum Dtype d, const void *shape) {
    float bad = *(const float *)shape, *x = base_alloc(NUMEL * sizeof *x);
    float *back = base_alloc(NUMEL * sizeof *x);
    for (size_t i = 0; i < NUMEL; i++)
        x[i] = i % 4 == 1 || (i < NF4_RUN && i >= NF4_BLOCK) ? 0 : i % 2 ? 1 : -1;
    x[NF4_RUN + 5000] = bad;
    there_and_back(r, d, x, back);
    for (size_t i = 0; i < NUMEL; i++) {
        float want = x[i] != 0 && i / NF4_RUN == 1 ? NAN : x[i];
        bool good = isnan(want) ? isnan(back[i]) : fabsf(back[i] - want) <= 1e-6f;
        // Beside the infinity all others round to 0.
        if (isinf(bad) && i != NF4_RUN + 5000 && i / NF4_BLOCK == (NF4_RUN + 5000) / NF4_BLOCK)
            good = back[i] == 0;
        if (!good || (want == 0 && f32_bits(back[i]) != 0))
            fail_msg("%s, %s: element %zu, %g, comes back as %g, not %g", r->device->kernels->name,
                     dtype_name(d), i, x[i], back[i], want);
    }
    free(x);
    free(back);
}

// Blocks that are finite, but not their sum.
static void overflow_body(struct Run *r, enum Dtype d, const void *shape) {
    (void)shape;
    float *x = base_alloc(NUMEL * sizeof *x), *back = base_alloc(NUMEL * sizeof *x);
    for (size_t i = 0; i < NUMEL; i++)
        x[i] = d == F16 ? 0 : i % 2 ? 0 : 0x1p127f;
    there_and_back(r, d, x, back);
    for (size_t i = 0; i < NUMEL; i++)
        if (x[i] == 0 ? back[i] != 0 : !isnan(back[i]))
            fail_msg("%s, %s: element %zu, %g, comes back as %g", r->device->kernels->name,
                     dtype_name(d), i, x[i], back[i]);
    free(x);
    free(back);
}

TEST(a_run_keeps_its_promise) {
    static const float bad[] = {INFINITY, NAN};
    rig_each(*state, bounds_body, NULL);
    for (int i = 0; i < 2; i++)
        rig_each(*state, special_body, &bad[i]);
    rig_each(*state, overflow_body, NULL);
}

TEST(bytes_are_as_written) {
    assert_int_equal(sizeof(struct Nf4Run), 8456);
    assert_int_equal(nf4_bytes(0), 0);
    assert_int_equal(nf4_bytes(3 * NF4_RUN), 3 * 8456);
}

AROUND_ALL(rig_setup, rig_teardown);
