// Reads and writes arrays of any dtype, a vector at a time.
//
// `dtype` is a constant at every call, so the branch costs nothing: kernels are inline functions of
// a dtype that their public function calls by WITH_DTYPE.
//
// Rounding to bf16 takes nine instructions. AVX512_BF16 has one, which rounds denormal numbers to
// 0; testing for them first takes three more. A kernel that stores much bf16 should gain a tenth.
// Measured on one Zen 4 core, GPT-2 124M at B = 4, T = 512: layer norm 0.75 ms forward and 0.65 ms
// backward before, 0.64 and 0.59 after; the classifier's chunk of 512 rows 14.5 and 13.0.
//
// Used by kernels other than products, and by packing and epilogues. Read next: vec_math.h.
#ifndef KERNELS_CPU_VEC_ARRAY_H
#define KERNELS_CPU_VEC_ARRAY_H
#include "kernels/cpu/vec_pair.h"

VEC_INLINE Vec vec_widen(VecHalf h, enum Dtype d) {
    return d == BF16 ? vec_widen_bf16(h) : vec_widen_f16(h);
}
// bf16_from_f32 or f16_from_f32 of each lane (except for the bits of a NaN in fp16). The
// instruction that rounds to bf16 is as exact, unless a number is denormal, which is rare.
VEC_INLINE VecHalf vec_narrow(Vec a, enum Dtype d) {
    if (d != BF16)
        return vec_narrow_f16(a);
    if (VEC_DOTS_BF16 && __builtin_expect(!vec_has_denormal(a), 1))
        return vec_narrow_for_dot(a);
    return vec_narrow_bf16(a);
}

// VEC_LANES elements from element i on of an array of dtype d; no alignment is needed. The _part
// forms touch the first n <= VEC_LANES elements only; the other lanes are read as 0.
VEC_INLINE Vec vec_load(const void *p, enum Dtype d, size_t i) {
    if (d == F32)
        return vec_load_f32((const float *)p + i);
    return vec_widen(vec_load_half((const uint16_t *)p + i), d);
}
VEC_INLINE Vec vec_load_part(const void *p, enum Dtype d, size_t i, size_t n) {
    if (d == F32)
        return vec_load_f32_part((const float *)p + i, n);
    return vec_widen(vec_load_half_part((const uint16_t *)p + i, n), d);
}
VEC_INLINE void vec_store(void *p, enum Dtype d, size_t i, Vec a) {
    if (d == F32)
        vec_store_f32((float *)p + i, a);
    else
        vec_store_half((uint16_t *)p + i, vec_narrow(a, d));
}
VEC_INLINE void vec_store_part(void *p, enum Dtype d, size_t i, size_t n, Vec a) {
    if (d == F32)
        vec_store_f32_part((float *)p + i, n, a);
    else
        vec_store_half_part((uint16_t *)p + i, n, vec_narrow(a, d));
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

#endif
