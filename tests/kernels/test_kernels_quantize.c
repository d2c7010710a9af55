// Numbers in few bits: every table has the oracle's bits, and the oracle keeps what
// kernels/quantize.h promises: no element is off by more than half a scale, what is not finite
// shows, and ties go to even.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

struct Shape {
    int bits;
    size_t n, parts, columns, ranks;
    bool accumulate;
};

// ---- every table against the oracle ----

static size_t message_bytes(const struct Shape *s, size_t runs) {
    return runs * quantized_bytes(s->bits, s->n);
}

// Any bytes are numbers; scales are of either sign, and some of them 0.
static void *input_messages(struct Run *r, const struct Shape *s, size_t runs) {
    size_t bytes = message_bytes(s, runs), each = quantized_bytes(s->bits, s->n);
    char *m = base_alloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        m[i] = (char)rng_bits(11, i);
    for (size_t run = 0; run < runs; run++)
        for (size_t b = 0; b < quantized_blocks(s->n); b++) {
            float scale = (run + b) % 7 == 3 ? 0 : rng_normal(12, run * 1000 + b) / 16;
            memcpy(m + run * each + b * sizeof scale, &scale, sizeof scale);
        }
    void *mem = input_bytes(r, bytes, m);
    free(m);
    return mem;
}

static void quantize_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    struct Quantize a = {s->n, s->parts, s->columns, s->bits, d, NULL, NULL};
    a.x = input_random(r, d, s->n * s->parts, 0.1f, 3);
    a.to = output_bytes(r, "to", message_bytes(s, s->parts), NULL);
    r->device->kernels->quantize(compute(r), &a);
}

// Bit by bit, and so by way of bytes.
static void dequantize_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    struct Dequantize a = {s->n, s->parts, s->ranks, s->bits, d, NULL, NULL, s->accumulate};
    size_t bytes = s->n * s->parts * dtype_size(d);
    a.from = input_messages(r, s, s->parts * s->ranks);
    a.x = output_random(r, "x", d, s->n * s->parts, 0);
    void *bits = output_bytes(r, "its bits", bytes, NULL);
    r->device->kernels->dequantize(compute(r), &a);
    device_copy(r->device, QUEUE_COMPUTE, bits, a.x, bytes);
}

static void requantize_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    struct Requantize a = {s->n, s->parts, s->ranks, s->bits, NULL, NULL};
    (void)d;
    a.from = input_messages(r, s, s->parts * s->ranks);
    a.to = output_bytes(r, "to", message_bytes(s, s->parts), NULL);
    r->device->kernels->requantize(compute(r), &a);
}

