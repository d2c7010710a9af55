// e^x and GELU of a vector: functions that several kernels need.
//
// They are written once for every instruction set, with the operators of vec.h, and keep its
// promise: a lane's result depends on that lane alone, so an epilogue's GELU has the bits of
// gelu_forward. Used by gelu.c, swiglu.c, matmul_tile.c, matmul_run.c, attention*.c and
// classifier.c. Read next: gelu.c.
#ifndef KERNELS_CPU_VEC_MATH_H
#define KERNELS_CPU_VEC_MATH_H
#include "kernels/cpu/vec_array.h"

// e^x to 1 ulp; from -87.3 down the result is denormal, and 0 below -104; infinite above 88.72; NaN
// stays NaN. With n = x / ln 2 rounded and r = x - n ln 2, e^x = 2^n e^r, where |r| <= ln 2 / 2 and
// e^r is a minimax polynomial of degree 6. ln 2 is subtracted in two parts: the first has so few
// bits that n times it is exact.
VEC_INLINE Vec vec_exp(Vec x) {
    x = vec_min(vec_set(89.0f), vec_max(vec_set(-105.0f), x));
    Vec n = vec_round(x * vec_set(LOG2_E));
    Vec r = vec_fma(n, vec_set(-0x1.63p-1f), x);
    r = vec_fma(n, vec_set(0x1.bd0106p-13f), r);
    Vec p = vec_fma(vec_set(0.0013814592f), r, vec_set(0.008368717f));
    p = vec_fma(p, r, vec_set(0.04166839f));
    p = vec_fma(p, r, vec_set(0.16666521f));
    p = vec_fma(p, r, vec_set(0.49999994f));
    p = vec_fma(p, r * r, r) + vec_set(1.0f);
    return vec_scale(p, n);
}

// Returns the argument -2u of GELU's logistic function: since (1 + tanh u) / 2 = 1 / (1 + e^-2u),
// the tanh form of GELU is x / (1 + e^-2u) with u = sqrt(2/pi) (x + 0.044715 x^3). Unlike 1 + tanh
// u, that loses no digits for negative x.
VEC_INLINE Vec vec_gelu_argument(Vec x) {
    Vec cubic = vec_set(-1.5957691216f * 0.044715f);
    return x * vec_fma(x * x, cubic, vec_set(-1.5957691216f));
}

// e^x, as exact as needed for a result that is rounded to dtype d (a constant): for bf16, whose
// results are exact to 2^-9, to 2^-18, as x / ln 2 is rounded to fp32 and at most 128. That should
// save a fifth of a GELU's instructions; its epilogue in dX of GPT-2's fcproj took 12% of the
// product before and some 9% after (one Zen 4 core). Sums of many e^x (the loss) use vec_exp.
VEC_INLINE Vec vec_exp_for(Vec x, enum Dtype d) {
    if (VEC_DOTS_BF16 && d == BF16)
        return vec_exp2_for_bf16(x * vec_set(LOG2_E));
    return vec_exp(x);
}

VEC_INLINE Vec vec_gelu(Vec x, enum Dtype d) {
    return x / (vec_set(1.0f) + vec_exp_for(vec_gelu_argument(x), d));
}

// d GELU / dx = s + x s (1 - s) 2u', with e = e^-2u and s = 1 / (1 + e); 1 - s is computed as e s,
// which loses no digits for s near 1. From |x| = 10 on s is 0 or 1 in fp32, so larger arguments are
// clamped there, before x^3 overflows.
VEC_INLINE Vec vec_gelu_derivative(Vec x, enum Dtype d) {
    x = vec_min(vec_set(10.0f), vec_max(vec_set(-10.0f), x));
    Vec e = vec_exp_for(vec_gelu_argument(x), d);
    Vec s = vec_set(1.0f) / (vec_set(1.0f) + e);
    Vec slope = vec_fma(x * x, vec_set(3 * 0.044715f * 1.5957691216f), vec_set(1.5957691216f));
    return vec_fma(x * slope, s * (e * s), s);
}

#endif
