// A vector of floats, as wide as the instruction set that the file is compiled for.
//
// The fast kernels are written once against this header and compiled three times (Makefile):
//   base    4 lanes   SSE2, what every x86-64 has; no fused multiply-add, so vec_fma rounds twice
//   avx2    8 lanes   AVX2 and FMA
//   avx512 16 lanes   AVX-512 F, BW, DQ, VL
// All choices by instruction set are made here, once; a kernel sees VEC_LANES and the functions
// below. The usual operators work on a Vec lane by lane (a + b, a * b, -a): GCC and clang offer
// that for vectors.
//
// The second half reads and writes arrays of either dtype and has the functions (exp, GELU) that
// more than one kernel needs. `dtype` is always a constant where these are called, so the branch
// costs nothing: kernels are inline functions of a dtype that their public function calls once per
// dtype.
//
// A lane's result depends on that lane alone, also in the tail of an array. So GELU of one value
// has the same bits in gelu_forward, in a matmul's epilogue, and wherever it stands in its row.
//
// Read next: gelu.c, the simplest kernel made of it.
#ifndef KERNELS_CPU_VEC_H
#define KERNELS_CPU_VEC_H
#include "kernels/dtype.h"

#include <immintrin.h>
#include <stdbool.h>

#ifndef ISA
#error "compile with -DISA=base, avx2 or avx512: it becomes part of every kernel's name"
#endif

// The name of a kernel for this instruction set: CPU_NAME(sum) is avx512_sum.
#define CPU_NAME(op) CPU_PASTE(ISA, op)
#define CPU_PASTE(isa, op) CPU_PASTE_EXPANDED(isa, op)
#define CPU_PASTE_EXPANDED(isa, op) isa##_##op

