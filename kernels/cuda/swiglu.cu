// SwiGLU, y = silu(g) u of rows [g | u], and its backward pass.
//
// A block takes a fixed piece of a row, one pack per thread and array: a thread has two in flight
// in the forward pass, three in the backward pass, and blocks are many and small. One e^x and one
// division an element are what GELU has for 4 bytes (gelu.cu), here for 6 and for 10 of bf16:
// memory limits the speed, and both passes should move their bytes (cost.c) at the speed of a copy.
// A thread reads all that it overwrites before it writes, so dx may be x.
//
// Shazeer, "GLU Variants Improve Transformer", 2020. Called through the kernel table. Read next:
// rotate.cu.
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 128 };

struct Gates {
    unsigned n, pieces; // of a row
    const void *x, *dy;
    void *out; // y or dx
};

// A gate and values derived from it. Below -88 e^-g nears the end of fp32, and silu is 0 to within
// 6e-37: g is clamped there, as 0 times an infinite e^-g is a NaN. A NaN is not below, and stays.
struct Gate {
    float value, e, sigmoid; // g, e^-g, 1 / (1 + e^-g)
};

static __device__ inline Gate gate_of(float g) {
    g = g < -88.0f ? -88.0f : g;
    float e = ptx_exp2(-LOG2_E * g);
    return {g, e, __fdividef(1.0f, 1.0f + e)};
}

template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS) swiglu_forward_kernel(struct Gates a) {
    constexpr int N = Pack<T>::N;
    size_t row = blockIdx.x / a.pieces;
    unsigned i = (blockIdx.x % a.pieces * THREADS + threadIdx.x) * N;
    const T *x = (const T *)a.x + row * 2 * a.n;
    Pack<T> gate = pack_read<ACCESS>(x, i, a.n), up = pack_read<ACCESS>(x + a.n, i, a.n);
#pragma unroll
    for (int j = 0; j < N; j++) {
        Gate g = gate_of(to_float(gate.x[j]));
        gate.x[j] = from_float<T>(g.value * g.sigmoid * to_float(up.x[j]));
    }
    pack_write<ACCESS>((T *)a.out + row * a.n, i, a.n, gate);
}

// silu' = s + g s (1 - s), s = 1 / (1 + e^-g), where 1 - s is e^-g s.
template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS) swiglu_backward_kernel(struct Gates a) {
    constexpr int N = Pack<T>::N;
    size_t row = blockIdx.x / a.pieces;
    unsigned i = (blockIdx.x % a.pieces * THREADS + threadIdx.x) * N;
    const T *x = (const T *)a.x + row * 2 * a.n;
    T *dx = (T *)a.out + row * 2 * a.n;
    Pack<T> gate = pack_read<ACCESS>(x, i, a.n), up = pack_read<ACCESS>(x + a.n, i, a.n);
    Pack<T> dys = pack_read<ACCESS>((const T *)a.dy + row * a.n, i, a.n);
#pragma unroll
    for (int j = 0; j < N; j++) {
        Gate g = gate_of(to_float(gate.x[j]));
        float dy = to_float(dys.x[j]), silu = g.value * g.sigmoid;
        gate.x[j] = from_float<T>(dy * to_float(up.x[j]) * fmaf(silu, g.e * g.sigmoid, g.sigmoid));
        up.x[j] = from_float<T>(dy * silu);
    }
    pack_write<ACCESS>(dx, i, a.n, gate);
    pack_write<ACCESS>(dx + a.n, i, a.n, up);
}

// Returns the blocks of a pass over `rows` rows of n gates; sets a.n and a.pieces.
template <class T> static unsigned share_out(struct Gates &a, size_t rows, size_t n) {
    size_t pieces = ceil_div(n, THREADS * Pack<T>::N);
    CHECK(n <= INT32_MAX / 2 && rows * pieces <= INT32_MAX, "(%zu, %zu)", rows, n);
    a.n = (unsigned)n;
    a.pieces = (unsigned)pieces;
    return (unsigned)(rows * pieces);
}

extern "C" void cuda_swiglu_forward(struct Stream *s, const struct SwigluForward *a) {
    struct Gates gates = {0, 0, a->x, nullptr, a->y};
    if (!a->rows || !a->n)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        unsigned blocks = share_out<T>(gates, a->rows, a->n);
        bool whole = is_whole<T>(a->n) && is_aligned(a->x, 16) && is_aligned(a->y, 16);
        with_bool(whole, [&](auto yes) {
            gpu_launch(s, swiglu_forward_kernel < T, yes ? WHOLE : SCALAR >, blocks, THREADS, 0,
                       gates);
        });
    });
}

extern "C" void cuda_swiglu_backward(struct Stream *s, const struct SwigluBackward *a) {
    struct Gates gates = {0, 0, a->x, a->dy, a->dx};
    if (!a->rows || !a->n)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        unsigned blocks = share_out<T>(gates, a->rows, a->n);
        bool whole = is_whole<T>(a->n) && is_aligned(a->x, 16) && is_aligned(a->dy, 16) &&
                     is_aligned(a->dx, 16);
        with_bool(whole, [&](auto yes) {
            gpu_launch(s, swiglu_backward_kernel < T, yes ? WHOLE : SCALAR >, blocks, THREADS, 0,
                       gates);
        });
    });
}
