// Attention of new tokens over a cache of keys and values: generation's kernel.
//
// One launch stores the new rows' keys and values, another computes: a block takes the queries of
// one row that read one key head, up to HEADS of them, so that the cache is read once for all,
// which is what decoding waits for. Its warps take the keys in turn. The lanes of a warp share a
// key's channels, so that a key and a value are read side by side; each warp keeps a softmax of its
// own keys for each query (Dao, "FlashAttention-2", 2023), and the warps' results are merged in
// order.
//
// Called through the kernel table.
#include "kernels/cuda/gpu.cuh"

// CHANNELS: of a lane, so that heads have up to CHANNELS * WARP.
enum { WARPS = 8, CHANNELS = 8, HEADS = 4 };

struct CachedGrid {
    unsigned b, t, nh, nkv, hs, window, capacity;
    float scale;
    const int32_t *starts;
};

// Returns the index in the cache of a position's key (which: 0) or value (1).
static __device__ inline size_t cache_index(const CachedGrid &a, unsigned which, unsigned b,
                                            unsigned head, size_t position) {
    return (((size_t)(b * 2 + which) * a.nkv + head) * a.capacity + position % a.capacity) * a.hs;
}

// A block stores one vector of one new row: head 0 .. nkv - 1 a key, the others a value.
template <class T, class C>
static __global__ void __launch_bounds__(WARP)
    cached_store_kernel(CachedGrid a, const T *qkv, C *cache) {
    unsigned row = blockIdx.x / (2 * a.nkv), head = blockIdx.x % (2 * a.nkv);
    size_t position = row_position(a.starts, row, a.t);
    const T *from = qkv + ((size_t)row * (a.nh + 2 * a.nkv) + a.nh + head) * a.hs;
    C *to = cache + cache_index(a, head / a.nkv, row / a.t, head % a.nkv, position);
    for (unsigned i = threadIdx.x; i < a.hs; i += WARP)
        to[i] = from_float<C>(to_float(from[i]));
}

// The softmax of one query over the keys that a warp has seen.
struct Running {
    float most, sum, acc[CHANNELS];
};

// Adds a key with this score, and its value, of which this lane has v.
static __device__ inline void running_add(Running &r, float score, const float v[CHANNELS]) {
    float larger = fmaxf(r.most, score), shrink = expf(r.most - larger), e = expf(score - larger);
    r.most = larger;
    r.sum = fmaf(r.sum, shrink, e);
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
        r.acc[c] = fmaf(r.acc[c], shrink, e * v[c]);
}

// Reads this lane's channels of a key or a value; 0 past the last.
template <class C>
static __device__ inline void lane_read(float x[CHANNELS], const C *vector, unsigned hs) {
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        unsigned i = threadIdx.x + c * WARP;
        x[c] = i < hs ? to_float(vector[i]) : 0;
    }
}

// Computes the output of a query from the warps' softmaxes.
template <class T>
static __device__ inline void merge_warps(const float warp_outputs[][CHANNELS * WARP],
                                          const float *warp_maxima, const float *warp_sums,
                                          unsigned hs, T *out) {
    float most = -INFINITY, sum = 0;
    for (int w = 0; w < WARPS; w++)
        most = fmaxf(most, warp_maxima[w]);
    for (int w = 0; w < WARPS; w++)
        sum = fmaf(warp_sums[w], expf(warp_maxima[w] - most), sum);
    for (unsigned i = threadIdx.y * WARP + threadIdx.x; i < hs; i += WARPS * WARP) {
        float x = 0;
        for (int w = 0; w < WARPS; w++)
            x = fmaf(warp_outputs[w][i], expf(warp_maxima[w] - most), x);
        out[i] = from_float<T>(x / sum);
    }
}

