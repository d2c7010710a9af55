// A vector of floats, as wide as the instruction set that the file is compiled for.
//
// The fast kernels are written once against this header and compiled four times (Makefile):
//   base        4 lanes   SSE2, what every x86-64 has; vec_fma rounds twice here, vec_fmaf never
//   avx2        8 lanes   AVX2, FMA and F16C (for fp16)
//   avx512     16 lanes   AVX-512 F, BW, DQ, VL
//   avx512bf16 16 lanes   the same and AVX512_BF16 (vec_pair.h)
// Products and attention are compiled once more, with AMX beside the last (amx: vec_tiles.h).
// All choices by instruction set are made here, once; a kernel sees VEC_LANES and the functions
// below. The usual operators (a + b, -a) work on a Vec lane by lane, in GCC and clang.
//
// A lane's result depends on that lane alone, also in the tail of an array. So GELU of a value has
// the same bits in gelu_forward, in a matmul's epilogue, and at any index of its row.
//
// Read next: vec_array.h, which reads and writes arrays of any dtype; vec_math.h, the functions
// made of it; gelu.c, the simplest kernel.
#ifndef KERNELS_CPU_VEC_H
#define KERNELS_CPU_VEC_H
#include "kernels/dtype.h"

#include <immintrin.h>
#include <stdbool.h>

#ifndef ISA
#error "compile with -DISA=base, avx2, avx512 or avx512bf16: it becomes part of a kernel's name"
#endif

// The name of a kernel for this instruction set: CPU_NAME(sum) is avx512_sum.
#define CPU_NAME(op) CPU_PASTE(ISA, op)
#define CPU_PASTE(isa, op) CPU_PASTE_EXPANDED(isa, op)
#define CPU_PASTE_EXPANDED(isa, op) isa##_##op

#define VEC_INLINE static inline __attribute__((always_inline))

// Makes `call`, in which D is the dtype as a constant: an inline function that gets D is compiled
// once for each.
#define WITH_DTYPE(dtype, call)                                                                    \
    do {                                                                                           \
        if ((dtype) == F32) {                                                                      \
            const enum Dtype D = F32;                                                              \
            call;                                                                                  \
        } else if ((dtype) == BF16) {                                                              \
            const enum Dtype D = BF16;                                                             \
            call;                                                                                  \
        } else {                                                                                   \
            const enum Dtype D = F16;                                                              \
            call;                                                                                  \
        }                                                                                          \
    } while (0)

#if defined __AVX512F__ // ------------------------------------------------------------------ avx512

enum { VEC_LANES = 16 };
typedef __m512 Vec;
typedef __mmask16 VecMask;

