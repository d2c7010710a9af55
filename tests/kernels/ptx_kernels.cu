// See ptx_kernels.h. Which lane holds what is written here from NVIDIA's "Parallel Thread Execution
// ISA", section on matrix fragments for mma.m16n8k16, and not with the helpers that kernels use.
#include "tests/kernels/ptx_kernels.h"

#include "kernels/cuda/gpu.cuh"

// Two elements, the first in the lower half.
static __device__ uint32_t pair(uint16_t low, uint16_t high) {
    return low | static_cast<uint32_t>(high) << 16;
}

template <class T> static __global__ void mma(float *d, const uint16_t *a, const uint16_t *b) {
    int group = threadIdx.x / 4, in_group = threadIdx.x % 4;
    uint32_t a_part[4], b_part[2];
    float sum[4];
    for (int i = 0; i < 4; i++) {
        int row = group + i % 2 * 8, column = in_group * 2 + i / 2 * 8;
        a_part[i] = pair(a[row * 16 + column], a[row * 16 + column + 1]);
    }
    for (int i = 0; i < 2; i++) {
        int row = in_group * 2 + i * 8;
        b_part[i] = pair(b[row * 8 + group], b[(row + 1) * 8 + group]);
    }
    for (int i = 0; i < 4; i++)
        sum[i] = d[(group + i / 2 * 8) * 8 + in_group * 2 + i % 2];
    __syncwarp();
    ptx_mma(sum, a_part, b_part, T());
    for (int i = 0; i < 4; i++)
        d[(group + i / 2 * 8) * 8 + in_group * 2 + i % 2] = sum[i];
}

void ptx_test_mma(struct Stream *s, enum Dtype dtype, float *d, const uint16_t *a,
                  const uint16_t *b) {
    gpu_launch(s, dtype == BF16 ? mma<__nv_bfloat16> : mma<__half>, dim3(1), dim3(WARP), 0, d, a,
               b);
}

static __global__ void ldmatrix(bool transposed, uint32_t *out, const uint16_t *in) {
    __shared__ __align__(16) uint16_t matrices[4][8][8];
    int lane = threadIdx.x;
    uint32_t r[4];
    for (int i = 0; i < 8; i++)
        matrices[lane / 8][lane % 8][i] = in[lane * 8 + i];
    __syncwarp();
    if (transposed)
        ptx_ldmatrix_transposed(r, matrices[lane / 8][lane % 8]);
    else
        ptx_ldmatrix(r, matrices[lane / 8][lane % 8]);
    for (int i = 0; i < 4; i++)
        out[lane * 4 + i] = r[i];
}

void ptx_test_ldmatrix(struct Stream *s, bool transposed, uint32_t *out, const uint16_t *in) {
    gpu_launch(s, ldmatrix, dim3(1), dim3(WARP), 0, transposed, out, in);
}
