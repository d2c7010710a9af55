// Sums over whole buffers, for the norm of the gradient, and the step's end, which uses the norm.
//
// The array is cut into runs of fixed size, which up to CHUNKS blocks take in turn; a block sums
// its runs in fp64, and one warp then adds the blocks' sums. A gradient has 10^8 elements, and the
// clip factor must not drift with its size. The division and the order depend only on n and the
// format. The blocks' sums are in a few KB that each queue keeps for this (struct Stream).
//
// Called through the kernel table. Read next: adamw.cu.
#include "kernels/cuda/gpu.cuh"

enum {
    THREADS = 256,
    AT_ONCE = 4, // packs in flight per thread
    CHUNKS = STREAM_SUMS
};

static __device__ inline double warp_sum(double x) {
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

template <bool SQUARE> static __device__ inline double add(double sum, double x) {
    return SQUARE ? fma(x, x, sum) : sum + x; // a square of fp32 is exact in fp64
}

// Block k sums the runs k, k + blocks, ... of THREADS * AT_ONCE packs.
template <class T, Access ACCESS, bool SQUARE>
static __global__ void __launch_bounds__(THREADS)
    sum_chunks_kernel(size_t n, const T *x, double *sums) {
    constexpr int N = Pack<T>::N;
    constexpr size_t RUN = (size_t)THREADS * AT_ONCE * N;
    __shared__ double warps[THREADS / WARP];
    double lane[N] = {}, sum = 0; // N chains of additions, which do not wait for each other
    for (size_t begin = blockIdx.x * RUN; begin < n; begin += gridDim.x * RUN) {
        Pack<T> v[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            v[u] = pack_read<ACCESS>(x, begin + (u * THREADS + threadIdx.x) * N, n);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
#pragma unroll
            for (int j = 0; j < N; j++)
                lane[j] = add<SQUARE>(lane[j], to_float(v[u].x[j]));
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++)
        sum += lane[j];
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        warps[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (threadIdx.x)
        return;
    sum = 0;
    for (int i = 0; i < THREADS / WARP; i++)
        sum += warps[i];
    sums[blockIdx.x] = sum;
}

// Adds the blocks' sums in one warp.
static __global__ void __launch_bounds__(WARP)
    sum_total_kernel(const double *sums, unsigned count, bool accumulate, double *out) {
    double sum = 0;
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < count; i += WARP)
        sum += sums[i];
    sum = warp_sum(sum);
    if (threadIdx.x == 0)
        *out = accumulate ? *out + sum : sum;
}

template <class T> static unsigned launch_sum(struct Stream *s, const struct Sum *a) {
    unsigned blocks =
        (unsigned)size_min(CHUNKS, ceil_div(a->n, (size_t)THREADS * AT_ONCE * Pack<T>::N));
    with_bool(is_aligned(a->x, 16), [&](auto yes) {
        with_bool(a->square, [&](auto square) {
            if (blocks)
                gpu_launch(s, sum_chunks_kernel < T, yes ? ALIGNED : SCALAR, square >, blocks,
                           THREADS, 0, a->n, (const T *)a->x, s->sums);
        });
    });
    return blocks;
}

extern "C" void cuda_sum(struct Stream *s, const struct Sum *a) {
    unsigned blocks = 0;
    with_type(a->dtype, [&](auto *type) {
        blocks = launch_sum<std::remove_pointer_t<decltype(type)>>(s, a);
    });
    gpu_launch(s, sum_total_kernel, 1, WARP, 0, (const double *)s->sums, blocks, a->accumulate,
               a->out);
}

// A few dozen numbers, in the order of the contract: one thread.
static __global__ void step_clip_kernel(struct StepClip a) {
    double sum = 0;
    for (size_t r = 0; r < a.ranks; r++)
        for (size_t i = 0; i < a.n; i++)
            sum += step_clip_square(&a, r, i);
    step_state_end(a.state, sum);
}

extern "C" void cuda_step_clip(struct Stream *s, const struct StepClip *a) {
    gpu_launch(s, step_clip_kernel, 1, 1, 0, *a);
}