#define VEC_INLINE static inline __attribute__((always_inline))

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
VEC_INLINE Vec vec_max(Vec a, Vec b) { // b if one of them is NaN
    return _mm512_max_ps(a, b);
}
VEC_INLINE Vec vec_min(Vec a, Vec b) {
    return _mm512_min_ps(a, b);
}
VEC_INLINE Vec vec_sqrt(Vec a) {
    return _mm512_sqrt_ps(a);
}
// The first n lanes, n in 0 .. VEC_LANES.
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
VEC_INLINE Vec vec_widen_bf16(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
VEC_INLINE Vec vec_load_bf16(const uint16_t *p) {
    return vec_widen_bf16(_mm256_loadu_si256((const __m256i *)p));
}
VEC_INLINE Vec vec_load_bf16_part(const uint16_t *p, size_t n) {
    return vec_widen_bf16(_mm256_maskz_loadu_epi16(vec_mask(n), p));
}
// bf16_from_f32 of each lane.
VEC_INLINE __m256i vec_narrow_bf16(Vec a) {
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
VEC_INLINE void vec_store_bf16(uint16_t *p, Vec a) {
    _mm256_storeu_si256((__m256i *)p, vec_narrow_bf16(a));
}
VEC_INLINE void vec_store_bf16_part(uint16_t *p, size_t n, Vec a) {
    _mm256_mask_storeu_epi16(p, vec_mask(n), vec_narrow_bf16(a));
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
VEC_INLINE Vec vec_widen_bf16(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
VEC_INLINE Vec vec_load_bf16(const uint16_t *p) {
    return vec_widen_bf16(_mm_loadu_si128((const __m128i *)p));
}
VEC_INLINE Vec vec_load_bf16_part(const uint16_t *p, size_t n) {
    uint16_t h[8] = {0};
    for (size_t i = 0; i < n; i++)
        h[i] = p[i];
    return vec_load_bf16(h);
}
VEC_INLINE __m128i vec_narrow_bf16(Vec a) {
    __m256i u = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    r = _mm256_srai_epi32(_mm256_blendv_epi8(r, quiet, nan), 16); // signed, as the pack wants it
    return _mm_packs_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
VEC_INLINE void vec_store_bf16(uint16_t *p, Vec a) {
    _mm_storeu_si128((__m128i *)p, vec_narrow_bf16(a));
}
VEC_INLINE Vec vec_round(Vec a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE Vec vec_power_of_2(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// In two halves, since n itself can lie outside the exponents of fp32.
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
VEC_INLINE Vec vec_load_bf16(const uint16_t *p) {
    return _mm_castsi128_ps(
        _mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)p)));
}
VEC_INLINE Vec vec_load_bf16_part(const uint16_t *p, size_t n) {
    uint16_t h[4] = {0};
    for (size_t i = 0; i < n; i++)
        h[i] = p[i];
    return vec_load_bf16(h);
}
VEC_INLINE __m128i vec_narrow_bf16(Vec a) {
    __m128i u = _mm_castps_si128(a);
    __m128i odd = _mm_and_si128(_mm_srli_epi32(u, 16), _mm_set1_epi32(1));
    __m128i r = _mm_add_epi32(_mm_add_epi32(u, _mm_set1_epi32(0x7fff)), odd);
    __m128i quiet = _mm_or_si128(u, _mm_set1_epi32(0x400000));
    __m128i nan = _mm_castps_si128(_mm_cmpunord_ps(a, a));
    r = _mm_or_si128(_mm_and_si128(nan, quiet), _mm_andnot_si128(nan, r));
    r = _mm_srai_epi32(r, 16); // signed, as the pack wants it
    return _mm_packs_epi32(r, r);
}
VEC_INLINE void vec_store_bf16(uint16_t *p, Vec a) {
    _mm_storel_epi64((__m128i *)p, vec_narrow_bf16(a));
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
VEC_INLINE void vec_store_bf16_part(uint16_t *p, size_t n, Vec a) {
    uint16_t h[VEC_LANES];
    vec_store_bf16(h, a);
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

// VEC_LANES elements from element i on of an array of dtype F32 or BF16; no alignment is needed.
// The _part forms touch the first n <= VEC_LANES elements only; the other lanes are read as 0.
VEC_INLINE Vec vec_load(const void *p, enum Dtype d, size_t i) {
    return d == F32 ? vec_load_f32((const float *)p + i) : vec_load_bf16((const uint16_t *)p + i);
}
VEC_INLINE Vec vec_load_part(const void *p, enum Dtype d, size_t i, size_t n) {
    return d == F32 ? vec_load_f32_part((const float *)p + i, n)
                    : vec_load_bf16_part((const uint16_t *)p + i, n);
}
VEC_INLINE void vec_store(void *p, enum Dtype d, size_t i, Vec a) {
    if (d == F32)
        vec_store_f32((float *)p + i, a);
    else
        vec_store_bf16((uint16_t *)p + i, a);
}
VEC_INLINE void vec_store_part(void *p, enum Dtype d, size_t i, size_t n, Vec a) {
    if (d == F32)
        vec_store_f32_part((float *)p + i, n, a);
    else
        vec_store_bf16_part((uint16_t *)p + i, n, a);
}

// The vector at element i < end of an array that ends at `end`: one call serves the body of a loop
// and its tail. The test costs nothing in a loop that waits for memory.
VEC_INLINE Vec vec_read(const void *p, enum Dtype d, size_t i, size_t end) {
    return end - i >= VEC_LANES ? vec_load(p, d, i) : vec_load_part(p, d, i, end - i);
}
VEC_INLINE void vec_write(void *p, enum Dtype d, size_t i, size_t end, Vec a) {
    if (end - i >= VEC_LANES)
        vec_store(p, d, i, a);
    else
        vec_store_part(p, d, i, end - i, a);
}

// e^x to 1 ulp; from -87.3 down the result is denormal, and 0 below -104; infinite above 88.72; NaN
// stays NaN. With n = x / ln 2 rounded and r = x - n ln 2, e^x = 2^n e^r, where |r| <= ln 2 / 2 and
// e^r is a minimax polynomial of degree 6. ln 2 is subtracted in two parts: the first has so few
// bits that n times it is exact.
VEC_INLINE Vec vec_exp(Vec x) {
    x = vec_min(vec_set(89.0f), vec_max(vec_set(-105.0f), x));
    Vec n = vec_round(x * vec_set(1.44269504f));
    Vec r = vec_fma(n, vec_set(-0x1.63p-1f), x);
    r = vec_fma(n, vec_set(0x1.bd0106p-13f), r);
    Vec p = vec_fma(vec_set(0.0013814592f), r, vec_set(0.008368717f));
    p = vec_fma(p, r, vec_set(0.04166839f));
    p = vec_fma(p, r, vec_set(0.16666521f));
    p = vec_fma(p, r, vec_set(0.49999994f));
    p = vec_fma(p, r * r, r) + vec_set(1.0f);
    return vec_scale(p, n);
}

// The argument of GELU's logistic function: since (1 + tanh u) / 2 = 1 / (1 + e^-2u), the tanh form
// of GELU is x / (1 + e^-2u) with u = sqrt(2/pi) (x + 0.044715 x^3). Unlike 1 + tanh u, that loses
// no digits where x is negative. This returns -2u.
VEC_INLINE Vec vec_gelu_argument(Vec x) {
    Vec cubic = vec_set(-1.5957691216f * 0.044715f);
    return x * vec_fma(x * x, cubic, vec_set(-1.5957691216f));
}

VEC_INLINE Vec vec_gelu(Vec x) {
    return x / (vec_set(1.0f) + vec_exp(vec_gelu_argument(x)));
}

// d GELU / dx = s + x s (1 - s) 2u', with e = e^-2u and s = 1 / (1 + e); 1 - s is taken as e s,
// which loses no digits where s is near 1. From |x| = 10 on s is 0 or 1 in fp32, so larger
// arguments are cut there, before x^3 overflows.
VEC_INLINE Vec vec_gelu_derivative(Vec x) {
    x = vec_min(vec_set(10.0f), vec_max(vec_set(-10.0f), x));
    Vec e = vec_exp(vec_gelu_argument(x));
    Vec s = vec_set(1.0f) / (vec_set(1.0f) + e);
    Vec slope = vec_fma(x * x, vec_set(3 * 0.044715f * 1.5957691216f), vec_set(1.5957691216f));
    return vec_fma(x * slope, s * (e * s), s);
}

#endif
