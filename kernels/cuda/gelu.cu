// GELU, the simplest kernel of this backend, and the pattern for those that walk an array once.
//
// A launcher picks a template by format and by whether the addresses allow 16-byte accesses. A
// block takes a fixed piece of the array; each thread loads all its packs before it uses the first,
// so that several loads are in flight while it waits. Blocks are many and small: each makes space
// for the next when it ends.
//
// One e^x, one addition and one division an element take nearly as long on a GPU as moving 4 bytes,
// so both are the hardware's approximations, good to 2 units in the last place.
//
// gelu_slope_kernel multiplies a gradient by GELU's derivative in a separate pass, which replaces
// cuBLASLt's DGELU epilogue if blas_choose.c timed it as the faster way.
//
// Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016 (the tanh form). Called through the kernel
// table. Read next: norm.cu.
#include "kernels/cuda/blas.h"
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256, PACKS = 2 };

// x / (1 + e^-2u) with u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form without the sum 1 + tanh u,
// whose digits cancel for negative x. Here 2^t = e^-2u; if that is infinite, the quotient is 0.
static __device__ inline float gelu(float x) {
    const float linear = -1.5957691216f * LOG2_E; // -2 sqrt(2/pi) log2(e)
    float t = x * fmaf(x * x, linear * 0.044715f, linear);
    return __fdividef(x, 1.0f + ptx_exp2(t));
}

template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS) gelu_forward_kernel(size_t n, const T *x, T *y) {
    constexpr int N = Pack<T>::N;
    size_t begin = ((size_t)blockIdx.x * PACKS * THREADS + threadIdx.x) * N;
    Pack<T> v[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        v[k] = pack_read<ACCESS>(x, begin + k * THREADS * N, n);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
#pragma unroll
        for (int j = 0; j < N; j++)
            v[k].x[j] = from_float<T>(gelu(to_float(v[k].x[j])));
        pack_write<ACCESS>(y, begin + k * THREADS * N, n, v[k]);
    }
}

// The derivative of x h(x), h = 1 / (1 + e), e = e^-2u, by the product rule: h + x * 2 h (1 - h) u'
// where 1 - h is e h. Beyond 10 it is 0 or 1 to fp32's last bit.
static __device__ inline float gelu_slope(float x) {
    if (fabsf(x) > 10)
        return x > 0 ? 1 : 0;
    const float linear = -1.5957691216f * LOG2_E, cubic = 0.044715f;
    float e = ptx_exp2(x * fmaf(x * x, linear * cubic, linear));
    float h = __fdividef(1, 1 + e), du = 1.5957691216f * fmaf(3 * cubic, x * x, 1);
    return fmaf(x * h, e * h * du, h);
}

template <class T>
static __global__ void __launch_bounds__(THREADS) gelu_slope_kernel(size_t n, const T *x, T *y) {
    constexpr int N = Pack<T>::N;
    size_t begin = ((size_t)blockIdx.x * PACKS * THREADS + threadIdx.x) * N;
    Pack<T> v[PACKS], product[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        v[k] = pack_read<WHOLE>(x, begin + k * THREADS * N, n);
        product[k] = pack_read<WHOLE>(y, begin + k * THREADS * N, n);
    }
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
#pragma unroll
        for (int j = 0; j < N; j++)
            product[k].x[j] =
                from_float<T>(to_float(product[k].x[j]) * gelu_slope(to_float(v[k].x[j])));
        pack_write<WHOLE>(y, begin + k * THREADS * N, n, product[k]);
    }
}

// Rows with gaps between them, which only tests have, are processed one by one.
void cuda_gelu_slope(struct Stream *s, const struct Matmul *a) {
    bool dense = a->c.ld == a->n;
    size_t n = dense ? a->m * a->n : a->n;
    with_type(a->c.dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        unsigned blocks = (unsigned)ceil_div(n, PACKS * THREADS * Pack<T>::N);
        for (size_t i = 0; i < (dense ? 1 : a->m); i++)
            gpu_launch(s, gelu_slope_kernel<T>, blocks, THREADS, 0, n,
                       (const T *)a->dgelu + i * a->c.ld, (T *)a->c.data + i * a->c.ld);
    });
}

extern "C" void cuda_gelu_forward(struct Stream *s, const struct GeluForward *a) {
    if (!a->n)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        with_bool(is_aligned(a->x, 16) && is_aligned(a->y, 16), [&](auto aligned) {
            constexpr Access ACCESS = aligned ? ALIGNED : SCALAR;
            unsigned blocks = (unsigned)ceil_div(a->n, PACKS * THREADS * Pack<T>::N);
            gpu_launch(s, gelu_forward_kernel<T, ACCESS>, blocks, THREADS, 0, a->n, (const T *)a->x,
                       (T *)a->y);
        });
    });
}
