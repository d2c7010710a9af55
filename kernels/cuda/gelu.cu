// GELU, the simplest kernel of this backend, and the pattern of those that go through an array
// once.
//
// A launcher picks a template by format and by whether the addresses allow 16-byte accesses. A
// block takes a fixed piece of the array; each thread loads all its packs before it uses the first,
// so that several loads are under way while it waits. Blocks are many and small: whichever is done
// makes room for the next.
//
// One e^x, one addition and one division an element are near what a GPU does in the time that it
// moves 4 bytes, so both are the hardware's approximations, good to 2 units in the last place.
//
// Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016 (the tanh form). Called through the kernel
// table. Read next: norm.cu.
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256, PACKS = 2 };

// x / (1 + e^-2u) with u = sqrt(2/pi) (x + 0.044715 x^3), which is the tanh form without the
// difference 1 + tanh u, whose digits cancel where x is negative. Here 2^t = e^-2u; where that is
// infinite, the quotient is 0.
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
