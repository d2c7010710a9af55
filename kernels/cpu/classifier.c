// The loss: cross entropy of a softmax, and its gradient in place of the logits.
//
// A row of 50,257 logits is walked twice. The first walk finds the maximum and the sum of e^(x -
// maximum) together, a block at a time: a block that raises the maximum scales the sum so far
// (Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018). A block is in the L1
// cache, so walking it twice costs no memory traffic. Sums of blocks are added in fp64. The second
// walk recomputes e^(x - maximum) instead of keeping it: the row is still in the L2 cache, and a
// copy would not be. A row whose target does not count is not walked.
//
// If the vocabulary is split over ranks, each makes the first walk over its part, all gather the
// results, and each makes the second walk over its part with the maximum and sum of the whole row.
//
// Called through the kernel table, for one chunk of rows after another. Read next: sum.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_math.h"

#include <float.h>

enum { BLOCK = 1024 }; // elements: 4 KB

struct Softmax {
    float max;
    double sum; // of e^(x - max)
};

VEC_INLINE float classifier_block_max(const void *x, enum Dtype d, size_t n) {
    Vec max0 = vec_set(-FLT_MAX), max1 = max0;
    size_t i = 0;
    for (; i + 2 * VEC_LANES <= n; i += 2 * VEC_LANES) {
        max0 = vec_max(vec_load(x, d, i), max0);
        max1 = vec_max(vec_load(x, d, i + VEC_LANES), max1);
    }
    for (; i < n; i += VEC_LANES) {
        Vec v = vec_read(x, d, i, n);
        if (n - i < VEC_LANES)
            v = vec_select(vec_mask(n - i), v, max1);
        max1 = vec_max(v, max1);
    }
    return vec_max_lane(vec_max(max0, max1));
}

VEC_INLINE float classifier_block_sum(const void *x, enum Dtype d, size_t n, float max) {
    Vec sum0 = vec_set(0), sum1 = vec_set(0), m = vec_set(max);
    size_t i = 0;
    for (; i + 2 * VEC_LANES <= n; i += 2 * VEC_LANES) {
        sum0 += vec_exp(vec_load(x, d, i) - m);
        sum1 += vec_exp(vec_load(x, d, i + VEC_LANES) - m);
    }
    for (; i < n; i += VEC_LANES) {
        Vec e = vec_exp(vec_read(x, d, i, n) - m);
        sum0 += n - i >= VEC_LANES ? e : vec_select(vec_mask(n - i), e, vec_set(0));
    }
    return vec_sum(sum0 + sum1);
}

VEC_INLINE struct Softmax classifier_softmax(const void *x, enum Dtype d, size_t v) {
    struct Softmax s = {-FLT_MAX, 0};
    for (size_t i = 0; i < v; i += BLOCK) {
        const void *block = dtype_at(x, d, i);
        size_t n = size_min(BLOCK, v - i);
        float max = classifier_block_max(block, d, n);
        if (max > s.max) {
            s.sum *= exp((double)s.max - (double)max);
            s.max = max;
        }
        s.sum += classifier_block_sum(block, d, n, s.max);
    }
    return s;
}

// Zeroes the loss and gradient of a row whose target does not count.
VEC_INLINE void classifier_skip(const struct Classifier *a, enum Dtype d, size_t row) {
    a->loss[row] = 0;
    if (a->backward)
        memset(dtype_at(a->logits, d, row * a->vp), 0, a->vp * dtype_size(d));
}

// Computes the loss and the gradients. target: its column, v or more if another rank has it;
// at_target: its logit minus the maximum.
VEC_INLINE void classifier_finish_row(const struct Classifier *a, enum Dtype d, size_t row,
                                      size_t target, struct Softmax s, float at_target) {
    void *x = dtype_at(a->logits, d, row * a->vp);
    a->loss[row] = (float)(log(s.sum) - at_target);
    if (!a->backward)
        return;
    float dloss = a->loss_scale ? a->dloss * *a->loss_scale : a->dloss;
    Vec max = vec_set(s.max), scale = vec_set((float)(dloss / s.sum));
    size_t i = 0;
    for (; i + VEC_LANES <= a->v; i += VEC_LANES)
        vec_store(x, d, i, vec_exp_for(vec_load(x, d, i) - max, d) * scale);
    if (i < a->v)
        vec_write(x, d, i, a->v, vec_exp_for(vec_read(x, d, i, a->v) - max, d) * scale);
    for (i = a->v; i < a->vp; i++)
        dtype_store(x, d, i, 0);
    if (target < a->v)
        dtype_store(x, d, target, (float)((exp(at_target) / s.sum - 1) * dloss));
}

