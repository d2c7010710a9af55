// The loss: cross entropy of a softmax, and its gradient in place of the logits.
//
// A block owns a row of 50,257 logits and walks it twice. The first walk finds the maximum and the
// sum of e^(x - maximum) together: each thread scales its sum when a pack raises its maximum, and
// the threads' pairs are joined in a fixed order at the end (Milakov, Gimelshein, "Online
// normalizer calculation for softmax", 2018). The second walk computes e^(x - maximum) again, and
// writes.
//
// Memory is read once only if the second walk finds the row in the L2 cache. A row is 50,304 x 2
// bytes = 101 KB. An H100 has 132 SMs and 50 MB of L2, in two partitions of 25 MB: of a line whose
// home is the partition far from the SM that reads it the near one may hold a copy, so a row can
// take up to 1.5 times its size. Between a line's two reads each block in flight touches about a
// row:
//
//   512 threads, 4 blocks per SM   132 x 4 x 101 KB = 53 MB, with copies 80 MB: it does not fit
//   768 threads, 2 blocks per SM   132 x 2 x 101 KB = 27 MB, with copies 40 MB: it fits
//
// 768 threads make it two blocks on every GPU: a third does not fit among an SM's 2048 threads
// (8.0, 9.0, 10.0), and 2 x 768 is all of 1536 (8.6, 8.9, 12.0); with 42 registers a thread both
// have room. One block alone would leave its SM idle while its threads join their sums. Reads under
// way are 2 x 768 x 3 packs of 16 bytes = 74 KB per SM; 3.35 TB/s at a latency of 0.7 us need 18.
// A row of GPT-2 is 8.2 packs a thread: three rounds of three.
//
// Two more things keep the rows that wait in the cache. What the second walk reads and writes is
// marked to leave first (ptx_load_last, ptx_store_streaming): the gradients would else be the
// youngest lines, and push out rows that are still to be read again. And rows go from the last to
// the first: the product has just written the last ones, which are in the cache still, and the
// backward products begin with the first ones, which are then the last that were written. (That
// holds as far as cuBLASLt goes through C by rows, which its algorithms choose.) Each of the two is
// worth at most the 50 MB of the cache in a chunk of about 1 GB.
//
// Expected: a micro-batch of 32 x 1024 tokens has 3.3 GB of logits. Reading them once instead of
// twice saves at most 3.3 GB / 3.35 TB/s = 1.0 ms, of a step of GPT-2 124M of some 57 ms on
// paper (docs/gpu.md); with a third of the second walk in the cache as it was, about 1% of the
// step.
//
// Called through the kernel table, for one chunk of rows after the other (model/acts.c). Read next:
// sum.cu.
#include "kernels/cuda/gpu.cuh"

#include <float.h>

enum { THREADS = 768, BLOCKS_PER_SM = 2, WARPS = THREADS / WARP };

// Packs that a thread has under way. Element by element one is enough: each would take registers.
template <Access ACCESS> static constexpr unsigned AT_ONCE = ACCESS == WHOLE ? 3 : 1;

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

// The pack at element i, for the last time, and what takes its place.
template <Access ACCESS, class T>
static __device__ inline Pack<T> read_last(const T *row, unsigned i, unsigned vp) {
    return ACCESS == WHOLE && i < vp ? pack_of<T>(ptx_load_last(row + i))
                                     : pack_read<ACCESS>(row, i, vp);
}
template <Access ACCESS, class T>
static __device__ inline void write_last(T *row, unsigned i, unsigned vp, const Pack<T> &x) {
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

// The gradient of the loss by each logit, in its place; 0 in the padding.
template <class T, Access ACCESS>
static __device__ inline void write_gradients(const Logits &a, T *row, unsigned target, Softmax s) {
    constexpr unsigned N = Pack<T>::N, STEP = THREADS * N;
    float dloss = a.loss_scale ? a.dloss * *a.loss_scale : a.dloss, scale = dloss / s.sum;
    for (unsigned i = threadIdx.x * N; i < a.vp; i += AT_ONCE<ACCESS> * STEP) {
        Pack<T> packs[AT_ONCE<ACCESS>];
#pragma unroll
        for (unsigned u = 0; u < AT_ONCE<ACCESS>; u++)
            packs[u] = read_last<ACCESS>(row, i + u * STEP, a.vp);
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
            write_last<ACCESS>(row, i + u * STEP, a.vp, packs[u]);
        }
    }
}

// That of a row whose target does not count, and which nobody reads.
template <class T, Access ACCESS>
static __device__ inline void write_zeros(const Logits &a, T *row) {
    constexpr unsigned N = Pack<T>::N;
    Pack<T> zeros = {};
    for (unsigned i = threadIdx.x * N; i < a.vp; i += THREADS * N)
        write_last<ACCESS>(row, i, a.vp, zeros);
}

template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    classifier_kernel(struct Logits a) {
    unsigned at = gridDim.x - 1 - blockIdx.x;
    T *row = (T *)a.logits + (size_t)at * a.vp;
    if (a.targets[at] == UNCOUNTED) { // for all threads of the block
        if (threadIdx.x == 0)
            a.loss[at] = 0;
        if (a.backward)
            write_zeros<T, ACCESS>(a, row);
        return;
    }
    unsigned target = (unsigned)a.targets[at];
    float at_target = to_float(row[target]);
    Softmax s = join_block(walk<T, ACCESS>(row, a.v, a.vp)); // all have read their target then
    if (threadIdx.x == 0)
        a.loss[at] = logf(s.sum) - (at_target - s.max);
    if (a.backward)
        write_gradients<T, ACCESS>(a, row, target, s);
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
