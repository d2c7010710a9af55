// Turns rows into columns, a vector of rows at a time, for packing.
//
// A matrix whose k runs along memory must be packed with its rows adjacent. vec_transpose takes 16
// bytes from each of VEC_LANES rows: 4 floats, or 4 pairs of bf16 or fp16, as 32-bit items. A
// vector is filled with one quarter-row per 128-bit lane (lane L of vector i: row 4L + i), and two
// rounds of unpacking inside the lanes then leave item c of all rows, in order, in vector c: 8
// shuffles for 4 * VEC_LANES items.
//
// vec_evens and vec_odds separate pairs in memory.
//
// Used by matmul_pack.c, attention_tile.h and rotate.c.
#ifndef KERNELS_CPU_VEC_TRANSPOSE_H
#define KERNELS_CPU_VEC_TRANSPOSE_H
#include "kernels/cpu/vec.h"

// Loads 16 bytes from p.
VEC_INLINE __m128 quad_load(const char *p) {
    return _mm_loadu_ps((const float *)p);
}

#if defined __AVX512F__ // ------------------------------------------------------------------ avx512

// Loads 16 bytes each of rows 0, 4, 8, 12, which are `ld_bytes` apart.
VEC_INLINE Vec vec_load_quads(const char *p, size_t ld_bytes) {
    __m512 v = _mm512_castps128_ps512(quad_load(p));
    v = _mm512_insertf32x4(v, quad_load(p + 4 * ld_bytes), 1);
    v = _mm512_insertf32x4(v, quad_load(p + 8 * ld_bytes), 2);
    return _mm512_insertf32x4(v, quad_load(p + 12 * ld_bytes), 3);
}
// Stores the lower half of the lanes to low, the upper half to high.
VEC_INLINE void vec_store_split(float *low, float *high, Vec a) {
    _mm256_storeu_ps(low, _mm512_castps512_ps256(a));
    _mm256_storeu_ps(high, _mm512_extractf32x8_ps(a, 1));
}
VEC_INLINE Vec vec_unpack_low(Vec a, Vec b) { // per 128 bits: a0 b0 a1 b1
    return _mm512_unpacklo_ps(a, b);
}
VEC_INLINE Vec vec_unpack_high(Vec a, Vec b) { // a2 b2 a3 b3
    return _mm512_unpackhi_ps(a, b);
}
VEC_INLINE Vec vec_join_low(Vec a, Vec b) { // a0 a1 b0 b1
    return _mm512_shuffle_ps(a, b, 0x44);
}
// Return lanes 0, 2, 4, ... of a, then those of b; and the others.
VEC_INLINE Vec vec_evens(Vec a, Vec b) {
    __m512i lanes = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_ps(a, lanes, b);
}
VEC_INLINE Vec vec_odds(Vec a, Vec b) {
    __m512i lanes = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_ps(a, lanes, b);
}
VEC_INLINE Vec vec_join_high(Vec a, Vec b) { // a2 a3 b2 b3
    return _mm512_shuffle_ps(a, b, 0xee);
}
// Return the first (lower) number of each pair, in bf16 or fp16, as fp32.
VEC_INLINE Vec vec_first_bf16(Vec pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
VEC_INLINE Vec vec_first_f16(Vec pairs) {
    return vec_widen_f16(_mm512_cvtepi32_epi16(_mm512_castps_si512(pairs)));
}
// Moves the second number of each pair to the position of the first.
VEC_INLINE Vec vec_second(Vec pairs) {
    return _mm512_castsi512_ps(_mm512_srli_epi32(_mm512_castps_si512(pairs), 16));
}

#elif defined __AVX2__ // --------------------------------------------------------------------- avx2

VEC_INLINE Vec vec_load_quads(const char *p, size_t ld_bytes) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(quad_load(p)), quad_load(p + 4 * ld_bytes),
                                1);
}
VEC_INLINE void vec_store_split(float *low, float *high, Vec a) {
    _mm_storeu_ps(low, _mm256_castps256_ps128(a));
    _mm_storeu_ps(high, _mm256_extractf128_ps(a, 1));
}
VEC_INLINE Vec vec_unpack_low(Vec a, Vec b) {
    return _mm256_unpacklo_ps(a, b);
}
VEC_INLINE Vec vec_unpack_high(Vec a, Vec b) {
    return _mm256_unpackhi_ps(a, b);
}
VEC_INLINE Vec vec_join_low(Vec a, Vec b) {
    return _mm256_shuffle_ps(a, b, 0x44);
}
VEC_INLINE Vec vec_mend_quarters(Vec a) { // a0 a1 b0 b1 a2 a3 b2 b3 becomes a0 .. a3 b0 .. b3
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xd8));
}
VEC_INLINE Vec vec_evens(Vec a, Vec b) {
    return vec_mend_quarters(_mm256_shuffle_ps(a, b, 0x88));
}
VEC_INLINE Vec vec_odds(Vec a, Vec b) {
    return vec_mend_quarters(_mm256_shuffle_ps(a, b, 0xdd));
}
VEC_INLINE Vec vec_join_high(Vec a, Vec b) {
    return _mm256_shuffle_ps(a, b, 0xee);
}
VEC_INLINE Vec vec_first_bf16(Vec pairs) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
VEC_INLINE Vec vec_first_f16(Vec pairs) {
    __m256i first = _mm256_and_si256(_mm256_castps_si256(pairs), _mm256_set1_epi32(0xffff));
    __m128i low = _mm256_castsi256_si128(first), high = _mm256_extracti128_si256(first, 1);
    return vec_widen_f16(_mm_packus_epi32(low, high));
}
VEC_INLINE Vec vec_second(Vec pairs) {
    return _mm256_castsi256_ps(_mm256_srli_epi32(_mm256_castps_si256(pairs), 16));
}