TEST(every_table_has_the_oracles_bits) {
    static const struct Shape shapes[] = {
        {8, 1, 1, 1, 1, false},     {8, 255, 1, 1, 1, true},   {8, 257, 1, 1, 1, false},
        {8, 256, 6, 2, 2, false},   {8, 1024, 6, 3, 1, true},  {8, 70001, 1, 1, 1, false},
        {4, 1, 1, 1, 1, true},      {4, 7, 1, 1, 1, false},    {4, 515, 1, 1, 1, false},
        {4, 512, 12, 4, 3, true},   {4, 256, 9, 3, 5, false},  {4, 70001, 1, 1, 1, true},
        {8, 4096, 20, 20, 2, true}, {4, 2048, 8, 1, 2, false}, {4, 70144, 1, 1, 4, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        rig_check(*state, quantize_body, &shapes[i], true);
        rig_check(*state, dequantize_body, &shapes[i], true);
        rig_check(*state, requantize_body, &shapes[i], true);
    }
}

// ---- what a block keeps ----

enum { BLOCKS = 5, TAIL = 37, NUMEL = (BLOCKS - 1) * QUANTIZE_BLOCK + TAIL };

// Quantizes `values`, stored in d, and reads them back in fp32.
static void there_and_back(struct Run *r, enum Dtype d, int bits, const float *values,
                           float *back) {
    void *messages = output_bytes(r, "messages", quantized_bytes(bits, NUMEL), NULL);
    float *x = output_bytes(r, "back", NUMEL * sizeof *x, NULL);
    struct Quantize to = {NUMEL, 1, 1, bits, d, input_values(r, d, NUMEL, values), messages};
    struct Dequantize from = {NUMEL, 1, 1, bits, F32, messages, x, false};
    r->device->kernels->quantize(compute(r), &to);
    r->device->kernels->dequantize(compute(r), &from);
    run_finish(r);
    memcpy(back, run_result(r, "back"), NUMEL * sizeof *back);
}

// Half a scale, and the roundings of the scale and of the product.
static void bounds_body(struct Run *r, enum Dtype d, const void *shape) {
    int bits = *(const int *)shape;
    float x[NUMEL], back[NUMEL];
    for (size_t i = 0; i < NUMEL; i++)
        x[i] = stored(d, rng_normal(5, i) * (float)(1 << i / QUANTIZE_BLOCK));
    there_and_back(r, d, bits, x, back);
    for (size_t begin = 0; begin < NUMEL; begin += QUANTIZE_BLOCK) {
        size_t end = size_min(begin + QUANTIZE_BLOCK, NUMEL);
        double most = 0, worst = 0;
        for (size_t i = begin; i < end; i++) {
            most = fmax(most, fabs((double)x[i]));
            worst = fmax(worst, fabs((double)back[i] - x[i]));
        }
        double bound = most / (bits == 8 ? 254 : 14);
        if (!(worst <= bound * (1 + 1e-5)) || !(worst > bound / 4))
            fail_msg("%s, %s, %d bits: off by %g in the block at %zu; at most %g",
                     r->device->kernels->name, dtype_name(d), bits, worst, begin, bound);
    }
}

// A block for each: halves, where the scale is 1; an infinity; a NaN; numbers too small for a
// scale; and a tail that is as it should be.
static void special_body(struct Run *r, enum Dtype d, const void *shape) {
    int bits = *(const int *)shape;
    float x[NUMEL], back[NUMEL], most = bits == 8 ? 127 : 7;
    for (size_t i = 0; i < NUMEL; i++)
        x[i] = (float)(i % 13) - 6.5f;
    x[100] = -most; // block 0
    x[256 + 9] = -INFINITY;
    x[512 + 255] = NAN;
    x[256 + 20] = x[512 + 21] = 0; // which they stay
    for (size_t i = 768; i < 1024; i++)
        x[i] = d == F16 ? 0 : i % 2 ? 0x1p-124f : -0x1p-130f;
    there_and_back(r, d, bits, x, back);
    for (size_t i = 0; i < NUMEL; i++) {
        size_t block = i / QUANTIZE_BLOCK;
        float want = block == 0                ? rintf(x[i])
                     : block == 3 || x[i] == 0 ? 0
                     : block == 4              ? x[i]
                                               : NAN;
        bool good = isnan(want) ? isnan(back[i]) : fabsf(back[i] - want) <= (block == 4 ? 0.5f : 0);
        if (!good)
            fail_msg("%s, %s, %d bits: element %zu, %g, comes back as %g, not %g",
                     r->device->kernels->name, dtype_name(d), bits, i, x[i], back[i], want);
    }
}

TEST(a_block_keeps_its_promise) {
    for (int bits = 4; bits <= 8; bits += 4) {
        rig_each(*state, bounds_body, &bits);
        rig_each(*state, special_body, &bits);
    }
}

TEST(bytes_are_as_written) {
    assert_int_equal(quantized_bytes(8, 1), 5);
    assert_int_equal(quantized_bytes(8, 256), 260);
    assert_int_equal(quantized_bytes(8, 257), 265);
    assert_int_equal(quantized_bytes(4, 1), 5);
    assert_int_equal(quantized_bytes(4, 256), 132);
    assert_int_equal(quantized_bytes(4, 515), 258 + 12);
}

AROUND_ALL(rig_setup, rig_teardown);