template <class T, class C>
static __global__ void __launch_bounds__(WARPS *WARP, 2)
    attention_cached_kernel(CachedGrid a, const T *qkv, const C *cache, T *out) {
    __shared__ float q[HEADS][CHANNELS * WARP], warp_outputs[WARPS][CHANNELS * WARP];
    __shared__ float warp_maxima[WARPS], warp_sums[WARPS];
    unsigned group = a.nh / a.nkv, pieces = (group + HEADS - 1) / HEADS;
    unsigned row = blockIdx.x / (a.nkv * pieces), key_head = blockIdx.x / pieces % a.nkv;
    unsigned first_head = key_head * group + blockIdx.x % pieces * HEADS;
    int heads = (int)min((unsigned)HEADS, (key_head + 1) * group - first_head);
    unsigned lane = threadIdx.x, warp = threadIdx.y, b = row / a.t, thread = warp * WARP + lane;
    size_t last = row_position(a.starts, row, a.t);
    size_t first = a.window && last >= a.window ? last + 1 - a.window : 0;
    const T *query = qkv + ((size_t)row * (a.nh + 2 * a.nkv) + first_head) * a.hs;
    for (unsigned i = thread; i < (unsigned)heads * a.hs; i += WARPS * WARP)
        q[i / a.hs][i % a.hs] = to_float(query[i]) * a.scale;
    Running r[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++)
        r[h] = {-INFINITY, 0, {}};
    __syncthreads();
    for (size_t p = first + warp; p <= last; p += WARPS) {
        float k[CHANNELS], v[CHANNELS];
        lane_read(k, cache + cache_index(a, 0, b, key_head, p), a.hs);
        lane_read(v, cache + cache_index(a, 1, b, key_head, p), a.hs);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float score = 0;
#pragma unroll
            for (int c = 0; c < CHANNELS; c++)
                if (h < heads && lane + c * WARP < a.hs)
                    score = fmaf(q[h][lane + c * WARP], k[c], score);
            running_add(r[h], warp_sum(score), v);
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        __syncthreads(); // the query before has been merged
        if (lane == 0)
            warp_maxima[warp] = r[h].most, warp_sums[warp] = r[h].sum;
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
            warp_outputs[warp][lane + c * WARP] = r[h].acc[c];
        __syncthreads();
        if (h < heads)
            merge_warps(warp_outputs, warp_maxima, warp_sums, a.hs,
                        out + ((size_t)row * a.nh + first_head + h) * a.hs);
    }
}

extern "C" void cuda_attention_cached(struct Stream *s, const struct AttentionCached *a) {
    attention_cached_check(a);
    size_t rows = a->b * a->t;
    CHECK(a->hs <= CHANNELS * WARP, "heads of %zu channels", a->hs);
    CHECK(rows * (a->nh + 2 * a->nkv) <= INT32_MAX && a->capacity <= INT32_MAX, "(%zu, %zu, %zu)",
          a->b, a->t, a->capacity);
    if (!rows)
        return;
    CachedGrid grid = {(unsigned)a->b,        (unsigned)a->t,          (unsigned)a->nh,
                       (unsigned)a->nkv,      (unsigned)a->hs,         (unsigned)a->window,
                       (unsigned)a->capacity, 1 / sqrtf((float)a->hs), a->starts};
    with_type(a->dtype, [&](auto *type) {
        with_type(a->cache_dtype, [&](auto *cache_type) {
            using T = std::remove_pointer_t<decltype(type)>;
            using C = std::remove_pointer_t<decltype(cache_type)>;
            gpu_launch(s, cached_store_kernel<T, C>, (unsigned)(rows * 2 * a->nkv), dim3(WARP), 0,
                       grid, (const T *)a->qkv, (C *)a->cache);
            gpu_launch(s, attention_cached_kernel<T, C>,
                       (unsigned)(rows * a->nkv * ceil_div(a->nh / a->nkv, HEADS)),
                       dim3(WARP, WARPS), 0, grid, (const T *)a->qkv, (const C *)a->cache,
                       (T *)a->out);
        });
    });
}
