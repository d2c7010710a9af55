// Pairs of bf16, and their products by AVX512_BF16.
//
// vdpbf16ps multiplies two vectors of 32 bf16 numbers and adds the products, two by two, to 16 sums
// in fp32: twice the multiplications of an fp32 instruction. A vector of pairs is a Vec whose lanes
// hold two numbers each, the first in the lower half. VEC_DOTS_BF16 is true if the file is compiled
// for an instruction set with it; else no function here is called.
//
// Used by the matmul's loops and by attention. Read next: matmul_tile.c, attention_tile.h.
#ifndef KERNELS_CPU_VEC_PAIR_H
#define KERNELS_CPU_VEC_PAIR_H
#include "kernels/cpu/vec.h"

#ifdef __AVX512BF16__

enum { VEC_DOTS_BF16 = true };

VEC_INLINE Vec vec_pair_bf16(VecHalf first, VecHalf second) {
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, //
                         23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, both));
}
// The first n <= 2 VEC_LANES numbers from p on, as pairs; the others are 0.
VEC_INLINE Vec vec_load_pairs(const uint16_t *p, size_t n) {
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16((1ull << n) - 1, p));
}
// True if a lane is denormal.
VEC_INLINE bool vec_has_denormal(Vec a) {
    enum { DENORMAL = 0x20 };
    return _mm512_fpclass_ps_mask(a, DENORMAL) != 0;
}
// Returns a rounded to bf16, only for products: denormal numbers become 0.
VEC_INLINE VecHalf vec_narrow_for_dot(Vec a) {
    return (VecHalf)_mm512_cvtneps_pbh(a);
}
// sum + the second of a's pair times that of b's, plus the product of the firsts, each rounded to
// fp32. Denormal inputs and results count as 0.
VEC_INLINE Vec vec_dot_bf16(Vec a, Vec b, Vec sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
// 2^t with a relative error of 2^-22, for results that are rounded to bf16: 2^floor(t) times 2^f,
// where f = t - floor(t) is in 0 .. 1 and 2^f a minimax polynomial of degree 5. Half of vec_exp's
// instructions: nothing is clamped, since both instructions of AVX-512 accept any t.
VEC_INLINE Vec vec_exp2_for_bf16(Vec t) {
    Vec f = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    Vec p = vec_fma(vec_set(0.00187757667f), f, vec_set(0.00898934009f));
    p = vec_fma(p, f, vec_set(0.0558263181f));
    p = vec_fma(p, f, vec_set(0.240153617f));
    p = vec_fma(p, f, vec_set(0.693153073f));
    p = vec_fma(p, f, vec_set(0.999999925f));
    return _mm512_scalef_ps(p, t); // 2^floor(t) p
}

#else

enum { VEC_DOTS_BF16 = false };

VEC_INLINE Vec vec_pair_bf16(VecHalf first, VecHalf second) {
    (void)first, (void)second;
    __builtin_unreachable();
}
VEC_INLINE Vec vec_load_pairs(const uint16_t *p, size_t n) {
    (void)p, (void)n;
    __builtin_unreachable();
}
VEC_INLINE bool vec_has_denormal(Vec a) {
    (void)a;
    __builtin_unreachable();
}
VEC_INLINE VecHalf vec_narrow_for_dot(Vec a) {
    (void)a;
    __builtin_unreachable();
}
VEC_INLINE Vec vec_dot_bf16(Vec a, Vec b, Vec sum) {
    (void)a, (void)b, (void)sum;
    __builtin_unreachable();
}

VEC_INLINE Vec vec_exp2_for_bf16(Vec t) {
    (void)t;
    __builtin_unreachable();
}

#endif

// Packed operands have items of 32 bits: one element in fp32 or, if the instruction set multiplies
// them, a pair of bf16. Returns the elements of an item.
VEC_INLINE size_t item_elements(enum Dtype operands) {
    return VEC_DOTS_BF16 && operands == BF16 ? 2 : 1;
}

#endif
