// The memory that each kernel in the table reads and writes: see access.h.
//
// Each function below reads like the kernel's comment in kernels.h, and like its cost (cost.c): one
// line for each operand. A kernel of KERNEL_LIST without a function here does not compile.
#include "kernels/access.h"

#include "kernels/trace.h"

#include <string.h>

void access_add(struct Accesses *a, const void *mem, size_t bytes, unsigned how) {
    if (!mem || !bytes)
        return;
    CHECK(a->n < ACCESSES_MAX, "an operation of more than %d operands", ACCESSES_MAX);
    a->list[a->n++] = (struct Access){mem, bytes, how};
}

static void add_read(struct Accesses *a, const void *mem, size_t n, enum Dtype dtype) {
    access_add(a, mem, n * dtype_size(dtype), ACCESS_READ);
}
static void add_write(struct Accesses *a, const void *mem, size_t n, enum Dtype dtype) {
    access_add(a, mem, n * dtype_size(dtype), ACCESS_WRITE);
}
static void add_change(struct Accesses *a, const void *mem, size_t n, enum Dtype dtype) {
    access_add(a, mem, n * dtype_size(dtype), ACCESS_BOTH);
}
// With `add` the result is added to what is there, which is read, too.
static void add_result(struct Accesses *a, const void *mem, size_t n, enum Dtype dtype, bool add) {
    access_add(a, mem, n * dtype_size(dtype), add ? ACCESS_BOTH : ACCESS_WRITE);
}
static void add_read_of_ints(struct Accesses *a, const int32_t *mem, size_t n) {
    access_add(a, mem, n * sizeof *mem, ACCESS_READ);
}
static void add_scratch(struct Accesses *a, const struct Work *w) {
    access_add(a, w->mem, w->bytes, ACCESS_WRITE);
}

// Elements from the first to the last of a matrix of `rows` rows.
static size_t matrix_span(const struct Mat *m, size_t rows, size_t cols) {
    return m->transposed ? (cols - 1) * m->ld + rows : (rows - 1) * m->ld + cols;
}

static void matmul_access(const struct Matmul *k, struct Accesses *a) {
    size_t c = matrix_span(&k->c, k->m, k->n);
    add_read(a, k->a.data, matrix_span(&k->a, k->m, k->k), k->a.dtype);
    add_read(a, k->b.data, matrix_span(&k->b, k->k, k->n), k->b.dtype);
    if (k->k2) {
        add_read(a, k->a2.data, matrix_span(&k->a2, k->m, k->k2), k->a2.dtype);
        add_read(a, k->b2.data, matrix_span(&k->b2, k->k2, k->n), k->b2.dtype);
    }
    add_read(a, k->bias, k->n, k->b.dtype);
    add_read(a, k->dgelu, c, k->c.dtype);
    add_result(a, k->c.data, c, k->c.dtype, k->accumulate);
    add_write(a, k->gelu, c, k->c.dtype);
    add_result(a, k->dbias, k->m, k->c.dtype, k->accumulate);
    add_scratch(a, &k->work);
}

static void norm_forward_access(const struct NormForward *k, struct Accesses *a) {
    size_t n = k->rows * k->c;
    add_read(a, k->x, n, k->dtype);
    add_read(a, k->delta, n, k->dtype);
    add_write(a, k->delta ? k->sum : NULL, n, k->dtype);
    if (!k->y)
        return;
    add_read(a, k->weight, k->c, k->dtype);
    add_read(a, k->bias, k->c, k->dtype);
    add_write(a, k->y, n, k->dtype);
    add_write(a, k->mean, k->rows, F32);
    add_write(a, k->rstd, k->rows, F32);
}

static void norm_backward_access(const struct NormBackward *k, struct Accesses *a) {
    size_t n = k->rows * k->c;
    add_read(a, k->dy, n, k->dtype);
    add_read(a, k->x, n, k->dtype);
    add_read(a, k->weight, k->c, k->dtype);
    add_read(a, k->mean, k->rows, F32);
    add_read(a, k->rstd, k->rows, F32);
    add_change(a, k->dx, n, k->dtype);
    add_result(a, k->dweight, k->c, k->grad_dtype, k->accumulate);
    add_result(a, k->dbias, k->c, k->grad_dtype, k->accumulate);
    add_scratch(a, &k->work);
}

// The beginnings of the lists alone: the tiles after them never change.
static void add_read_of_layout(struct Accesses *a, const struct Layout *l) {
    access_add(a, l->begin, (2 * l->tables * l->owners + 2) * sizeof *l->begin, ACCESS_READ);
}

static void attention_forward_access(const struct AttentionForward *k, struct Accesses *a) {
    size_t rows = k->b * k->t;
    add_read(a, k->qkv, rows * (k->nh + 2 * k->nkv) * k->hs, k->dtype);
    add_read_of_ints(a, k->first, rows);
    add_read_of_layout(a, &k->layout);
    add_write(a, k->out, rows * k->nh * k->hs, k->dtype);
    add_write(a, k->lse, rows * k->nh, F32);
    add_scratch(a, &k->work);
}

