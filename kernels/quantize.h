// Block quantization: the format in which weights and gradients cross a slow link.
//
// QUANTIZE_BLOCK elements share a scale, their largest magnitude over 127 (8 bits) or 7 (4 bits),
// and each is rounded to the nearest multiple of it, ties to even. So no element is off by more
// than half a scale: absmax / 254, or absmax / 14. A run of n elements is
//
//   float    scale[ceil(n / 256)]      of each block; the last block may be short
//   8 bits   int8_t q[n]               with 4 bits: two in a byte, the first in its lower half
//
// which is n + 4 ceil(n / 256) bytes, or ceil(n / 2) + 4 ceil(n / 256). A block with an infinity or
// a NaN has the scale NaN, and all of its elements but zeros are NaN: an overflow is not hidden,
// and padding stays 0. A block whose scale would be denormal (absmax below 2^-119 or 2^-123) is 0.
//
// Blocks of weights: Wang et al. 2023, "ZeRO++" (arXiv 2306.10209), section 3.1; of gradients 3.3.
// Every table of kernels has the same bits: a maximum has no order, and division, product and
// rounding are IEEE 754's. Used by the kernels quantize, dequantize and requantize (kernels.h).
#ifndef KERNELS_QUANTIZE_H
#define KERNELS_QUANTIZE_H
#include "kernels/base.h"
#include "kernels/dtype.h"

#include <float.h>

enum { QUANTIZE_BLOCK = 256 };

HOST_DEVICE static inline size_t quantized_blocks(size_t n) {
    return (n + QUANTIZE_BLOCK - 1) / QUANTIZE_BLOCK;
}
// Bytes of a run of n elements in `bits` bits.
HOST_DEVICE static inline size_t quantized_bytes(int bits, size_t n) {
    return quantized_blocks(n) * sizeof(float) + (bits == 8 ? n : (n + 1) / 2);
}

// The bits of |x|, which order magnitudes as integers; those of a NaN are the largest.
HOST_DEVICE static inline int32_t quantize_magnitude(float x) {
    return (int32_t)(f32_bits(x) & 0x7fffffffu);
}

// Returns the scale of a block with that largest magnitude.
HOST_DEVICE static inline float quantize_scale(int32_t magnitude, int bits) {
    float scale = f32_from_bits((uint32_t)magnitude) / (bits == 8 ? 127.0f : 7.0f);
    if (magnitude >= 0x7f800000)
        return f32_from_bits(0x7fc00000u);
    return scale < FLT_MIN ? 0 : scale;
}

// Returns the divisor of the block's elements: if the scale is 0, all of them become 0.
HOST_DEVICE static inline float quantize_divisor(float scale) {
    return scale == 0 ? INFINITY : scale;
}

// Returns x / divisor, rounded: an fp32 near 1.5 * 2^23 has no fraction bits. If the divisor is
// NaN: 1 if x is not 0.
HOST_DEVICE static inline int32_t quantize_one(float x, float divisor) {
    const float whole = 0x1.8p23f;
    float q = (x / divisor + whole) - whole;
    return q == q ? (int32_t)q : x != 0;
}

// Returns element i of a run's integers, which begin at `q`.
HOST_DEVICE static inline int32_t quantized_at(const uint8_t *q, int bits, size_t i) {
    if (bits == 8)
        return (int8_t)q[i];
    return (int8_t)(uint8_t)(q[i / 2] << (i % 2 ? 0 : 4)) >> 4;
}

// Returns q times its scale.
HOST_DEVICE static inline float dequantize_one(int32_t q, float scale) {
    return q ? (float)q * scale : 0;
}

// ---- the kernels' operands ----

// Quantizes `parts` adjacent runs of n elements of x to adjacent runs of `bits` bits, 8 or 4, in
// blocks (above): run p of `to` is run p of x; or with `columns` above 1, if x is a matrix of so
// many columns of runs, run p of its transpose. If there are several runs, n is a multiple of
// QUANTIZE_BLOCK.
struct Quantize {
    size_t n, parts, columns;
    int bits;
    enum Dtype dtype;
    const void *x;
    void *to;
};

// Run p of x is the sum over r < ranks of run r * parts + p of `from`, plus the old x if
// accumulate: added in fp32 in the order of r, rounded once.
struct Dequantize {
    size_t n, parts, ranks;
    int bits;
    enum Dtype dtype;
    const void *from;
    void *x;
    bool accumulate;
};

// The same sums without an old x, in fp32, quantized again to runs of `to`, which is not `from`.
struct Requantize {
    size_t n, parts, ranks;
    int bits;
    const void *from;
    void *to;
};

// Checks the operands that every table accepts.
static inline void quantize_check(int bits, size_t n, size_t runs) {
    CHECK(bits == 8 || bits == 4, "%d bits", bits);
    CHECK(runs == 1 || n % QUANTIZE_BLOCK == 0, "%zu runs of %zu elements", runs, n);
}

#endif
