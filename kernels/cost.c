// The work of each kernel in the table: cost.h says what counts.
//
// Each function below reads like the kernel's comment in kernels.h: one term for each operand. A
// kernel of KERNEL_LIST without a function here does not compile.
#include "kernels/cost.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static double bytes_of(size_t n, enum Dtype d) {
    return (double)n * (double)dtype_size(d);
}

// Bytes of a result; with accumulate it is read before it is written.
static double result_bytes(size_t n, enum Dtype d, bool accumulate) {
    return bytes_of(n, d) * (accumulate ? 2 : 1);
}

static struct Cost cost(double flops, double bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static struct Cost cost(double flops, double bytes, const char *format, ...) {
    struct Cost c = {.flops = flops, .bytes = bytes};
    va_list args;
    va_start(args, format);
    vsnprintf(c.shape, sizeof c.shape, format, args);
    va_end(args);
    return c;
}

// The shape is m x n x k (+ k2) with the letters that BLAS would have for the product: BLAS is
// column-major, so the first letter is our B's (kernels/cuda/blas_open.c). A forward pass is TN,
// the gradient of its input NN, that of its weight NT.
static struct Cost matmul_cost(const struct Matmul *a) {
    size_t mn = a->m * a->n;
    double bytes = bytes_of(a->m * a->k, a->a.dtype) + bytes_of(a->k * a->n, a->b.dtype) +
                   result_bytes(mn, a->c.dtype, a->accumulate);
    char k2[24] = "";
    if (a->k2) {
        bytes += bytes_of((a->m + a->n) * a->k2, a->a.dtype);
        snprintf(k2, sizeof k2, " + %zu", a->k2);
    }
    if (a->bias)
        bytes += bytes_of(a->n, a->b.dtype);
    if (a->dgelu)
        bytes += bytes_of(mn, a->c.dtype);
    if (a->gelu)
        bytes += bytes_of(mn, a->c.dtype);
    if (a->dbias)
        bytes += result_bytes(a->m, a->c.dtype, a->accumulate);
    return cost(2.0 * (double)mn * (double)(a->k + a->k2), bytes,
                "%zu x %zu x %zu%s %c%c%s%s%s%s%s", a->m, a->n, a->k, k2,
                a->b.transposed ? 'T' : 'N', a->a.transposed ? 'T' : 'N', a->bias ? " bias" : "",
                a->dgelu ? " dgelu" : "", a->gelu ? " gelu" : "", a->dbias ? " dbias" : "",
                a->accumulate ? " +=" : "");
}

static struct Cost norm_forward_cost(const struct NormForward *a) {
    size_t n = a->rows * a->c;
    double bytes = bytes_of(n, a->dtype);
    if (a->delta)
        bytes += 2 * bytes_of(n, a->dtype); // and sum
    if (a->y)
        bytes += bytes_of(n + (a->bias ? 2 : 1) * a->c, a->dtype) +
                 bytes_of((a->mean ? 2 : 1) * a->rows, F32);
    return cost(0, bytes, "%zu x %zu%s", a->rows, a->c, a->delta ? " sum" : "");
}

// dy and x are read, dx is read and written: 4.
static struct Cost norm_backward_cost(const struct NormBackward *a) {
    size_t sums = (a->dweight != NULL) + (a->dbias != NULL);
    double bytes = bytes_of(4 * a->rows * a->c + a->c, a->dtype) +
                   bytes_of((a->mean ? 2 : 1) * a->rows, F32) +
                   result_bytes(sums * a->c, a->grad_dtype, a->accumulate);
    return cost(0, bytes, "%zu x %zu", a->rows, a->c);
}

// Returns the operations of half of one T x T x HS product, for all query heads: for each query,
// two for each element of T / 2 keys. With a window, the w keys that a query sees, fewer near the
// beginning: T w - w w / 2 of T T / 2. With a layout, its share for a whole sequence. Scores that
// packed documents hide are not subtracted: a cost follows no pointers, which may point to device
// memory. The few bytes of a layout's lists are not counted.
static double causal_product(size_t b, size_t t, size_t nh, size_t hs, size_t window,
                             const struct Layout *layout) {
    double twice_keys = (double)t, w = (double)window; // twice those of a query, on average
    if (layout->begin)
        twice_keys *= layout->share;
    else if (window && window < t)
        twice_keys = 2 * w - w * w / twice_keys;
    return (double)(b * nh * t) * (double)hs * twice_keys;
}

static struct Cost attention_forward_cost(const struct AttentionForward *a) {
    size_t rows = a->b * a->t, vectors = 2 * a->nh + 2 * a->nkv; // qkv, out
    double bytes = bytes_of(vectors * rows * a->hs, a->dtype) + bytes_of(rows * a->nh, F32);
    if (a->first)
        bytes += (double)(rows * sizeof *a->first);
    return cost(2 * causal_product(a->b, a->t, a->nh, a->hs, a->window, &a->layout), bytes,
                "%zu x %zu, %zu x %zu", a->b, a->t, a->nh, a->hs);
}

static struct Cost attention_backward_cost(const struct AttentionBackward *a) {
    size_t rows = a->b * a->t, vectors = 4 * a->nh + 4 * a->nkv; // qkv, dqkv, out, dout
    double bytes = bytes_of(vectors * rows * a->hs, a->dtype) + bytes_of(rows * a->nh, F32);
    if (a->first)
        bytes += (double)(rows * sizeof *a->first);
    return cost(5 * causal_product(a->b, a->t, a->nh, a->hs, a->window, &a->layout), bytes,
                "%zu x %zu, %zu x %zu", a->b, a->t, a->nh, a->hs);
}

// Counts every cache as full, or as holding a window: positions are in the device's memory. Two
// products, with keys and with values, of two operations each: 4.
static struct Cost attention_cached_cost(const struct AttentionCached *a) {
    size_t rows = a->b * a->t, keys = a->window ? size_min(a->window, a->capacity) : a->capacity;
    double bytes = bytes_of((2 * a->nh + 2 * a->nkv) * rows * a->hs, a->dtype) +
                   bytes_of(2 * a->b * a->nkv * keys * a->hs, a->cache_dtype) +
                   (double)(rows * sizeof *a->starts);
    return cost(4.0 * (double)(rows * a->nh * a->hs) * (double)keys, bytes,
                "%zu x %zu over %zu, %zu x %zu", a->b, a->t, keys, a->nh, a->hs);
}

// Bytes of the documents' starts, if they are given.
static double starts_bytes(const int32_t *starts, size_t rows) {
    return starts ? (double)(rows * sizeof *starts) : 0;
}

// In place the values are not moved: 2 hs (nh + nkv) elements of each row are.
static struct Cost rotate_forward_cost(const struct RotateForward *a) {
    size_t heads = a->nh + (a->y == a->x ? 1 : 2) * a->nkv;
    double bytes = bytes_of(2 * a->b * a->t * heads * a->hs, a->dtype) +
                   bytes_of(a->t * a->hs, F32) + starts_bytes(a->starts, a->b * a->t);
    if (a->q_norm)
        bytes += bytes_of(a->hs, a->dtype);
    if (a->k_norm)
        bytes += bytes_of(a->hs, a->dtype);
    return cost(0, bytes, "%zu x %zu, %zu + %zu x %zu%s", a->b, a->t, a->nh, a->nkv, a->hs,
                a->q_norm || a->k_norm ? " norm" : "");
}

// Heads with a norm also read x.
static struct Cost rotate_backward_cost(const struct RotateBackward *a) {
    size_t rows = a->b * a->t;
    double bytes = bytes_of(2 * rows * (a->nh + a->nkv) * a->hs, a->dtype) +
                   bytes_of(a->t * a->hs, F32) + starts_bytes(a->starts, rows);
    if (a->q_norm)
        bytes += bytes_of((rows * a->nh + 1) * a->hs, a->dtype);
    if (a->k_norm)
        bytes += bytes_of((rows * a->nkv + 1) * a->hs, a->dtype);
    if (a->dq_norm)
        bytes += result_bytes(a->hs, a->grad_dtype, a->accumulate);
    if (a->dk_norm)
        bytes += result_bytes(a->hs, a->grad_dtype, a->accumulate);
    return cost(0, bytes, "%zu x %zu, %zu + %zu x %zu%s", a->b, a->t, a->nh, a->nkv, a->hs,
                a->q_norm || a->k_norm ? " norm" : "");
}

static struct Cost swiglu_forward_cost(const struct SwigluForward *a) {
    return cost(0, 3 * bytes_of(a->rows * a->n, a->dtype), "%zu x %zu", a->rows, a->n);
}

static struct Cost swiglu_backward_cost(const struct SwigluBackward *a) {
    return cost(0, 5 * bytes_of(a->rows * a->n, a->dtype), "%zu x %zu", a->rows, a->n);
}

static struct Cost gelu_forward_cost(const struct GeluForward *a) {
    return cost(0, 2 * bytes_of(a->n, a->dtype), "%zu", a->n);
}

static struct Cost dropout_cost(const struct Dropout *a) {
    return cost(0, 2 * bytes_of(a->rows * a->cols, a->dtype), "%zu x %zu", a->rows, a->cols);
}

// An upper bound: all tokens differ, and have rows here.
static struct Cost embed_forward_cost(const struct EmbedForward *a) {
    size_t rows = a->b * a->t;
    double bytes = bytes_of((2 * rows + (a->wpe ? a->t : 0)) * a->c, a->dtype) +
                   (double)(rows * sizeof *a->tokens) +
                   (a->wpe ? starts_bytes(a->starts, rows) : 0);
    return cost(0, bytes, "%zu x %zu", rows, a->c);
}

// An upper bound: as many tokens as possible differ, and have rows here.
static struct Cost embed_backward_cost(const struct EmbedBackward *a) {
    size_t rows = a->b * a->t;
    double bytes = bytes_of(rows * a->c, a->dtype) + (double)(rows * sizeof *a->tokens) +
                   result_bytes(size_min(rows, a->v) * a->c, a->grad_dtype, true) +
                   (a->dwpe ? result_bytes(a->t * a->c, a->grad_dtype, a->accumulate) +
                                  starts_bytes(a->starts, rows)
                            : 0);
    return cost(0, bytes, "%zu x %zu", rows, a->c);
}

static struct Cost classifier_cost(const struct Classifier *a) {
    double bytes = bytes_of(a->rows * (a->backward ? 2 * a->vp : a->v), a->dtype) +
                   (double)(a->rows * (sizeof *a->targets + sizeof *a->loss));
    return cost(0, bytes, "%zu x %zu%s", a->rows, a->vp, a->backward ? " backward" : "");
}

static struct Cost classifier_part_cost(const struct ClassifierPart *a) {
    double bytes = bytes_of(a->rows * a->v, a->dtype) +
                   (double)(a->rows * (sizeof *a->targets + sizeof *a->part));
    return cost(0, bytes, "%zu x %zu", a->rows, a->vp);
}

// Padding columns are not read.
static struct Cost classifier_merge_cost(const struct ClassifierMerge *a) {
    double bytes = bytes_of(a->backward ? a->rows * (a->v + a->vp) : 0, a->dtype) +
                   (double)(a->rows * (sizeof *a->targets + sizeof *a->loss)) +
                   (double)(a->parts * a->rows * sizeof *a->all);
    return cost(0, bytes, "%zu x %zu, %zu parts%s", a->rows, a->vp, a->parts,
                a->backward ? " backward" : "");
}

static struct Cost sum_cost(const struct Sum *a) {
    double bytes = bytes_of(a->n, a->dtype) + (double)sizeof *a->out * (a->accumulate ? 2 : 1);
    return cost(0, bytes, "%zu%s", a->n, a->square ? " squares" : "");
}

static struct Cost step_clip_cost(const struct StepClip *a) {
    double bytes = (double)(a->stages * a->ranks * a->n * sizeof *a->squares + sizeof *a->state);
    return cost(0, bytes, "%zu x %zu", a->stages * a->ranks, a->n);
}

static struct Cost adamw_cost(const struct AdamW *a) {
    bool split = a->master_format == MASTER_SPLIT; // and so reads the parameters
    double bytes = result_bytes(a->n, master_dtype(a->master_format), true) +
                   2 * result_bytes(a->n, a->moments_dtype, true) + bytes_of(a->n, a->grad_dtype);
    if (a->param)
        bytes += result_bytes(a->n, a->param_dtype, split);
    return cost(0, bytes, "%zu", a->n);
}

static struct Cost cast_cost(const struct Cast *a) {
    return cost(0, bytes_of(a->n, a->dst_dtype) + bytes_of(a->n, a->src_dtype), "%zu", a->n);
}

static struct Cost fill_normal_cost(const struct FillNormal *a) {
    return cost(0, bytes_of(a->n, F32), "%zu", a->n);
}

static struct Cost rank_sum_cost(const struct RankSum *a) {
    double bytes =
        bytes_of(a->n * a->ranks, a->dtype) + result_bytes(a->n, a->dtype, a->accumulate);
    return cost(0, bytes, "%zu of %zu", a->n, a->ranks);
}

static struct Cost rank_gather_cost(const struct RankGather *a) {
    size_t others = a->ranks - (a->skip < a->ranks);
    return cost(0, 2 * (double)(others * a->bytes), "%zu of %zu", a->bytes, a->ranks);
}

static double quantized_run_bytes(int bits, size_t n, size_t runs) {
    return (double)runs * (double)quantized_bytes(bits, n);
}

static struct Cost quantize_cost(const struct Quantize *a) {
    double bytes =
        bytes_of(a->n * a->parts, a->dtype) + quantized_run_bytes(a->bits, a->n, a->parts);
    return cost(0, bytes, "%zu x %zu to %d bits", a->parts, a->n, a->bits);
}

static struct Cost dequantize_cost(const struct Dequantize *a) {
    double bytes = quantized_run_bytes(a->bits, a->n, a->parts * a->ranks) +
                   result_bytes(a->n * a->parts, a->dtype, a->accumulate);
    return cost(0, bytes, "%zu x %zu of %zu", a->parts, a->n, a->ranks);
}

static struct Cost requantize_cost(const struct Requantize *a) {
    double bytes = quantized_run_bytes(a->bits, a->n, a->parts * (a->ranks + 1));
    return cost(0, bytes, "%zu x %zu of %zu", a->parts, a->n, a->ranks);
}

static struct Cost nf4_quantize_cost(const struct Nf4Quantize *a) {
    return cost(0, bytes_of(a->n, a->dtype) + (double)nf4_bytes(a->n), "%zu to nf4", a->n);
}

static struct Cost nf4_dequantize_cost(const struct Nf4Dequantize *a) {
    return cost(0, (double)nf4_bytes(a->n) + bytes_of(a->n, a->dtype), "%zu of nf4", a->n);
}

#define X(op, Args)                                                                                \
    struct Cost cost_##op(const struct Args *a) {                                                  \
        return op##_cost(a);                                                                       \
    }
KERNEL_LIST(X)
#undef X

struct Cost cost_of(const char *name, const void *args) {
#define X(op, Args)                                                                                \
    if (!strcmp(name, #op))                                                                        \
        return op##_cost(args);
    KERNEL_LIST(X)
#undef X
    return (struct Cost){0};
}
