// Pairs of bf16, and their products by AVX512_BF16.
//
// vdpbf16ps multiplies two vectors of 32 bf16 numbers and adds the products, two by two, to 16 sums
// in fp32: twice the multiplications of an fp32 instruction. A vector of pairs is a Vec whose lanes
// hold two numbers each, the first in the lower half. VEC_DOTS_BF16 says whether the instruction
// set that the file is compiled for has this; where it has not, no function here is called.
//
// Used by the matmul's loops and by attention. Read next: matmul_tile.c, attention_tile.h.
#ifndef KERNELS_CPU_VEC_PAIR_H
#define KERNELS_CPU_VEC_PAIR_H
#include "kernels/cpu/vec.h"

#ifdef __AVX512BF16__

enum { VEC_DOTS_BF16 = true };

VEC_INLINE Vec vec_pair_bf16(VecHalf first, VecHalf second) {
    __m512i low = _mm512_cvtepu16_epi32(first), high = _mm512_cvtepu16_epi32(second);
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}
// a rounded to bf16, for products alone: denormal numbers become 0.
VEC_INLINE VecHalf vec_narrow_for_dot(Vec a) {
    return (VecHalf)_mm512_cvtneps_pbh(a);
}
// sum + the second of a's pair times that of b's, and to that the product of the firsts, each
// rounded to fp32. Denormal numbers count as 0 and never come out.
VEC_INLINE Vec vec_dot_bf16(Vec a, Vec b, Vec sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

#else

enum { VEC_DOTS_BF16 = false };

VEC_INLINE Vec vec_pair_bf16(VecHalf first, VecHalf second) {
    (void)first, (void)second;
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

#endif

// Packed operands are made of items of 32 bits: one element in fp32 or, where the instruction set
// multiplies them, a pair of bf16. This is how many elements an item has.
VEC_INLINE size_t item_elements(enum Dtype operands) {
    return VEC_DOTS_BF16 && operands == BF16 ? 2 : 1;
}

#endif
