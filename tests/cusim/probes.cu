// See probes.h.
#include "kernels/cuda/ptx.cuh"

#include "tests/cusim/probes.h"

static __global__ void add_kernel(float *y, const float *x, float add, int n) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] = x[i] + add;
}

void probe_add(cudaStream_t s, float *y, const float *x, float add, int n) {
    ptx_launch(add_kernel, dim3((unsigned)(n + 31) / 32), dim3(32), 0, s, y, x, add, n);
}

static __global__ void sum_kernel(float *sum, const float *x, int n) {
    __shared__ float part[4];
    float mine = 0;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        mine += x[i];
    for (int offset = 16; offset; offset /= 2)
        mine += __shfl_xor_sync(0xffffffffu, mine, offset);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0)
        *sum = part[0] + part[1] + part[2] + part[3];
}

void probe_sum(cudaStream_t s, float *sum, const float *x, int n) {
    ptx_launch(sum_kernel, dim3(1), dim3(128), 0, s, sum, x, n);
}