static void attention_backward_access(const struct AttentionBackward *k, struct Accesses *a) {
    size_t rows = k->b * k->t, all = rows * (k->nh + 2 * k->nkv) * k->hs;
    add_read(a, k->qkv, all, k->dtype);
    add_read(a, k->out, rows * k->nh * k->hs, k->dtype);
    add_read(a, k->dout, rows * k->nh * k->hs, k->dtype);
    add_read_of_ints(a, k->first, rows);
    add_read_of_layout(a, &k->layout);
    add_read(a, k->lse, rows * k->nh, F32);
    add_write(a, k->dqkv, all, k->dtype);
    add_scratch(a, &k->work);
}

static void attention_cached_access(const struct AttentionCached *k, struct Accesses *a) {
    size_t rows = k->b * k->t;
    add_read_of_ints(a, k->starts, rows);
    add_read(a, k->qkv, rows * (k->nh + 2 * k->nkv) * k->hs, k->dtype);
    add_change(a, k->cache, 2 * k->b * k->nkv * k->capacity * k->hs, k->cache_dtype);
    add_write(a, k->out, rows * k->nh * k->hs, k->dtype);
    add_scratch(a, &k->work);
}

static void rotate_forward_access(const struct RotateForward *k, struct Accesses *a) {
    size_t rows = k->b * k->t, all = rows * (k->nh + 2 * k->nkv) * k->hs;
    add_read_of_ints(a, k->starts, rows);
    add_read(a, k->table, k->t * k->hs, F32);
    add_read(a, k->q_norm, k->hs, k->dtype);
    add_read(a, k->k_norm, k->hs, k->dtype);
    add_read(a, k->x, all, k->dtype);
    add_write(a, k->y, all, k->dtype);
}

static void rotate_backward_access(const struct RotateBackward *k, struct Accesses *a) {
    size_t rows = k->b * k->t, all = rows * (k->nh + 2 * k->nkv) * k->hs;
    add_read_of_ints(a, k->starts, rows);
    add_read(a, k->table, k->t * k->hs, F32);
    add_read(a, k->q_norm || k->k_norm ? k->x : NULL, all, k->dtype);
    add_read(a, k->q_norm, k->hs, k->dtype);
    add_read(a, k->k_norm, k->hs, k->dtype);
    add_change(a, k->dy, all, k->dtype);
    add_result(a, k->dq_norm, k->hs, k->grad_dtype, k->accumulate);
    add_result(a, k->dk_norm, k->hs, k->grad_dtype, k->accumulate);
    add_scratch(a, &k->work);
}

static void gelu_forward_access(const struct GeluForward *k, struct Accesses *a) {
    add_read(a, k->x, k->n, k->dtype);
    add_write(a, k->y, k->n, k->dtype);
}

static void dropout_access(const struct Dropout *k, struct Accesses *a) {
    add_read(a, k->x, k->rows * k->cols, k->dtype);
    add_write(a, k->y, k->rows * k->cols, k->dtype);
}

static void swiglu_forward_access(const struct SwigluForward *k, struct Accesses *a) {
    add_read(a, k->x, 2 * k->rows * k->n, k->dtype);
    add_write(a, k->y, k->rows * k->n, k->dtype);
}

static void swiglu_backward_access(const struct SwigluBackward *k, struct Accesses *a) {
    add_read(a, k->x, 2 * k->rows * k->n, k->dtype);
    add_read(a, k->dy, k->rows * k->n, k->dtype);
    add_write(a, k->dx, 2 * k->rows * k->n, k->dtype);
}

static void embed_forward_access(const struct EmbedForward *k, struct Accesses *a) {
    size_t rows = k->b * k->t;
    add_read_of_ints(a, k->tokens, rows);
    add_read_of_ints(a, k->wpe ? k->starts : NULL, rows);
    add_read(a, k->wte, k->v * k->c, k->dtype);
    add_read(a, k->wpe, k->t * k->c, k->dtype);
    add_write(a, k->out, rows * k->c, k->dtype);
}

static void embed_backward_access(const struct EmbedBackward *k, struct Accesses *a) {
    size_t rows = k->b * k->t;
    add_read_of_ints(a, k->tokens, rows);
    add_read_of_ints(a, k->dwpe ? k->starts : NULL, rows);
    add_read(a, k->dout, rows * k->c, k->dtype);
    add_change(a, k->dwte, k->v * k->c, k->grad_dtype);
    add_result(a, k->dwpe, k->t * k->c, k->grad_dtype, k->accumulate);
    add_scratch(a, &k->work);
}

static void classifier_access(const struct Classifier *k, struct Accesses *a) {
    access_add(a, k->logits, k->rows * k->vp * dtype_size(k->dtype),
               k->backward ? ACCESS_BOTH : ACCESS_READ);
    add_read_of_ints(a, k->targets, k->rows);
    add_write(a, k->loss, k->rows, F32);
    add_read(a, k->backward ? k->loss_scale : NULL, 1, F32);
}

