// The loss: cross entropy of a softmax, and its gradient in place of the logits.
//
// A block owns a row of 50,257 logits and walks it twice. The first walk finds the maximum and the
// sum of e^(x - maximum) together: each thread scales its sum when a pack raises its maximum, and
// the threads' pairs are joined in a fixed order at the end (Milakov, Gimelshein, "Online
// normalizer calculation for softmax", 2018). The second walk computes e^(x - maximum) again; it
// finds the row, 100 KB, in the L2 cache, so memory is read once and written once.
//
// Called through the kernel table, for one chunk of rows after the other. Read next: sum.cu.
#include "kernels/cuda/gpu.cuh"

#include <float.h>

enum { THREADS = 512, WARPS = THREADS / WARP, AT_ONCE = 4 };

struct Softmax {
    float max, sum; // of all x, and of all e^(x - max)
};

// Of two sets together. Bit by bit the same if they change places.
static __device__ inline Softmax join(Softmax a, Softmax b) {
    float max = fmaxf(a.max, b.max);
    return {max,
            a.sum * ptx_exp2((a.max - max) * LOG2_E) + b.sum * ptx_exp2((b.max - max) * LOG2_E)};
}

// Of the block's threads, in all of them.
static __device__ inline Softmax join_block(Softmax s) {
    __shared__ Softmax warps[WARPS];
#pragma unroll
    for (int offset = WARP / 2; offset; offset /= 2)
        s = join(s, {__shfl_xor_sync(ALL_LANES, s.max, offset),
                     __shfl_xor_sync(ALL_LANES, s.sum, offset)});
    if (threadIdx.x % WARP == 0)
        warps[threadIdx.x / WARP] = s;
    __syncthreads();
    s = warps[0];
    for (int i = 1; i < WARPS; i++)
        s = join(s, warps[i]);
    return s;
}

// The softmax of this thread's packs of the row's first v logits.
template <class T, Access ACCESS>
static __device__ inline Softmax walk(const T *row, unsigned v, unsigned vp) {
    constexpr unsigned N = Pack<T>::N, STEP = THREADS * N;
    Softmax s = {-FLT_MAX, 0};
    for (unsigned i = threadIdx.x * N; i < v; i += AT_ONCE * STEP) {
        Pack<T> packs[AT_ONCE];
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE; u++)
            packs[u] = pack_read<ACCESS>(row, i + u * STEP, vp);
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE; u++) {
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

struct Logits {
    unsigned v, vp;
    void *logits;
    const int32_t *targets;
    float *loss;
    const float *loss_scale;
    float dloss;
    bool backward;
};

template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS) classifier_kernel(struct Logits a) {
    constexpr unsigned N = Pack<T>::N, STEP = THREADS * N;
    T *row = (T *)a.logits + (size_t)blockIdx.x * a.vp;
    unsigned target = (unsigned)a.targets[blockIdx.x];
    float at_target = to_float(row[target]);
    Softmax s = join_block(walk<T, ACCESS>(row, a.v, a.vp)); // all have read their target then
    if (threadIdx.x == 0)
        a.loss[blockIdx.x] = logf(s.sum) - (at_target - s.max);
    if (!a.backward)
        return;
    float dloss = a.loss_scale ? a.dloss * *a.loss_scale : a.dloss, scale = dloss / s.sum;
#pragma unroll AT_ONCE
    for (unsigned i = threadIdx.x * N; i < a.vp; i += STEP) {
        Pack<T> x = pack_read<ACCESS>(row, i, a.vp);
#pragma unroll
        for (unsigned j = 0; j < N; j++) {
            float d = ptx_exp2((to_float(x.x[j]) - s.max) * LOG2_E) * scale;
            if (i + j == target)
                d -= dloss;
            x.x[j] = from_float<T>(i + j < a.v ? d : 0);
        }
        pack_write<ACCESS>(row, i, a.vp, x);
    }
}

extern "C" void cuda_classifier(struct Stream *s, const struct Classifier *a) {
    struct Logits l = {(unsigned)a->v, (unsigned)a->vp, a->logits, a->targets,
                       a->loss,        a->loss_scale,   a->dloss,  a->backward};
    CHECK(a->rows <= INT32_MAX && a->vp <= INT32_MAX / 2, "(%zu, %zu)", a->rows, a->vp);
    if (!a->rows)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        with_bool(is_whole<T>(a->vp) && is_aligned(a->logits, 16), [&](auto yes) {
            gpu_launch(s, classifier_kernel < T, yes ? WHOLE : SCALAR >, (unsigned)a->rows, THREADS,
                       0, l);
        });
    });
}
