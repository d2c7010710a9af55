// Kernels that show what the instructions of kernels/cuda/ptx.cuh do, one warp each.
#ifndef TESTS_KERNELS_PTX_KERNELS_H
#define TESTS_KERNELS_PTX_KERNELS_H
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// d (16, 8) fp32 += a (16, 16) b (16, 8), row-major, a and b in format `dtype`, BF16 or F16. The
// kernel gives each lane the elements that NVIDIA's manual assigns to it.
void ptx_test_mma(struct Stream *s, enum Dtype dtype, float *d, const uint16_t *a,
                  const uint16_t *b);
// Loads four 8 x 8 matrices, in (4, 8, 8), by ldmatrix: out[lane * 4 + i] is register i of a lane.
void ptx_test_ldmatrix(struct Stream *s, bool transposed, uint32_t *out, const uint16_t *in);

#ifdef __cplusplus
}
#endif
#endif
