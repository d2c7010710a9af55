// What kernels share: formats, 16-byte accesses, sums over a warp and a block, launching.
//
// Memory-bound kernels move 16 bytes per thread and access: Pack<T> holds as many elements of T.
// Numbers are computed in fp32. nvcc runs with --fmad=false, so that an expression means the same
// as on the CPU; where a fused multiply-add is wanted it is written fmaf.
//
// Sums are made in an order that depends on sizes alone, never on which thread comes first: no
// atomics on floats anywhere.
#ifndef KERNELS_CUDA_GPU_CUH
#define KERNELS_CUDA_GPU_CUH
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/ptx.cuh"

enum { WARP = 32, FULL_WARP_BLOCK = 1024 };
static const unsigned ALL_LANES = 0xffffffffu;

static __device__ inline float to_float(float x) {
    return x;
}
static __device__ inline float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
static __device__ inline float to_float(__half x) {
    return __half2float(x);
}
// To nearest, ties to even.
template <class T> static __device__ inline T from_float(float x);
template <> __device__ inline float from_float<float>(float x) {
    return x;
}
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}
template <> __device__ inline __half from_float<__half>(float x) {
    return __float2half_rn(x);
}

// 16 bytes of T.
template <class T> struct alignas(16) Pack {
    static constexpr int N = 16 / sizeof(T);
    T x[N];
};
template <class T> static __device__ inline Pack<T> pack_load(const T *p) {
    return *reinterpret_cast<const Pack<T> *>(p);
}
template <class T> static __device__ inline void pack_store(T *p, const Pack<T> &v) {
    *reinterpret_cast<Pack<T> *>(p) = v;
}

// The sum over a warp's lanes, in every lane; always in the same order.
static __device__ inline float warp_sum(float x) {
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}
static __device__ inline float warp_max(float x) {
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}

// Starts a kernel on a queue of the device.
template <class... P, class... A>
static inline void gpu_launch(struct Stream *s, void (*kernel)(P...), dim3 grid, dim3 block,
                              size_t shared_bytes, A... args) {
    CUDA_CHECK(ptx_launch(kernel, grid, block, shared_bytes, s->stream, args...));
}

// Calls f with a null pointer to the C++ type of `dtype`: a launcher picks its template so.
template <class F> static inline void with_type(enum Dtype dtype, F f) {
    if (dtype == F32)
        f(static_cast<float *>(nullptr));
    else if (dtype == BF16)
        f(static_cast<__nv_bfloat16 *>(nullptr));
    else
        f(static_cast<__half *>(nullptr));
}

#endif
