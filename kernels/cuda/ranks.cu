// Kernels of collectives on other ranks' memory, if ranks share a GPU: sum shards over ranks, and
// gather shards.
//
// A sum goes over the ranks in order for every element, in fp32, and is rounded once: so each ZeRO
// stage, which cuts the same sums into other pieces, gets the same bits, and those of the CPU. The
// addresses of the ranks' buffers are passed as the kernel's argument.
//
// Called through the kernel table by the backends in zero/comm/. These are the last memory-bound
// kernels; read next: attention.cu.
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256, UNITS = 4 };

struct Addresses {
    const void *at[GPU_MAX_RANKS];
};

static struct Addresses addresses(void *const *src, size_t ranks) {
    struct Addresses a = {};
    CHECK(ranks >= 1 && ranks <= GPU_MAX_RANKS, "%zu ranks; at most %d", ranks, GPU_MAX_RANKS);
    for (size_t r = 0; r < ranks; r++)
        a.at[r] = src[r];
    return a;
}

// dst may be one of the sources: each thread reads its elements of all before it writes.
template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS)
    rank_sum_kernel(size_t n, size_t from, unsigned ranks, struct Addresses src, T *dst,
                    bool accumulate) {
    constexpr int N = Pack<T>::N;
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (i >= n)
        return;
    float sum[N];
    Pack<T> v = pack_read<ACCESS>(accumulate ? dst : (const T *)src.at[0] + from, i, n);
#pragma unroll
    for (int j = 0; j < N; j++)
        sum[j] = to_float(v.x[j]);
#pragma unroll 4
    for (unsigned r = !accumulate; r < ranks; r++) {
        v = pack_read<ACCESS>((const T *)src.at[r] + from, i, n);
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[j] += to_float(v.x[j]);
    }
#pragma unroll
    for (int j = 0; j < N; j++)
        v.x[j] = from_float<T>(sum[j]);
    pack_write<ACCESS>(dst, i, n, v);
}

extern "C" void cuda_rank_sum(struct Stream *s, const struct RankSum *a) {
    if (!a->n)
        return;
    struct Addresses src = addresses(a->src, a->ranks);
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        bool aligned = is_aligned(a->dst, 16);
        for (size_t r = 0; r < a->ranks; r++)
            aligned = aligned && is_aligned((const T *)src.at[r] + a->begin, 16);
        with_bool(aligned, [&](auto yes) {
            gpu_launch(s, rank_sum_kernel < T, yes ? ALIGNED : SCALAR >,
                       (unsigned)ceil_div(a->n, THREADS * Pack<T>::N), THREADS, 0, a->n, a->begin,
                       (unsigned)a->ranks, src, (T *)a->dst, a->accumulate);
        });
    });
}

// Grid: (pieces of a shard, ranks). U: the unit that is moved; count and step are in U.
template <class U>
static __global__ void __launch_bounds__(THREADS)
    rank_gather_kernel(size_t count, size_t step, size_t skip, struct Addresses src, U *dst) {
    size_t r = blockIdx.y, begin = (size_t)blockIdx.x * UNITS * THREADS + threadIdx.x;
    const U *from = (const U *)src.at[r] + r * step;
    U v[UNITS];
    if (r == skip)
        return;
#pragma unroll
    for (int k = 0; k < UNITS; k++)
        if (begin + k * THREADS < count)
            v[k] = from[begin + k * THREADS];
#pragma unroll
    for (int k = 0; k < UNITS; k++)
        if (begin + k * THREADS < count)
            dst[r * count + begin + k * THREADS] = v[k];
}

template <class U>
static void launch_gather(struct Stream *s, const struct RankGather *a, struct Addresses src) {
    size_t count = a->bytes / sizeof(U);
    dim3 grid((unsigned)ceil_div(count, UNITS * THREADS), (unsigned)a->ranks);
    gpu_launch(s, rank_gather_kernel<U>, grid, THREADS, 0, count, a->step / sizeof(U), a->skip, src,
               (U *)a->dst);
}

extern "C" void cuda_rank_gather(struct Stream *s, const struct RankGather *a) {
    if (!a->bytes)
        return;
    struct Addresses src = addresses(a->src, a->ranks);
    uintptr_t all = a->bytes | a->step | reinterpret_cast<uintptr_t>(a->dst);
    for (size_t r = 0; r < a->ranks; r++) {
        src.at[r] = (const char *)src.at[r] + a->begin;
        all |= r == a->skip ? 0 : reinterpret_cast<uintptr_t>(src.at[r]);
    }
    if (all % 16 == 0)
        launch_gather<uint4>(s, a, src);
    else if (all % 2 == 0)
        launch_gather<uint16_t>(s, a, src);
    else
        launch_gather<uint8_t>(s, a, src);
}
