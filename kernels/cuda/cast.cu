// Casts between formats, and random initial values.
//
// A cast rounds to nearest, ties to even, and keeps denormals, like the CPU's. Initial values are
// those of rng_normal to the bit (kernels/dtype.h): a run on a GPU starts with the same weights as
// on a CPU.
//
// Called through the kernel table. Read next: ranks.cu. As one of the smallest files of kernels it
// also tells device.c if this build has code for a GPU.
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256, N = 4, PACKS = 4 };

template <class D, class S, Access ACCESS>
static __global__ void __launch_bounds__(THREADS) cast_kernel(size_t n, D *dst, const S *src) {
    size_t begin = ((size_t)blockIdx.x * PACKS * THREADS + threadIdx.x) * N;
    Pack<S, N> from[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        from[k] = pack_read<ACCESS, S, N>(src, begin + k * THREADS * N, n);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        Pack<D, N> to;
#pragma unroll
        for (int j = 0; j < N; j++)
            to.x[j] = from_float<D>(to_float(from[k].x[j]));
        pack_write<ACCESS>(dst, begin + k * THREADS * N, n, to);
    }
}

extern "C" void cuda_cast(struct Stream *s, const struct Cast *a) {
    if (!a->n)
        return;
    with_type(a->dst_dtype, [&](auto *dst) {
        with_type(a->src_dtype, [&](auto *src) {
            using D = std::remove_pointer_t<decltype(dst)>;
            using S = std::remove_pointer_t<decltype(src)>;
            bool aligned = is_aligned(a->dst, N * sizeof(D)) && is_aligned(a->src, N * sizeof(S));
            with_bool(aligned, [&](auto yes) {
                gpu_launch(s, cast_kernel < D, S, yes ? ALIGNED : SCALAR >,
                           (unsigned)ceil_div(a->n, PACKS * THREADS * N), THREADS, 0, a->n,
                           (D *)a->dst, (const S *)a->src);
            });
        });
    });
}

static __global__ void __launch_bounds__(THREADS) fill_normal_kernel(struct FillNormal a) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < a.n)
        a.dst[i] = fill_value(&a, i);
}

extern "C" void cuda_fill_normal(struct Stream *s, const struct FillNormal *a) {
    if (a->n)
        gpu_launch(s, fill_normal_kernel, (unsigned)ceil_div(a->n, THREADS), THREADS, 0, *a);
}

// CUDA loads the code when a kernel of a file is first used. All files are compiled for the same
// targets, so one kernel stands for all.
extern "C" cudaError_t cuda_find_code(void) {
    struct cudaFuncAttributes ignored;
    return cudaFuncGetAttributes(&ignored, reinterpret_cast<const void *>(fill_normal_kernel));
}
