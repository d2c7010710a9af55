// Lookups in a table of 16 numbers by codes of 4 bits, two in a byte, the first in its upper half.
//
// A lookup is a permutation of the table. An instruction of AVX-512 makes 32 lookups of 16 bits, or
// 16 of fp32. AVX2 looks up the two bytes of 16 bits one by one, 32 at a time, and fp32 in the two
// halves of the table, 8 at a time. Bits of an index that an instruction ignores are left in it.
//
// Used by nf4.c.
#ifndef KERNELS_CPU_VEC_LOOKUP_H
#define KERNELS_CPU_VEC_LOOKUP_H
#include "kernels/cpu/vec.h"

#if defined __AVX512F__

// Writes the n numbers that n codes, a multiple of 32, have in a table of 16: of 16 / VEC_LANES
// vectors.
VEC_INLINE void vec_lookup_half(const VecHalf *table, const uint8_t *code, size_t n, uint16_t *to) {
    __m512i twice = _mm512_broadcast_i64x4(table[0]);
    for (size_t i = 0; i < n; i += 32) {
        __m512i pair = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(code + i / 2)));
        __m512i at = _mm512_or_si512(_mm512_srli_epi32(pair, 4), _mm512_slli_epi32(pair, 16));
        _mm512_storeu_si512(to + i, _mm512_permutexvar_epi16(at, twice));
    }
}
VEC_INLINE void vec_lookup_f32(const Vec *table, const uint8_t *code, size_t n, float *to) {
    for (size_t i = 0; i < n; i += 16) {
        __m512i pair = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(code + i / 2)));
        __m512i at = _mm512_or_si512(_mm512_srli_epi64(pair, 4), _mm512_slli_epi64(pair, 32));
        vec_store_f32(to + i, _mm512_permutexvar_ps(at, table[0]));
    }
}

#elif defined __AVX2__ && defined __FMA__

VEC_INLINE void vec_lookup_half(const VecHalf *table, const uint8_t *code, size_t n, uint16_t *to) {
    __m256i all = _mm256_setr_m128i(table[0], table[1]);
    __m256i bytes = _mm256_packus_epi16(_mm256_and_si256(all, _mm256_set1_epi16(0xff)),
                                        _mm256_srli_epi16(all, 8)); // of 8 items low, high, twice
    __m256i low = _mm256_permute4x64_epi64(bytes, 0x88);
    __m256i high = _mm256_permute4x64_epi64(bytes, 0xdd);
    __m128i four = _mm_set1_epi8(15);
    for (size_t i = 0; i < n; i += 32) {
        __m128i pair = _mm_loadu_si128((const __m128i *)(code + i / 2));
        __m128i first = _mm_and_si128(_mm_srli_epi16(pair, 4), four);
        __m128i second = _mm_and_si128(pair, four);
        __m256i at =
            _mm256_setr_m128i(_mm_unpacklo_epi8(first, second), _mm_unpackhi_epi8(first, second));
        at = _mm256_permute4x64_epi64(at, 0xd8); // so that unpacking leaves them in order
        __m256i lows = _mm256_shuffle_epi8(low, at), highs = _mm256_shuffle_epi8(high, at);
        _mm256_storeu_si256((__m256i *)(to + i), _mm256_unpacklo_epi8(lows, highs));
        _mm256_storeu_si256((__m256i *)(to + i + 16), _mm256_unpackhi_epi8(lows, highs));
    }
}
VEC_INLINE void vec_lookup_f32(const Vec *table, const uint8_t *code, size_t n, float *to) {
    for (size_t i = 0; i < n; i += 8) {
        int32_t codes;
        memcpy(&codes, code + i / 2, sizeof codes);
        __m256i pair = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(codes));
        __m256i at = _mm256_or_si256(_mm256_srli_epi64(pair, 4), _mm256_slli_epi64(pair, 32));
        Vec fourth = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)); // the bit that chooses a half
        vec_store_f32(to + i, _mm256_blendv_ps(_mm256_permutevar8x32_ps(table[0], at),
                                               _mm256_permutevar8x32_ps(table[1], at), fourth));
    }
}

#else

VEC_INLINE void vec_lookup_half(const VecHalf *table, const uint8_t *code, size_t n, uint16_t *to) {
    uint16_t all[16];
    for (size_t i = 0; i < 16; i += VEC_LANES)
        vec_store_half(all + i, table[i / VEC_LANES]);
    for (size_t i = 0; i < n; i += 2) {
        to[i] = all[code[i / 2] >> 4];
        to[i + 1] = all[code[i / 2] & 15];
    }
}
VEC_INLINE void vec_lookup_f32(const Vec *table, const uint8_t *code, size_t n, float *to) {
    float all[16];
    for (size_t i = 0; i < 16; i += VEC_LANES)
        vec_store_f32(all + i, table[i / VEC_LANES]);
    for (size_t i = 0; i < n; i += 2) {
        to[i] = all[code[i / 2] >> 4];
        to[i + 1] = all[code[i / 2] & 15];
    }
}

#endif

#endif
