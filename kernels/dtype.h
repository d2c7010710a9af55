// Number formats and the counter-based random generator.
//
// bf16 is the upper half of an fp32. Rounding to it is done with integers, to nearest, ties to
// even: the hardware's own conversion (AVX512_BF16) flushes denormals, so its bits differ.
//
// Random numbers are a pure function of (seed, index): whoever needs value i computes value i.
// Initial weights and the order of the data therefore do not depend on ranks, shards or stages.
#ifndef KERNELS_DTYPE_H
#define KERNELS_DTYPE_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum Dtype { F32, BF16, F16, NDTYPE };

static inline size_t dtype_size(enum Dtype d) {
    return d == F32 ? 4 : 2;
}

static inline const char *dtype_name(enum Dtype d) {
    static const char *const names[NDTYPE] = {"fp32", "bf16", "fp16"};
    return names[d];
}

static inline uint32_t f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float f32_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float f32_from_bf16(uint16_t h) {
    return f32_from_bits((uint32_t)h << 16);
}

// To nearest, ties to even. A NaN stays a NaN (its quiet bit is set), infinities stay, denormals
// stay.
static inline uint16_t bf16_from_f32(float x) {
    uint32_t u = f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

// fp16 (IEEE 754 binary16): 5 bits of exponent, 10 of fraction. Exact.
static inline float f32_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u) // infinity, NaN
        return f32_from_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    // The fields of an fp32 whose exponent is too small by 112, which a product mends; it also
    // makes normal numbers of denormals.
    return f32_from_bits(sign | f32_bits(f32_from_bits(rest << 13) * 0x1p112f));
}

// To nearest, ties to even. Past 65519.996 it is infinity; below 2^-14 it has fewer bits.
static inline uint16_t f16_from_f32(float x) {
    uint32_t u = f32_bits(x), sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (u >= 0x47800000u) // 2^16
        return (uint16_t)(sign | 0x7c00u);
    if (u < 0x38800000u) { // 2^-14: added to 0.5, whose last bit is 2^-24, it is rounded as it must
        float shifted = f32_from_bits(u) + 0.5f;
        return (uint16_t)(sign | (f32_bits(shifted) - f32_bits(0.5f)));
    }
    u += 0xc8000000u + 0xfffu + (u >> 13 & 1u); // exponent less 112; may carry into infinity
    return (uint16_t)(sign | u >> 13);
}

// Reads or writes element i of an array.
static inline float dtype_load(const void *p, enum Dtype d, size_t i) {
    if (d == F32)
        return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return d == BF16 ? f32_from_bf16(h) : f32_from_f16(h);
}

static inline void dtype_store(void *p, enum Dtype d, size_t i, float x) {
    if (d == F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = d == BF16 ? bf16_from_f32(x) : f16_from_f32(x);
}

// Byte address of element i.
static inline void *dtype_at(const void *p, enum Dtype d, size_t i) {
    return (char *)p + i * dtype_size(d);
}

// A bijection of 64 bits that spreads every input bit over all output bits (the finaliser of
// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
static inline uint64_t rng_mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// 64 random bits for (seed, index).
static inline uint64_t rng_bits(uint64_t seed, uint64_t index) {
    return rng_mix(rng_mix(seed + 0x9e3779b97f4a7c15u) + index * 0x9e3779b97f4a7c15u);
}

// Uniform in [0, 1) with 24 bits.
static inline float rng_uniform(uint64_t seed, uint64_t index) {
    return (float)(rng_bits(seed, index) >> 40) * 0x1p-24f;
}

// Standard normal by Box and Muller's transform of the two halves of one draw.
static inline float rng_normal(uint64_t seed, uint64_t index) {
    uint64_t bits = rng_bits(seed, index);
    float u = ((float)(uint32_t)(bits >> 40) + 1.0f) * 0x1p-24f; // (0, 1]
    float v = (float)(uint32_t)(bits & 0xffffffu) * 0x1p-24f;
    return sqrtf(-2.0f * logf(u)) * cosf(6.2831853071795865f * v);
}

#endif