VEC_INLINE Vec vec_set(float x) {
    return _mm512_set1_ps(x);
}
VEC_INLINE Vec vec_fma(Vec a, Vec b, Vec c) { // a * b + c
    return _mm512_fmadd_ps(a, b, c);
}
VEC_INLINE Vec vec_fmaf(Vec a, Vec b, Vec c) {
    return vec_fma(a, b, c);
}
VEC_INLINE Vec vec_max(Vec a, Vec b) { // b if one of them is NaN
    return _mm512_max_ps(a, b);
}
VEC_INLINE Vec vec_min(Vec a, Vec b) {
    return _mm512_min_ps(a, b);
}
VEC_INLINE Vec vec_sqrt(Vec a) {
    return _mm512_sqrt_ps(a);
}
// Returns a mask of the first n lanes, n in 0 .. VEC_LANES.
VEC_INLINE VecMask vec_mask(size_t n) {
    return (VecMask)((1u << n) - 1);
}
VEC_INLINE Vec vec_select(VecMask mask, Vec yes, Vec no) {
    return _mm512_mask_blend_ps(mask, no, yes);
}
VEC_INLINE Vec vec_load_f32(const float *p) {
    return _mm512_loadu_ps(p);
}
VEC_INLINE void vec_store_f32(float *p, Vec a) {
    _mm512_storeu_ps(p, a);
}
VEC_INLINE Vec vec_load_f32_part(const float *p, size_t n) {
    return _mm512_maskz_loadu_ps(vec_mask(n), p);
}
VEC_INLINE void vec_store_f32_part(float *p, size_t n, Vec a) {
    _mm512_mask_storeu_ps(p, vec_mask(n), a);
}
typedef __m256i VecHalf; // VEC_LANES numbers of 16 bits
VEC_INLINE VecHalf vec_load_half(const uint16_t *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
VEC_INLINE VecHalf vec_load_half_part(const uint16_t *p, size_t n) {
    return _mm256_maskz_loadu_epi16(vec_mask(n), p);
}
VEC_INLINE void vec_store_half(uint16_t *p, VecHalf h) {
    _mm256_storeu_si256((__m256i *)p, h);
}
VEC_INLINE void vec_store_half_part(uint16_t *p, size_t n, VecHalf h) {
    _mm256_mask_storeu_epi16(p, vec_mask(n), h);
}
VEC_INLINE void vec_stream_half(uint16_t *p,
                                VecHalf h) { // past the caches; needs an _mm_sfence
    _mm256_stream_si256((__m256i *)p, h);
}
VEC_INLINE Vec vec_widen_bf16(VecHalf h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
// bf16_from_f32 of each lane.
VEC_INLINE VecHalf vec_narrow_bf16(Vec a) {
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
VEC_INLINE Vec vec_widen_f16(VecHalf h) {
    return _mm512_cvtph_ps(h);
}
// f16_from_f32 of each lane, but for the bits of a NaN.
VEC_INLINE VecHalf vec_narrow_f16(Vec a) {
    return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE Vec vec_round(Vec a) { // to the nearest integer
    return _mm512_roundscale_ps(a, 0);
}
VEC_INLINE Vec vec_scale(Vec a, Vec n) { // a * 2^n, n an integer in -152 .. 129
    return _mm512_scalef_ps(a, n);
}
// Lane i + lane i + 8: the first step of a sum over lanes; the others follow below.
VEC_INLINE __m256 vec_fold_8(Vec a) {
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
VEC_INLINE __m128 vec_fold_4(Vec a) {
    __m256 b = vec_fold_8(a);
    return _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
}
VEC_INLINE __m128 vec_fold_max_4(Vec a) {
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    return _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
}

#elif defined __AVX2__ && defined __FMA__ // ------------------------------------------------- avx2

enum { VEC_LANES = 8 };
typedef __m256 Vec;
typedef __m256i VecMask; // all bits of a chosen lane

VEC_INLINE Vec vec_set(float x) {
    return _mm256_set1_ps(x);
}
VEC_INLINE Vec vec_fma(Vec a, Vec b, Vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
VEC_INLINE Vec vec_fmaf(Vec a, Vec b, Vec c) {
    return vec_fma(a, b, c);
}
VEC_INLINE Vec vec_max(Vec a, Vec b) {
    return _mm256_max_ps(a, b);
}
VEC_INLINE Vec vec_min(Vec a, Vec b) {
    return _mm256_min_ps(a, b);
}
VEC_INLINE Vec vec_sqrt(Vec a) {
    return _mm256_sqrt_ps(a);
}
VEC_INLINE VecMask vec_mask(size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VEC_INLINE Vec vec_select(VecMask mask, Vec yes, Vec no) {
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(mask));
}
VEC_INLINE Vec vec_load_f32(const float *p) {
    return _mm256_loadu_ps(p);
}
VEC_INLINE void vec_store_f32(float *p, Vec a) {
    _mm256_storeu_ps(p, a);
}
VEC_INLINE Vec vec_load_f32_part(const float *p, size_t n) {
    return _mm256_maskload_ps(p, vec_mask(n));
}
VEC_INLINE void vec_store_f32_part(float *p, size_t n, Vec a) {
    _mm256_maskstore_ps(p, vec_mask(n), a);
}
typedef __m128i VecHalf;
VEC_INLINE VecHalf vec_load_half(const uint16_t *p) {
    return _mm_loadu_si128((const __m128i *)p);
}
VEC_INLINE void vec_store_half(uint16_t *p, VecHalf h) {
    _mm_storeu_si128((__m128i *)p, h);
}
VEC_INLINE void vec_stream_half(uint16_t *p, VecHalf h) {
    _mm_stream_si128((__m128i *)p, h);
}
VEC_INLINE Vec vec_widen_bf16(VecHalf h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
VEC_INLINE VecHalf vec_narrow_bf16(Vec a) {
    __m256i u = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    r = _mm256_srai_epi32(_mm256_blendv_epi8(r, quiet, nan), 16); // signed, as the pack needs it
    return _mm_packs_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
VEC_INLINE Vec vec_widen_f16(VecHalf h) {
    return _mm256_cvtph_ps(h);
}
VEC_INLINE VecHalf vec_narrow_f16(Vec a) {
    return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE Vec vec_round(Vec a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE Vec vec_power_of_2(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// In two halves, since n itself can be outside the range of fp32 exponents.
VEC_INLINE Vec vec_scale(Vec a, Vec n) {
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return a * vec_power_of_2(half) * vec_power_of_2(_mm256_sub_epi32(whole, half));
}
VEC_INLINE __m128 vec_fold_4(Vec a) {
    return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
}
VEC_INLINE __m128 vec_fold_max_4(Vec a) {
    return _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
}

#else // ------------------------------------------------------------------------------------- base

enum { VEC_LANES = 4 };
typedef __m128 Vec;
typedef __m128i VecMask;

VEC_INLINE Vec vec_set(float x) {
    return _mm_set1_ps(x);
}
VEC_INLINE Vec vec_fma(Vec a, Vec b, Vec c) {
    return _mm_add_ps(_mm_mul_ps(a, b), c);
}
// a * b + c of fp32 numbers in fp64. The product is exact; an inexact sum gets a last bit of 1,
// after which rounding it to fp32 gives the same as the true sum would (rounding to odd: Boldo,
// Melquiond, "Emulation of a FMA", 2008). `rest`, the sum's rounding error, is Knuth's TwoSum.
VEC_INLINE __m128d vec_fma_odd(__m128d a, __m128d b, __m128d c) {
    __m128d p = a * b, s = p + c, t = s - p, rest = (p - (s - t)) + (c - t);
    __m128i bits = _mm_castpd_si128(s), one = _mm_set1_epi64x(1);
    __m128i even = _mm_sub_epi64(_mm_and_si128(bits, one), one); // all bits, or none
    __m128d moves = _mm_cmplt_pd(_mm_setzero_pd(), rest * rest); // false for a NaN
    __m128i down = _mm_srli_epi64(_mm_castpd_si128(_mm_xor_pd(s, rest)), 63);
    __m128i unit = _mm_sub_epi64(one, _mm_add_epi64(down, down)); // towards rest: 1 or -1
    unit = _mm_and_si128(unit, _mm_and_si128(even, _mm_castpd_si128(moves)));
    return _mm_castsi128_pd(_mm_add_epi64(bits, unit));
}
VEC_INLINE Vec vec_fmaf(Vec a, Vec b, Vec c) {
    __m128d low = vec_fma_odd(_mm_cvtps_pd(a), _mm_cvtps_pd(b), _mm_cvtps_pd(c));
    Vec a2 = _mm_movehl_ps(a, a), b2 = _mm_movehl_ps(b, b), c2 = _mm_movehl_ps(c, c);
    __m128d high = vec_fma_odd(_mm_cvtps_pd(a2), _mm_cvtps_pd(b2), _mm_cvtps_pd(c2));
    return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
VEC_INLINE Vec vec_max(Vec a, Vec b) {
    return _mm_max_ps(a, b);
}
VEC_INLINE Vec vec_min(Vec a, Vec b) {
    return _mm_min_ps(a, b);
}
VEC_INLINE Vec vec_sqrt(Vec a) {
    return _mm_sqrt_ps(a);
}
VEC_INLINE VecMask vec_mask(size_t n) {
    return _mm_cmpgt_epi32(_mm_set1_epi32((int)n), _mm_setr_epi32(0, 1, 2, 3));
}
VEC_INLINE Vec vec_select(VecMask mask, Vec yes, Vec no) {
    Vec m = _mm_castsi128_ps(mask);
    return _mm_or_ps(_mm_and_ps(m, yes), _mm_andnot_ps(m, no));
}
VEC_INLINE Vec vec_load_f32(const float *p) {
    return _mm_loadu_ps(p);
}
VEC_INLINE void vec_store_f32(float *p, Vec a) {
    _mm_storeu_ps(p, a);
}
VEC_INLINE Vec vec_load_f32_part(const float *p, size_t n) {
    float f[4] = {0};
    for (size_t i = 0; i < n; i++)
        f[i] = p[i];
    return vec_load_f32(f);
}
VEC_INLINE void vec_store_f32_part(float *p, size_t n, Vec a) {
    float f[4];
    vec_store_f32(f, a);
    for (size_t i = 0; i < n; i++)
        p[i] = f[i];
}
typedef __m128i VecHalf; // in its lower half
VEC_INLINE VecHalf vec_load_half(const uint16_t *p) {
    return _mm_loadl_epi64((const __m128i *)p);
}
VEC_INLINE void vec_store_half(uint16_t *p, VecHalf h) {
    _mm_storel_epi64((__m128i *)p, h);
}
VEC_INLINE void vec_stream_half(uint16_t *p, VecHalf h) {
    _mm_stream_si64((long long *)p, _mm_cvtsi128_si64(h));
}
VEC_INLINE Vec vec_widen_bf16(VecHalf h) {
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), h));
}
VEC_INLINE VecHalf vec_narrow_bf16(Vec a) {
    __m128i u = _mm_castps_si128(a);
    __m128i odd = _mm_and_si128(_mm_srli_epi32(u, 16), _mm_set1_epi32(1));
    __m128i r = _mm_add_epi32(_mm_add_epi32(u, _mm_set1_epi32(0x7fff)), odd);
    __m128i quiet = _mm_or_si128(u, _mm_set1_epi32(0x400000));
    __m128i nan = _mm_castps_si128(_mm_cmpunord_ps(a, a));
    r = _mm_or_si128(_mm_and_si128(nan, quiet), _mm_andnot_si128(nan, r));
    r = _mm_srai_epi32(r, 16); // signed, as the pack needs it
    return _mm_packs_epi32(r, r);
}
// f32_from_f16 of the lower half of each 32-bit item, by the same steps.
VEC_INLINE Vec vec_widen_f16_items(__m128i u) {
    __m128i sign = _mm_slli_epi32(_mm_srli_epi32(_mm_slli_epi32(u, 16), 31), 31);
    __m128i rest = _mm_and_si128(u, _mm_set1_epi32(0x7fff)), wide = _mm_slli_epi32(rest, 13);
    __m128i scaled = _mm_castps_si128(_mm_castsi128_ps(wide) * _mm_set1_ps(0x1p112f));
    __m128i special = _mm_or_si128(wide, _mm_set1_epi32(0x7f800000));
    VecMask is_special = _mm_cmpgt_epi32(rest, _mm_set1_epi32(0x7bff));
    Vec value = vec_select(is_special, _mm_castsi128_ps(special), _mm_castsi128_ps(scaled));
    return _mm_or_ps(value, _mm_castsi128_ps(sign));
}
VEC_INLINE Vec vec_widen_f16(VecHalf h) {
    return vec_widen_f16_items(_mm_unpacklo_epi16(h, _mm_setzero_si128()));
}
// f16_from_f32 of each lane, by the same steps.
VEC_INLINE VecHalf vec_narrow_f16(Vec a) {
    __m128i u = _mm_and_si128(_mm_castps_si128(a), _mm_set1_epi32(0x7fffffff));
    __m128i half = _mm_castps_si128(_mm_set1_ps(0.5f));
    __m128i odd = _mm_and_si128(_mm_srli_epi32(u, 13), _mm_set1_epi32(1));
    __m128i r = _mm_add_epi32(_mm_add_epi32(u, _mm_set1_epi32((int)0xc8000fffu)), odd);
    Vec normal = _mm_castsi128_ps(_mm_srli_epi32(r, 13));
    Vec shifted = _mm_castsi128_ps(u) + _mm_castsi128_ps(half);
    Vec denormal = _mm_castsi128_ps(_mm_sub_epi32(_mm_castps_si128(shifted), half));
    Vec value = vec_select(_mm_cmplt_epi32(u, _mm_set1_epi32(0x38800000)), denormal, normal);
    Vec infinity = _mm_castsi128_ps(_mm_set1_epi32(0x7c00));
    Vec nan = _mm_castsi128_ps(_mm_set1_epi32(0x7e00));
    value = vec_select(_mm_cmpgt_epi32(u, _mm_set1_epi32(0x477fffff)), infinity, value);
    value = vec_select(_mm_cmpgt_epi32(u, _mm_set1_epi32(0x7f800000)), nan, value);
    __m128i sign = _mm_and_si128(_mm_srli_epi32(_mm_castps_si128(a), 16), _mm_set1_epi32(0x8000));
    r = _mm_or_si128(_mm_castps_si128(value), sign);
    r = _mm_srai_epi32(_mm_slli_epi32(r, 16), 16); // signed, as the pack needs it
    return _mm_packs_epi32(r, r);
}
VEC_INLINE Vec vec_round(Vec a) { // |a| < 2^31
    return _mm_cvtepi32_ps(_mm_cvtps_epi32(a));
}
VEC_INLINE Vec vec_power_of_2(__m128i n) {
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(n, _mm_set1_epi32(127)), 23));
}
VEC_INLINE Vec vec_scale(Vec a, Vec n) {
    __m128i whole = _mm_cvtps_epi32(n), half = _mm_srai_epi32(whole, 1);
    return a * vec_power_of_2(half) * vec_power_of_2(_mm_sub_epi32(whole, half));
}
VEC_INLINE __m128 vec_fold_4(Vec a) {
    return a;
}
VEC_INLINE __m128 vec_fold_max_4(Vec a) {
    return a;
}

#endif // ------------------------------------------------------------------- every instruction set

#ifndef __AVX512F__
VEC_INLINE VecHalf vec_load_half_part(const uint16_t *p, size_t n) {
    uint16_t h[VEC_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        h[i] = p[i];
    return vec_load_half(h);
}
VEC_INLINE void vec_store_half_part(uint16_t *p, size_t n, VecHalf half) {
    uint16_t h[VEC_LANES];
    vec_store_half(h, half);
    for (size_t i = 0; i < n; i++)
        p[i] = h[i];
}
#endif

// The sum of all lanes, halves added to halves.
VEC_INLINE float vec_sum(Vec a) {
    __m128 b = vec_fold_4(a);
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(b) + _mm_cvtss_f32(_mm_shuffle_ps(b, b, 1));
}

VEC_INLINE float vec_max_lane(Vec a) {
    __m128 b = vec_fold_max_4(a);
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}

#endif
