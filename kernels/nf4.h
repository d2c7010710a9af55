// NF4: the format of frozen weights in 4 bits (Dettmers et al. 2023, "QLoRA", arXiv 2305.14314,
// section 3).
//
// NF4_BLOCK elements share a scale, their largest magnitude, and each is rounded to the nearest of
// 16 quantiles of a normal distribution times that (NormalFloat). The scales of NF4_BLOCKS blocks
// are written in 8 bits (double quantization): their mean, the offset, is subtracted, and the rest
// is rounded to one of 256 values times the largest of it. So NF4_RUN elements stand alone, as a
// struct Nf4Run of 8456 bytes: 4.13 bits an element. An array is a number of adjacent runs.
//
// The codes, the scale, the offset and the values that come back are those of bitsandbytes 0.50 on
// an x86-64 CPU, by quantize_4bit(x, blocksize=64, quant_type="nf4", compress_statistics=True) of
// each run: a tensor of one run has its bytes, and larger ones have an offset for each run instead
// of one for all. To the bit that means:
//
//   absmax    an element times 1 / absmax in fp32 is what is rounded; below 1e-38, 1e-38 divides
//   offset    the sum of absmax[32 i + k] over i = 0 .. 7, of each k; to these 32 sums, of each k
//             below 8, those of k + 8, k + 16 and k + 24; and these eight, one after the other: the
//             order of torch.mean, here over 256
//   8 bits    (absmax - offset) times 1 / scale is rounded to one of 65536 values, equally spaced
//             from -1 to 1, and then to the nearest value of the dynamic map (Dettmers 2015, arXiv
//             1511.04561)
//   a tie     goes to the lower code, of elements and of scales
//   back      x = value * (map * scale + offset), each operation rounded to fp32, and the result to
//             the array's dtype. Code 7 is 0, never -0
//
// A block of zeros is 0. A run with an infinity or a NaN, or one whose sum of absmax overflows, has
// the scale 0 and the offset NaN, and all of its elements but those of code 7 are NaN: an overflow
// is not hidden, and zeros, so padding, stay 0.
//
// An element is off by at most 0.152 absmax, half of the widest gap between values, and by what its
// absmax is off: at most 1/128 of the scale.
//
// Every table of kernels has the same bits, a NaN's aside. Used by the kernels nf4_quantize and
// nf4_dequantize (kernels.h).
#ifndef KERNELS_NF4_H
#define KERNELS_NF4_H
#include "kernels/quantize.h"

enum {
    NF4_BLOCK = 64,                   // elements of a scale
    NF4_BLOCKS = 256,                 // scales of an offset
    NF4_RUN = NF4_BLOCK * NF4_BLOCKS, // elements
    NF4_CODES = 16,                   // of an element
    NF4_ZERO = 7,                     // the code of 0
    NF4_MAP_ZERO = 127,               // the dynamic map's code of 0
    NF4_STEPS = 65535,                // equal steps from -1 to 1 ("8 bits" above)
};

struct Nf4Run {
    uint8_t code[NF4_RUN / 2];  // two in a byte, the first in its upper half
    uint8_t absmax[NF4_BLOCKS]; // of each block, a code of the dynamic map
    float scale, offset;
};

// Bytes of n elements, a multiple of NF4_RUN.
HOST_DEVICE static inline size_t nf4_bytes(size_t n) {
    return n / NF4_RUN * sizeof(struct Nf4Run);
}

// Returns the value of a code. They ascend.
HOST_DEVICE static inline float nf4_value(int32_t code) {
    static const float value[NF4_CODES] = {-1.0f,        -0.6961928f,  -0.52507305f,  -0.3949175f,
                                           -0.28444138f, -0.18477343f, -0.091050036f, 0.0f,
                                           0.0795803f,   0.1609302f,   0.2461123f,    0.33791524f,
                                           0.44070983f,  0.562617f,    0.72295684f,   1.0f};
    return value[code];
}

// Returns the dynamic map's value of a code, 0 .. 255; they ascend. Beside 0 and 1 there are 2^i
// centres of equal parts of 10^(i-7) .. 10^(i-6) for i = 0 .. 6, of either sign, in torch's fp32.
HOST_DEVICE static inline float nf4_map(int32_t code) {
    static const float from_zero[256 - NF4_MAP_ZERO] = {
        0.0f,         5.5000004e-7f, 3.2500002e-6f, 7.75e-6f,      2.1249998e-5f, 4.375e-5f,
        6.625e-5f,    8.875e-5f,     1.5625001e-4f, 2.6875004e-4f, 3.8125002e-4f, 4.9375003e-4f,
        6.062501e-4f, 7.1875006e-4f, 8.3125e-4f,    9.437501e-4f,  0.0012812499f, 0.00184375f,
        0.00240625f,  0.00296875f,   0.0035312497f, 0.00409375f,   0.0046562497f, 0.0052187503f,
        0.00578125f,  0.00634375f,   0.00690625f,   0.00746875f,   0.00803125f,   0.00859375f,
        0.009156249f, 0.00971875f,   0.01140625f,   0.01421875f,   0.01703125f,   0.019843752f,
        0.02265625f,  0.02546875f,   0.028281251f,  0.03109375f,   0.03390625f,   0.036718752f,
        0.03953125f,  0.042343747f,  0.04515625f,   0.04796875f,   0.05078125f,   0.05359375f,
        0.05640625f,  0.059218753f,  0.06203125f,   0.06484375f,   0.067656256f,  0.070468746f,
        0.07328125f,  0.07609375f,   0.07890625f,   0.08171876f,   0.08453125f,   0.08734375f,
        0.09015625f,  0.092968754f,  0.09578126f,   0.09859375f,   0.107031256f,  0.12109375f,
        0.13515624f,  0.14921875f,   0.16328125f,   0.17734376f,   0.19140625f,   0.20546874f,
        0.21953125f,  0.23359375f,   0.24765624f,   0.26171875f,   0.27578127f,   0.28984374f,
        0.30390626f,  0.31796873f,   0.33203125f,   0.34609374f,   0.36015624f,   0.37421876f,
        0.38828123f,  0.40234375f,   0.41640624f,   0.43046874f,   0.44453126f,   0.45859373f,
        0.47265625f,  0.4867187f,    0.50078124f,   0.5148437f,    0.5289062f,    0.54296875f,
        0.5570313f,   0.5710938f,    0.58515626f,   0.5992187f,    0.61328125f,   0.6273438f,
        0.6414063f,   0.65546876f,   0.6695312f,    0.68359375f,   0.6976563f,    0.7117188f,
        0.72578126f,  0.7398437f,    0.75390625f,   0.7679688f,    0.78203124f,   0.79609376f,
        0.8101562f,   0.82421875f,   0.8382813f,    0.85234374f,   0.86640626f,   0.8804687f,
        0.89453125f,  0.9085938f,    0.92265624f,   0.93671876f,   0.9507812f,    0.96484375f,
        0.9789063f,   0.99296874f,   1.0f};
    int32_t at = code - NF4_MAP_ZERO;
    return f32_from_bits(f32_bits(from_zero[at < 0 ? -at : at]) | ((uint32_t)at & 0x80000000u));
}

