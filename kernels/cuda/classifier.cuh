// The two walks over a row of logits: one finds the softmax's maximum and sum, one replaces the
// logits by the gradients. A block of THREADS threads owns a row.
//
// classifier.cu does both in one kernel, and explains them; classifier_part.cu does each in its
// own, since ranks with parts of the vocabulary communicate in between.
#ifndef KERNELS_CUDA_CLASSIFIER_CUH
#define KERNELS_CUDA_CLASSIFIER_CUH
#include "kernels/cuda/gpu.cuh"

#include <float.h>

// Packs in flight per thread. One is enough for single elements: each would take registers.
template <Access ACCESS> static constexpr unsigned AT_ONCE = ACCESS == WHOLE ? 3 : 1;

struct Softmax {
    float max, sum; // of all x, and of all e^(x - max)
};

// Joins the softmaxes of two sets of x. Exchanging them changes no bit.
static __device__ inline Softmax join(Softmax a, Softmax b) {
    float max = fmaxf(a.max, b.max);
    return {max,
            a.sum * ptx_exp2((a.max - max) * LOG2_E) + b.sum * ptx_exp2((b.max - max) * LOG2_E)};
}

// Joins the softmaxes of the block's threads, for all of them.
template <unsigned THREADS> static __device__ inline Softmax join_block(Softmax s) {
    constexpr unsigned WARPS = THREADS / WARP;
    __shared__ Softmax warps[WARPS];
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        s = join(s, {__shfl_xor_sync(ALL_LANES, s.max, offset),
                     __shfl_xor_sync(ALL_LANES, s.sum, offset)});
    if (threadIdx.x % WARP == 0)
        warps[threadIdx.x / WARP] = s;
    __syncthreads();
    s = warps[0];
    for (unsigned i = 1; i < WARPS; i++)
        s = join(s, warps[i]);
    return s;
}

// Returns the softmax of this thread's packs of the row's first v logits.
template <unsigned THREADS, Access ACCESS, class T>
static __device__ inline Softmax thread_softmax(const T *row, unsigned v, unsigned vp) {
    constexpr unsigned N = Pack<T>::N, STEP = THREADS * N;
    Softmax s = {-FLT_MAX, 0};
    for (unsigned i = threadIdx.x * N; i < v; i += AT_ONCE<ACCESS> * STEP) {
        Pack<T> packs[AT_ONCE<ACCESS>];
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE<ACCESS>; u++)
            packs[u] = pack_read<ACCESS>(row, i + u * STEP, vp);
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE<ACCESS>; u++) {
            float x[N], max = s.max, sum = 0;
#pragma unroll
            for (unsigned j = 0; j < N; j++) {
                x[j] = i + u * STEP + j < v ? to_float(packs[u].x[j]) : -INFINITY;
                max = fmaxf(max, x[j]);
            }
#pragma unroll
            for (unsigned j = 0; j < N; j++)
                sum += ptx_exp2((x[j] - max) * LOG2_E);
            if (max > s.max)
                s.sum *= ptx_exp2((s.max - max) * LOG2_E);
            s.sum += sum;
            s.max = max;
        }
    }
    return s;
}

// Read the pack at element i, and write it; lines of whole packs leave the L2 cache first.
template <Access ACCESS, class T>
static __device__ inline Pack<T> read_streaming(const T *row, unsigned i, unsigned vp) {
    return ACCESS == WHOLE && i < vp ? pack_of<T>(ptx_load_last(row + i))
                                     : pack_read<ACCESS>(row, i, vp);
}
template <Access ACCESS, class T>
static __device__ inline void write_streaming(T *row, unsigned i, unsigned vp, const Pack<T> &x) {
    if (ACCESS != WHOLE)
        pack_write<ACCESS>(row, i, vp, x);
    else if (i < vp)
        ptx_store_streaming(row + i, pack_bits(x));
}

struct Logits {
    unsigned v, vp;
    void *logits;
    const int32_t *targets;
    float *loss;
    const float *loss_scale;
    float dloss;
    bool backward;
};

// Replaces each logit by the gradient of the loss by it; 0 in the padding. target: its column, v or
// more if it is not here; s: of the whole row, over all ranks.
template <unsigned THREADS, Access ACCESS, class T>
static __device__ inline void write_gradients(const Logits &a, T *row, unsigned target, Softmax s) {
    constexpr unsigned N = Pack<T>::N, STEP = THREADS * N;
    float dloss = a.loss_scale ? a.dloss * *a.loss_scale : a.dloss, scale = dloss / s.sum;
    for (unsigned i = threadIdx.x * N; i < a.vp; i += AT_ONCE<ACCESS> * STEP) {
        Pack<T> packs[AT_ONCE<ACCESS>];
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE<ACCESS>; u++)
            packs[u] = read_streaming<ACCESS>(row, i + u * STEP, a.vp);
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE<ACCESS>; u++) {
#pragma unroll
            for (unsigned j = 0; j < N; j++) {
                unsigned at = i + u * STEP + j;
                float d = ptx_exp2((to_float(packs[u].x[j]) - s.max) * LOG2_E) * scale;
                if (at == target)
                    d -= dloss;
                packs[u].x[j] = from_float<T>(at < a.v ? d : 0);
            }
            write_streaming<ACCESS>(row, i + u * STEP, a.vp, packs[u]);
        }
    }
}

// Zeroes the gradient of a row whose target does not count; reads nothing.
template <unsigned THREADS, Access ACCESS, class T>
static __device__ inline void write_zeros(const Logits &a, T *row) {
    constexpr unsigned N = Pack<T>::N;
    Pack<T> zeros = {};
    for (unsigned i = threadIdx.x * N; i < a.vp; i += THREADS * N)
        write_streaming<ACCESS>(row, i, a.vp, zeros);
}

#endif
