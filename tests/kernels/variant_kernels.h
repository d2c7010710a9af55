// Variants of kernels for tests of kernels/cuda/variants.h: GELU for sm_90a.
#ifndef TESTS_KERNELS_VARIANT_KERNELS_H
#define TESTS_KERNELS_VARIANT_KERNELS_H
#include "kernels/cuda/variants.h"

#ifdef __cplusplus
extern "C" {
#endif

// "test GELU, sm_90a" takes fp32 arrays that are not empty, and says x / (1 + e^-1.702 x), which is
// GELU by its sigmoid form (Hendrycks, Gimpel, 2016): near the tanh form, and not its bits.
extern const struct Variant cuda_variants_variant_kernels[];

#ifdef __cplusplus
}
#endif
#endif