// Returns the factor of a block's elements before they are rounded ("absmax" above).
HOST_DEVICE static inline float nf4_inverse(float absmax) {
    return 1.0f / (absmax < 1e-38f ? 1e-38f : absmax);
}

// Returns the code of an element, given nf4_inverse of its block: the number of midpoints between
// neighbouring values below it; for NaN the last code. 0 has its code even if inverse is NaN.
HOST_DEVICE static inline int32_t nf4_code(float x, float inverse) {
    float scaled = x == 0 ? 0 : x * inverse;
    int32_t code = 0;
    for (int32_t i = 0; i < NF4_CODES - 1; i++)
        code += !(scaled <= (nf4_value(i) + nf4_value(i + 1)) / 2);
    return code;
}

// Returns the offset, the mean of NF4_BLOCKS absmax, from their sum; NaN if that is not finite.
HOST_DEVICE static inline float nf4_offset(float sum) {
    float offset = sum / NF4_BLOCKS;
    return offset <= FLT_MAX ? offset : f32_from_bits(0x7fc00000u);
}

// Returns the sum of absmax[NF4_BLOCKS], in the order of "offset" above.
HOST_DEVICE static inline float nf4_sum(const float *absmax) {
    float column[32], sum = 0;
    for (int k = 0; k < 32; k++)
        for (int i = 0; i < NF4_BLOCKS; i += 32)
            column[k] = i ? column[k] + absmax[i + k] : absmax[k];
    for (int k = 0; k < 8; k++)
        sum += ((column[k] + column[k + 8]) + column[k + 16]) + column[k + 24];
    return sum;
}

// Returns the scale of a run from the bits of the largest |absmax - offset|; 0 if not finite.
HOST_DEVICE static inline float nf4_scale(int32_t magnitude) {
    return magnitude < 0x7f800000 ? f32_from_bits((uint32_t)magnitude) : 0;
}

// Returns the code of a block's absmax, by "8 bits" above; difference: absmax - offset.
HOST_DEVICE static inline uint8_t nf4_absmax_code(float difference, float scale) {
    if (scale == 0)
        return 0;
    float scaled = difference == 0 ? 0 : difference * (1.0f / scale);
    scaled = scaled < -1 ? -1 : scaled > 1 ? 1 : scaled;
    int32_t step = (int32_t)((scaled + 1) * 0.5f * NF4_STEPS + 0.5f), code = 0;
    float rounded = -1.0f + (float)(2 * step) / NF4_STEPS;
    for (int32_t half = 128; half; half /= 2)
        if (0.5f * (nf4_map(code + half - 1) + nf4_map(code + half)) < rounded)
            code += half;
    return (uint8_t)code;
}

// Returns a block's absmax as it comes back.
HOST_DEVICE static inline float nf4_absmax(uint8_t code, float scale, float offset) {
    return nf4_map(code) * scale + offset;
}

// Return the code of element i; and the element that a code is in a block with this absmax.
HOST_DEVICE static inline int32_t nf4_code_at(const uint8_t *code, size_t i) {
    return code[i / 2] >> (i % 2 ? 0 : 4) & 15;
}
HOST_DEVICE static inline float nf4_element(int32_t code, float absmax) {
    return code == NF4_ZERO ? 0 : nf4_value(code) * absmax;
}

// ---- the kernels' operands ----

// Writes n elements of x, a multiple of NF4_RUN, as n / NF4_RUN adjacent runs to `to`, a multiple
// of 8 bytes.
struct Nf4Quantize {
    size_t n;
    enum Dtype dtype;
    const void *x;
    void *to;
};

// Reads n elements, a multiple of NF4_RUN, from the adjacent runs at `from`, a multiple of 8 bytes,
// to x.
struct Nf4Dequantize {
    size_t n;
    enum Dtype dtype;
    const void *from;
    void *x;
};

// Checks the operands that every table accepts.
static inline void nf4_check(size_t n) {
    CHECK(n % NF4_RUN == 0, "%zu elements", n);
}

#endif
