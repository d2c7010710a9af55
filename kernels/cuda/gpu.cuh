// Shared by kernels: formats, 16-byte accesses, sums over a warp and a block, launching.
//
// Memory-bound kernels move 16 bytes per thread and access: Pack<T> holds as many elements of T.
// Arithmetic is fp32. nvcc runs with --fmad=false, so that an expression means the same as on the
// CPU; a fused multiply-add is written fmaf.
//
// Sums are made in an order that depends only on sizes, never on which thread comes first: there
// are no atomics on floats.
#ifndef KERNELS_CUDA_GPU_CUH
#define KERNELS_CUDA_GPU_CUH
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/ptx.cuh"

#include <type_traits>

enum { WARP = 32 };
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
// Rounds to nearest, ties to even.
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

// COUNT elements of T that one access moves: 16 bytes, or less if an array of 4-byte elements
// limits it.
template <class T, int COUNT = 16 / sizeof(T)> struct alignas(COUNT * sizeof(T)) Pack {
    static constexpr int N = COUNT;
    T x[N];
};
template <class T> static __device__ inline Pack<T> pack_load(const T *p) {
    return ptx_load(reinterpret_cast<const Pack<T> *>(p));
}
template <class T> static __device__ inline void pack_store(T *p, const Pack<T> &v) {
    ptx_store(reinterpret_cast<Pack<T> *>(p), v);
}

// Converts a pack to its bits and back: long-lived packs take fewer registers as bits, since a
// 16-bit variable takes a 32-bit register.
template <class T> static __device__ inline uint4 pack_bits(const Pack<T> &v) {
    uint4 bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
template <class T> static __device__ inline Pack<T> pack_of(uint4 bits) {
    Pack<T> v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// The known alignment of an array. A group has no gaps between parameters and C may be odd,
// so any address must work; the launcher tests it, and picks the fast template if possible. All
// three compute the same: the division among threads does not depend on them.
enum Access {
    SCALAR,  // nothing: elements are moved one by one
    ALIGNED, // each pack is aligned; the last may be cut short
    WHOLE,   // each pack is aligned, and is inside or outside as a whole
};

// Read and write the pack at element i of an array that ends at `end`. Elements past the end are
// read as 0, and not written.
template <Access ACCESS, class T, int N = 16 / sizeof(T)>
static __device__ inline Pack<T, N> pack_read(const T *p, size_t i, size_t end) {
    if (ACCESS == WHOLE ? i < end : ACCESS == ALIGNED && i + N <= end)
        return ptx_load(reinterpret_cast<const Pack<T, N> *>(p + i));
    Pack<T, N> v;
#pragma unroll
    for (int j = 0; j < N; j++)
        v.x[j] = ACCESS != WHOLE && i + j < end ? p[i + j] : from_float<T>(0);
    return v;
}
template <Access ACCESS, class T, int N>
static __device__ inline void pack_write(T *p, size_t i, size_t end, const Pack<T, N> &v) {
    if (ACCESS == WHOLE ? i < end : ACCESS == ALIGNED && i + N <= end) {
        ptx_store(reinterpret_cast<Pack<T, N> *>(p + i), v);
        return;
    }
#pragma unroll
    for (int j = 0; j < N; j++)
        if (ACCESS != WHOLE && i + j < end)
            p[i + j] = v.x[j];
}

// Returns the sum over a warp's lanes, in every lane; always in the same order.
static __device__ inline float warp_sum(float x) {
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// Starts a kernel on a queue of the device.
template <class... P, class... A>
static inline void gpu_launch(struct Stream *s, void (*kernel)(P...), dim3 grid, dim3 block,
                              size_t shared_bytes, A... args) {
    launch_done(s, ptx_launch(kernel, grid, block, shared_bytes, s->stream, args...), grid, block);
}

// Calls f with a null pointer to the C++ type of `dtype`, by which a launcher picks its template.
template <class F> static inline void with_type(enum Dtype dtype, F f) {
    if (dtype == F32)
        f(static_cast<float *>(nullptr));
    else if (dtype == BF16)
        f(static_cast<__nv_bfloat16 *>(nullptr));
    else
        f(static_cast<__half *>(nullptr));
}

// Calls f with std::true_type or std::false_type.
template <class F> static inline void with_bool(bool yes, F f) {
    if (yes)
        f(std::true_type{});
    else
        f(std::false_type{});
}

// True if rows of c elements of T can be moved as whole packs: then it is enough that the arrays
// themselves are aligned to 16 bytes.
template <class T> static inline bool is_whole(size_t c) {
    return c % Pack<T>::N == 0;
}

#endif