#else // ------------------------------------------------------------------------------------- base

VEC_INLINE Vec vec_load_quads(const char *p, size_t ld_bytes) {
    (void)ld_bytes;
    return quad_load(p);
}
VEC_INLINE void vec_store_split(float *low, float *high, Vec a) {
    _mm_storel_pi((__m64 *)low, a);
    _mm_storeh_pi((__m64 *)high, a);
}
VEC_INLINE Vec vec_unpack_low(Vec a, Vec b) {
    return _mm_unpacklo_ps(a, b);
}
VEC_INLINE Vec vec_unpack_high(Vec a, Vec b) {
    return _mm_unpackhi_ps(a, b);
}
VEC_INLINE Vec vec_join_low(Vec a, Vec b) {
    return _mm_shuffle_ps(a, b, 0x44);
}
VEC_INLINE Vec vec_evens(Vec a, Vec b) {
    return _mm_shuffle_ps(a, b, 0x88);
}
VEC_INLINE Vec vec_odds(Vec a, Vec b) {
    return _mm_shuffle_ps(a, b, 0xdd);
}
VEC_INLINE Vec vec_join_high(Vec a, Vec b) {
    return _mm_shuffle_ps(a, b, 0xee);
}
VEC_INLINE Vec vec_first_bf16(Vec pairs) {
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_castps_si128(pairs), 16));
}
VEC_INLINE Vec vec_first_f16(Vec pairs) {
    return vec_widen_f16_items(_mm_castps_si128(pairs));
}
VEC_INLINE Vec vec_second(Vec pairs) {
    return _mm_castsi128_ps(_mm_srli_epi32(_mm_castps_si128(pairs), 16));
}

#endif // ------------------------------------------------------------------- every instruction set

// Return the first (lower) and second number of each pair of dtype d as fp32.
VEC_INLINE Vec vec_pair_first(Vec pairs, enum Dtype d) {
    return d == BF16 ? vec_first_bf16(pairs) : vec_first_f16(pairs);
}
VEC_INLINE Vec vec_pair_second(Vec pairs, enum Dtype d) {
    return vec_pair_first(vec_second(pairs), d);
}

// out[c] = item c (32 bits) of rows 0 .. VEC_LANES - 1 at p, `ld_bytes` apart. Reads 16 bytes of
// each.
VEC_INLINE void vec_transpose(Vec out[4], const char *p, size_t ld_bytes) {
    Vec r0 = vec_load_quads(p, ld_bytes);
    Vec r1 = vec_load_quads(p + ld_bytes, ld_bytes);
    Vec r2 = vec_load_quads(p + 2 * ld_bytes, ld_bytes);
    Vec r3 = vec_load_quads(p + 3 * ld_bytes, ld_bytes);
    Vec low01 = vec_unpack_low(r0, r1), high01 = vec_unpack_high(r0, r1);
    Vec low23 = vec_unpack_low(r2, r3), high23 = vec_unpack_high(r2, r3);
    out[0] = vec_join_low(low01, low23);
    out[1] = vec_join_high(low01, low23);
    out[2] = vec_join_low(high01, high23);
    out[3] = vec_join_high(high01, high23);
}

#endif