static void classifier_part_access(const struct ClassifierPart *k, struct Accesses *a) {
    add_read(a, k->logits, k->rows * k->vp, k->dtype);
    add_read_of_ints(a, k->targets, k->rows);
    access_add(a, k->part, k->rows * sizeof *k->part, ACCESS_WRITE);
}

static void classifier_merge_access(const struct ClassifierMerge *k, struct Accesses *a) {
    if (k->backward)
        add_change(a, k->logits, k->rows * k->vp, k->dtype);
    add_read_of_ints(a, k->targets, k->rows);
    access_add(a, k->all, k->parts * k->rows * sizeof *k->all, ACCESS_READ);
    add_write(a, k->loss, k->rows, F32);
    add_read(a, k->backward ? k->loss_scale : NULL, 1, F32);
}

static void sum_access(const struct Sum *k, struct Accesses *a) {
    add_read(a, k->x, k->n, k->dtype);
    access_add(a, k->out, sizeof *k->out, k->accumulate ? ACCESS_BOTH : ACCESS_WRITE);
}

static void step_clip_access(const struct StepClip *k, struct Accesses *a) {
    size_t rows = k->stages * k->ranks;
    access_add(a, k->squares, ((rows - 1) * k->stride + k->n) * sizeof *k->squares, ACCESS_READ);
    access_add(a, k->state, sizeof *k->state, ACCESS_BOTH);
}

static void adamw_access(const struct AdamW *k, struct Accesses *a) {
    add_change(a, k->master, k->n, master_dtype(k->master_format));
    add_change(a, k->m, k->n, k->moments_dtype);
    add_change(a, k->v, k->n, k->moments_dtype);
    add_read(a, k->grad, k->n, k->grad_dtype);
    add_result(a, k->param, k->n, k->param_dtype, k->master_format == MASTER_SPLIT);
    access_add(a, k->state, sizeof *k->state, ACCESS_READ);
}

static void cast_access(const struct Cast *k, struct Accesses *a) {
    add_read(a, k->src, k->n, k->src_dtype);
    add_write(a, k->dst, k->n, k->dst_dtype);
}

static void fill_normal_access(const struct FillNormal *k, struct Accesses *a) {
    add_write(a, k->dst, k->n, F32);
}

static void rank_sum_access(const struct RankSum *k, struct Accesses *a) {
    add_result(a, k->dst, k->n, k->dtype, k->accumulate);
}

static void rank_gather_access(const struct RankGather *k, struct Accesses *a) {
    size_t skip = size_min(k->skip, k->ranks), after = skip < k->ranks ? skip + 1 : skip;
    access_add(a, k->dst, skip * k->bytes, ACCESS_WRITE);
    access_add(a, (const char *)k->dst + after * k->bytes, (k->ranks - after) * k->bytes,
               ACCESS_WRITE);
}

static void quantize_access(const struct Quantize *k, struct Accesses *a) {
    add_read(a, k->x, k->n * k->parts, k->dtype);
    access_add(a, k->to, k->parts * quantized_bytes(k->bits, k->n), ACCESS_WRITE);
}

static void dequantize_access(const struct Dequantize *k, struct Accesses *a) {
    access_add(a, k->from, k->parts * k->ranks * quantized_bytes(k->bits, k->n), ACCESS_READ);
    add_result(a, k->x, k->n * k->parts, k->dtype, k->accumulate);
}

static void requantize_access(const struct Requantize *k, struct Accesses *a) {
    size_t bytes = quantized_bytes(k->bits, k->n);
    access_add(a, k->from, k->parts * k->ranks * bytes, ACCESS_READ);
    access_add(a, k->to, k->parts * bytes, ACCESS_WRITE);
}

static void nf4_quantize_access(const struct Nf4Quantize *k, struct Accesses *a) {
    add_read(a, k->x, k->n, k->dtype);
    access_add(a, k->to, nf4_bytes(k->n), ACCESS_WRITE);
}

static void nf4_dequantize_access(const struct Nf4Dequantize *k, struct Accesses *a) {
    access_add(a, k->from, nf4_bytes(k->n), ACCESS_READ);
    add_write(a, k->x, k->n, k->dtype);
}

// ---- by name ----

static void copy_access(const struct CopyOperands *c, struct Accesses *a) {
    access_add(a, c->src, c->bytes, ACCESS_READ);
    access_add(a, c->dst, c->bytes, ACCESS_WRITE);
}

struct Accesses access_of(const char *name, const void *args) {
    struct Accesses a = {.n = 0};
    if (!strcmp(name, "copy") || !strcmp(name, "zero"))
        copy_access(args, &a);
#define X(op, Args) else if (!strcmp(name, #op)) op##_access(args, &a);
    KERNEL_LIST(X)
#undef X
    return a;
}
