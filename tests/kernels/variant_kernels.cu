// See variant_kernels.h. The kernel has an instruction that assemblers know for sm_90a alone, so
// this file compiles only if the Makefile gives it that target.
#include "tests/kernels/variant_kernels.h"

#include "kernels/cuda/gpu.cuh"

enum { THREADS = 128 };

static __global__ void __launch_bounds__(THREADS) sigmoid_gelu(size_t n, const float *x, float *y) {
    size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    ptx_wgmma_fence();
    if (i < n)
        y[i] = x[i] / (1 + ptx_exp2(x[i] * (-1.702f * LOG2_E)));
}

static bool takes(const void *args) {
    const struct GeluForward *a = static_cast<const struct GeluForward *>(args);
    return a->dtype == F32 && a->n;
}

static void launch(struct Stream *s, const void *args) {
    const struct GeluForward *a = static_cast<const struct GeluForward *>(args);
    gpu_launch(s, sigmoid_gelu, static_cast<unsigned>(ceil_div(a->n, THREADS)), THREADS, 0, a->n,
               static_cast<const float *>(a->x), static_cast<float *>(a->y));
}

const struct Variant cuda_variants_variant_kernels[] = {
    {"test GELU, sm_90a", CUDA_OP_gelu_forward, 90, takes, launch}, {}};
