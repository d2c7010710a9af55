// The classifier if the vocabulary is split over ranks: a rank's partial result of a row and, after
// the ranks have exchanged theirs, its losses and gradients.
//
// classifier_part walks a row once and ends with 16 bytes. classifier_merge begins with those of
// all parts, which one thread of a block merges in order, and walks the row once more. The methods
// by which classifier.cu keeps a row in the L2 cache for the second walk are useless here, as all
// rows of a chunk and a collective come between the two: so blocks are small, and six on an SM hide
// each other's beginnings and ends. Some 40 MB of the chunk may still be there: classifier_part
// goes from the last row, which the product has written last, to the first; classifier_merge from
// the first to the last.
//
// Expected: both are as fast as the memory. A quarter of GPT-2's vocabulary is a row of 25 KB,
// read, read again and written; at 3.35 TB/s a micro-batch of 32 x 1024 rows takes 0.74 ms.
//
// Called through the kernel table. Read next: sum.cu.
#include "kernels/cuda/classifier.cuh"

enum { THREADS = 256, BLOCKS_PER_SM = 6 };

// Returns the target's column among the v tokens from first_token on, which this rank has; v or
// more if it is another rank's: a difference below 0 wraps around.
static __device__ inline unsigned column_of(int32_t target, unsigned first_token) {
    return (unsigned)target - first_token;
}

// ---- the partial result ----

struct PartArgs {
    unsigned v, vp, first_token;
    const void *logits;
    const int32_t *targets;
    struct SoftmaxPart *part;
};

template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    classifier_part_kernel(struct PartArgs a) {
    unsigned at = gridDim.x - 1 - blockIdx.x;
    const T *row = (const T *)a.logits + (size_t)at * a.vp;
    int32_t target = a.targets[at];
    struct SoftmaxPart part = {-INFINITY, -INFINITY, 0};
    if (target != UNCOUNTED) { // the same for all threads of the block
        Softmax s = join_block<THREADS>(thread_softmax<THREADS, ACCESS>(row, a.v, a.vp));
        unsigned column = column_of(target, a.first_token);
        part.max = s.sum == 0 ? -INFINITY : s.max;
        part.sum = s.sum;
        if (threadIdx.x == 0 && column < a.v)
            part.target = to_float(row[column]);
    }
    if (threadIdx.x == 0)
        a.part[at] = part;
}

extern "C" void cuda_classifier_part(struct Stream *s, const struct ClassifierPart *a) {
    struct PartArgs p = {(unsigned)a->v, (unsigned)a->vp, (unsigned)a->first_token,
                         a->logits,      a->targets,      a->part};
    CHECK(a->rows <= INT32_MAX && a->vp <= INT32_MAX / 2 && a->first_token <= INT32_MAX,
          "(%zu, %zu) from token %zu", a->rows, a->vp, a->first_token);
    if (!a->rows)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        with_bool(is_whole<T>(a->vp) && is_aligned(a->logits, 16), [&](auto yes) {
            gpu_launch(s, classifier_part_kernel < T, yes ? WHOLE : SCALAR >, (unsigned)a->rows,
                       THREADS, 0, p);
        });
    });
}

// ---- the merged result ----

struct MergeArgs {
    unsigned rows, parts, first_token;
    const struct SoftmaxPart *all;
    struct Logits mine;
};

// Merges row `at`, and computes its loss. Not for rows that do not count.
static __device__ inline Softmax merge(const MergeArgs &a, unsigned at, float *loss) {
    float max = -INFINITY, target = -INFINITY;
    double sum = 0;
    for (unsigned p = 0; p < a.parts; p++) {
        const struct SoftmaxPart *part = &a.all[(size_t)p * a.rows + at];
        max = fmaxf(max, part->max);
        if (part->target != -INFINITY)
            target = part->target;
    }
    for (unsigned p = 0; p < a.parts; p++) {
        const struct SoftmaxPart *part = &a.all[(size_t)p * a.rows + at];
        sum += part->sum * ptx_exp2((part->max - max) * LOG2_E);
    }
    Softmax s = {max, (float)sum};
    *loss = logf(s.sum) - (target - max);
    return s;
}

// One thread per row.
static __global__ void __launch_bounds__(THREADS) classifier_losses_kernel(struct MergeArgs a) {
    unsigned at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= a.rows)
        return;
    float loss = 0;
    if (a.mine.targets[at] != UNCOUNTED)
        merge(a, at, &loss);
    a.mine.loss[at] = loss;
}

template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    classifier_gradients_kernel(struct MergeArgs a) {
    __shared__ Softmax all;
    unsigned at = blockIdx.x;
    T *row = (T *)a.mine.logits + (size_t)at * a.mine.vp;
    int32_t target = a.mine.targets[at];
    bool counts = target != UNCOUNTED;
    if (threadIdx.x == 0) {
        float loss = 0;
        if (counts)
            all = merge(a, at, &loss);
        a.mine.loss[at] = loss;
    }
    __syncthreads();
    if (counts)
        write_gradients<THREADS, ACCESS>(a.mine, row, column_of(target, a.first_token), all);
    else
        write_zeros<THREADS, ACCESS>(a.mine, row);
}

extern "C" void cuda_classifier_merge(struct Stream *s, const struct ClassifierMerge *a) {
    struct Logits mine = {(unsigned)a->v, (unsigned)a->vp, a->logits, a->targets,
                          a->loss,        a->loss_scale,   a->dloss,  a->backward};
    struct MergeArgs m = {(unsigned)a->rows, (unsigned)a->parts, (unsigned)a->first_token, a->all,
                          mine};
    CHECK(a->rows <= INT32_MAX && a->vp <= INT32_MAX / 2 && a->first_token <= INT32_MAX,
          "(%zu, %zu) from token %zu", a->rows, a->vp, a->first_token);
    if (!a->rows)
        return;
    if (!a->backward) {
        gpu_launch(s, classifier_losses_kernel, (unsigned)ceil_div(a->rows, THREADS), THREADS, 0,
                   m);
        return;
    }
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        with_bool(is_whole<T>(a->vp) && is_aligned(a->logits, 16), [&](auto yes) {
            gpu_launch(s, classifier_gradients_kernel < T, yes ? WHOLE : SCALAR >,
                       (unsigned)a->rows, THREADS, 0, m);
        });
    });
}