VEC_INLINE void classifier_row(const struct Classifier *a, enum Dtype d, size_t row) {
    const void *x = dtype_at(a->logits, d, row * a->vp);
    size_t target = (size_t)a->targets[row];
    if (a->targets[row] == UNCOUNTED) {
        classifier_skip(a, d, row);
        return;
    }
    struct Softmax s = classifier_softmax(x, d, a->v);
    classifier_finish_row(a, d, row, target, s, dtype_load(x, d, target) - s.max);
}

VEC_INLINE void classifier(struct Cpu *cpu, const struct Classifier *a, enum Dtype d) {
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t row = 0; row < a->rows; row++)
        classifier_row(a, d, row);
}

void CPU_NAME(classifier)(struct Cpu *cpu, const struct Classifier *a) {
    WITH_DTYPE(a->dtype, classifier(cpu, a, D));
}

VEC_INLINE void classifier_part_row(const struct ClassifierPart *a, enum Dtype d, size_t row) {
    const void *x = dtype_at(a->logits, d, row * a->vp);
    size_t target = token_row(a->targets[row], a->first_token);
    struct SoftmaxPart part = {-INFINITY, -INFINITY, 0};
    if (a->targets[row] != UNCOUNTED) {
        struct Softmax s = classifier_softmax(x, d, a->v);
        part.max = s.sum == 0 ? -INFINITY : s.max;
        part.sum = s.sum;
        if (target < a->v)
            part.target = dtype_load(x, d, target);
    }
    a->part[row] = part;
}

VEC_INLINE void classifier_part(struct Cpu *cpu, const struct ClassifierPart *a, enum Dtype d) {
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t row = 0; row < a->rows; row++)
        classifier_part_row(a, d, row);
}

void CPU_NAME(classifier_part)(struct Cpu *cpu, const struct ClassifierPart *a) {
    WITH_DTYPE(a->dtype, classifier_part(cpu, a, D));
}

// Returns the softmax of a whole row, of all parts' results; *target: the target's logit.
static struct Softmax classifier_merge_row(const struct ClassifierMerge *a, size_t row,
                                           float *target) {
    struct Softmax s = {-INFINITY, 0};
    *target = -INFINITY;
    for (size_t p = 0; p < a->parts; p++) {
        const struct SoftmaxPart *part = &a->all[p * a->rows + row];
        if (part->max > s.max)
            s.max = part->max;
        if (part->target != -INFINITY)
            *target = part->target;
    }
    for (size_t p = 0; p < a->parts; p++) {
        const struct SoftmaxPart *part = &a->all[p * a->rows + row];
        s.sum += part->sum * exp((double)part->max - (double)s.max);
    }
    return s;
}

VEC_INLINE void classifier_merge(struct Cpu *cpu, const struct ClassifierMerge *a, enum Dtype d) {
    const struct Classifier mine = {
        a->rows,    a->v,    a->vp,         a->dtype, a->logits,
        a->targets, a->loss, a->loss_scale, a->dloss, a->backward,
    };
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t row = 0; row < a->rows; row++) {
        float target;
        if (a->targets[row] == UNCOUNTED) {
            classifier_skip(&mine, d, row);
            continue;
        }
        struct Softmax s = classifier_merge_row(a, row, &target);
        classifier_finish_row(&mine, d, row, token_row(a->targets[row], a->first_token), s,
                              target - s.max);
    }
}

void CPU_NAME(classifier_merge)(struct Cpu *cpu, const struct ClassifierMerge *a) {
    WITH_DTYPE(a->dtype, classifier_merge(cpu, a, D));
}
