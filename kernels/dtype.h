// Number formats and the counter-based random generator.
//
// bf16 is the upper half of an fp32. Rounding to it is done with integers, to nearest, ties to
// even: the hardware's own conversion (AVX512_BF16) flushes denormals, so its bits differ.
//
// Random numbers are a pure function of (seed, index): code that needs value i computes value i. So
// initial weights and the order of the data do not depend on ranks, shards or stages. Nor on the
// machine: log and cos differ in the last bit between math libraries, so normal values have their
// own, made only of additions, products, divisions and roots, which IEEE 754 defines to the bit.
// CUDA kernels call the same functions.
#ifndef KERNELS_DTYPE_H
#define KERNELS_DTYPE_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Functions of this header also run on a GPU, when nvcc compiles them.
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

enum Dtype { F32, BF16, F16, NDTYPE };

HOST_DEVICE static inline size_t dtype_size(enum Dtype d) {
    return d == F32 ? 4 : 2;
}

static inline const char *dtype_name(enum Dtype d) {
    static const char *const names[NDTYPE] = {"fp32", "bf16", "fp16"};
    return names[d];
}

static const float LOG2_E = 1.44269504f; // exp(x) = 2^(x LOG2_E)

HOST_DEVICE static inline uint32_t f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

HOST_DEVICE static inline float f32_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

HOST_DEVICE static inline float f32_from_bf16(uint16_t h) {
    return f32_from_bits((uint32_t)h << 16);
}

// Rounds to nearest, ties to even. A NaN stays a NaN (its quiet bit is set), infinities and
// denormals stay.
HOST_DEVICE static inline uint16_t bf16_from_f32(float x) {
    uint32_t u = f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

// fp16 (IEEE 754 binary16): 5 bits of exponent, 10 of fraction. Exact.
HOST_DEVICE static inline float f32_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u) // infinity, NaN
        return f32_from_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    // Builds an fp32 whose exponent is too small by 112, and corrects it by a product, which also
    // makes normal numbers of denormals.
    return f32_from_bits(sign | f32_bits(f32_from_bits(rest << 13) * 0x1p112f));
}

// Rounds to nearest, ties to even. Past 65519.996 it is infinity; below 2^-14 it has fewer bits.
HOST_DEVICE static inline uint16_t f16_from_f32(float x) {
    uint32_t u = f32_bits(x), sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (u >= 0x47800000u) // 2^16
        return (uint16_t)(sign | 0x7c00u);
    if (u < 0x38800000u) { // 2^-14: adding it to 0.5, whose last bit is 2^-24, rounds it correctly
        float shifted = f32_from_bits(u) + 0.5f;
        return (uint16_t)(sign | (f32_bits(shifted) - f32_bits(0.5f)));
    }
    u += 0xc8000000u + 0xfffu + (u >> 13 & 1u); // exponent less 112; may carry into infinity
    return (uint16_t)(sign | u >> 13);
}

// Reads or writes element i of an array.
HOST_DEVICE static inline float dtype_load(const void *p, enum Dtype d, size_t i) {
    if (d == F32)
        return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return d == BF16 ? f32_from_bf16(h) : f32_from_f16(h);
}

HOST_DEVICE static inline void dtype_store(void *p, enum Dtype d, size_t i, float x) {
    if (d == F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = d == BF16 ? bf16_from_f32(x) : f16_from_f32(x);
}

// Byte address of element i.
HOST_DEVICE static inline void *dtype_at(const void *p, enum Dtype d, size_t i) {
    return (char *)p + i * dtype_size(d);
}

// A bijection of 64 bits that spreads every input bit over all output bits (the finaliser of
// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
HOST_DEVICE static inline uint64_t rng_mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// 64 random bits for (seed, index).
HOST_DEVICE static inline uint64_t rng_bits(uint64_t seed, uint64_t index) {
    return rng_mix(rng_mix(seed + 0x9e3779b97f4a7c15u) + index * 0x9e3779b97f4a7c15u);
}

// Uniform in [0, 1) with 24 bits.
HOST_DEVICE static inline float rng_uniform(uint64_t seed, uint64_t index) {
    return (float)(rng_bits(seed, index) >> 40) * 0x1p-24f;
}

// The natural logarithm of k / 2^24, k in 1 .. 2^24, to fp64's 11th digit: with k = m 2^e, m
// between the roots of 1/2 and 2, ln m = 2 artanh s for s = (m - 1) / (m + 1), whose series
// converges fast as |s| < 0.172.
HOST_DEVICE static inline double rng_log(uint32_t k) {
    double m = (double)k;
    uint64_t bits;
    memcpy(&bits, &m, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e++;
    }
    double s = (m - 1) / (m + 1), z = s * s;
    double p = 1.0 / 11 + z * (1.0 / 13);
    p = 1.0 / 9 + z * p;
    p = 1.0 / 7 + z * p;
    p = 1.0 / 5 + z * p;
    p = 1.0 / 3 + z * p;
    return (e - 24) * 0.69314718055994531 + 2 * s * (1 + z * p);
}

// The cosine of k / 2^24 turns, k in 0 .. 2^24 - 1, to fp64's 12th digit: Taylor's series around
// the nearest quarter of a turn, at most 1/8 away; that split is exact, as k is an integer.
HOST_DEVICE static inline double rng_cos(uint32_t k) {
    uint32_t quarter = (k + (1u << 21)) >> 22 & 3;
    int32_t rest = (int32_t)((k + (1u << 21)) & ((1u << 22) - 1)) - (1 << 21);
    double x = rest * (6.2831853071795865 * 0x1p-24), z = x * x, y;
    if (quarter & 1) {
        y = -1.0 / 39916800 + z * (1.0 / 6227020800); // 1/11!, 1/13!
        y = 1.0 / 362880 + z * y;
        y = -1.0 / 5040 + z * y;
        y = 1.0 / 120 + z * y;
        y = -1.0 / 6 + z * y;
        y = x * (1 + z * y);
    } else {
        y = -1.0 / 3628800 + z * (1.0 / 479001600); // 1/10!, 1/12!
        y = 1.0 / 40320 + z * y;
        y = -1.0 / 720 + z * y;
        y = 1.0 / 24 + z * y;
        y = -1.0 / 2 + z * y;
        y = 1 + z * y;
    }
    return quarter == 1 || quarter == 2 ? -y : y;
}

// Standard normal by Box and Muller's transform of a draw's upper and lower 24 bits, rounded once.
HOST_DEVICE static inline float rng_normal(uint64_t seed, uint64_t index) {
    uint64_t bits = rng_bits(seed, index);
    uint32_t u = (uint32_t)(bits >> 40) + 1, v = (uint32_t)(bits & 0xffffffu);
    return (float)(sqrt(-2.0 * rng_log(u)) * rng_cos(v));
}

#endif
