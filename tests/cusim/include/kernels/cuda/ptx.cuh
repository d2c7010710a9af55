// The simulator's twin of kernels/cuda/ptx.cuh: the same names with the same meaning, in C++.
//
// mma sums in fp32, one product after the other: hardware has an order of its own, so tests compare
// with a tolerance. A copy by cp.async takes place when it is waited for, and no earlier; until
// then its destination is poisoned.
#ifndef TESTS_CUSIM_PTX_CUH
#define TESTS_CUSIM_PTX_CUH
#include "tests/cusim/include/cusim/language.h"

// So few that small tests go around the loops of kernels that follow it.
enum { PTX_MAX_GRID_Y = 2, PTX_TURNING_BLOCKS = 8 };

#define DYN_SHARED(T, name) T *name = static_cast<T *>(cusim::dynamic_shared())

template <class... P, class... A>
static inline cudaError_t ptx_launch(void (*kernel)(P...), dim3 grid, dim3 block,
                                     size_t shared_bytes, cudaStream_t stream, A... args) {
    std::tuple<P...> copies(static_cast<P>(args)...);
    return cusim::launch(reinterpret_cast<const void *>(kernel), grid, block, shared_bytes, stream,
                         [kernel, copies] { std::apply(kernel, copies); });
}

static inline void ptx_unpack(float out[2], uint32_t pair, __nv_bfloat16) {
    out[0] = __uint_as_float(pair << 16);
    out[1] = __uint_as_float(pair & 0xffff0000u);
}
static inline void ptx_unpack(float out[2], uint32_t pair, __half) {
    out[0] = __half2float(__ushort_as_half((unsigned short)pair));
    out[1] = __half2float(__ushort_as_half((unsigned short)(pair >> 16)));
}

template <class T>
static inline void ptx_mma(float d[4], const uint32_t a[4], const uint32_t b[2], T format,
                           HERE_ARGUMENTS) {
    float a_floats[8], b_floats[4];
    for (int i = 0; i < 4; i++)
        ptx_unpack(a_floats + 2 * i, a[i], format);
    for (int i = 0; i < 2; i++)
        ptx_unpack(b_floats + 2 * i, b[i], format);
    cusim::mma(d, a_floats, b_floats, file, line);
}

static inline void ptx_ldmatrix(uint32_t r[4], const void *row, HERE_ARGUMENTS) {
    cusim::load_matrix(r, row, false, file, line);
}
static inline void ptx_ldmatrix_transposed(uint32_t r[4], const void *row, HERE_ARGUMENTS) {
    cusim::load_matrix(r, row, true, file, line);
}

static inline void ptx_copy_async(void *to, const void *from, bool wanted) {
    cusim::copy_async(to, from, wanted);
}
static inline void ptx_copy_commit() {
    cusim::copy_commit();
}
template <int N> static inline void ptx_copy_wait() {
    cusim::copy_wait(N);
}

// Through the bits, as the compiler takes what has an address apart.
template <class P> static inline P ptx_load(const P *p) {
    P v;
    cusim::Bits bits = cusim::load(p, sizeof v);
    __builtin_memcpy(static_cast<void *>(&v), &bits, sizeof v);
    return v;
}
template <class P> static inline void ptx_store(P *p, const P &v) {
    cusim::Bits bits = 0;
    __builtin_memcpy(&bits, &v, sizeof v);
    cusim::store(p, bits, sizeof v);
}

// There is no cache to keep things in.
static inline uint4 ptx_load_last(const void *p) {
    return ptx_load(static_cast<const uint4 *>(p));
}
static inline void ptx_store_streaming(void *p, uint4 v) {
    ptx_store(static_cast<uint4 *>(p), v);
}

// What comes before is done already.
static inline void ptx_wgmma_fence() {}

static inline int ptx_thread() {
    return static_cast<int>(threadIdx.x);
}

static inline float ptx_exp2(float x) {
    float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}
#endif
