// The products of adapters: see adapter_ops.h. Next: block.c.
#include "model/adapter_ops.h"

struct Adapters adapters_of(const struct BlockRun *r, enum BlockParam product) {
    const struct Lora *l = &r->m->config.lora;
    struct Adapters a = {.product = product, .rank = l->rank};
    if (!r->adapter)
        return a;
    a.n = adapter_targets(&r->m->config, (enum AdapterProduct)product, a.target);
    a.width = a.rank * (size_t)a.n;
    a.in = r->group->param[product].cols;
    a.ld = r->group->param[product].rows;
    a.u = dtype_at(r->act[ACT_LOW], r->dtype,
                   r->rows * adapter_width_before(&r->m->config, (enum AdapterProduct)product));
    a.du = r->acts->dlow;
    a.dropped = r->acts->dropped;
    a.drops = l->dropout > 0 && r->acts->mode == HEAD_TRAIN;
    return a;
}

static const void *adapter_weight(const struct BlockRun *r, int p) {
    return dtype_at(r->adapter_w, r->dtype, r->adapter->param[p].offset);
}
static void *adapter_gradient(const struct BlockRun *r, int p) {
    return dtype_at(r->adapter_dw.mem, r->m->grad_dtype, r->adapter->param[p].offset);
}

// Returns the columns of y, or of dy, that target i has.
static struct Mat columns_of(const struct BlockRun *r, const struct Adapters *a, int i,
                             const void *y) {
    struct AdapterTarget t = adapter_target(&r->m->config, a->target[i]);
    return mat(dtype_at(y, r->dtype, t.first), r->dtype, a->ld);
}
// Returns those of u, or of du.
static struct Mat low_columns_of(const struct BlockRun *r, const struct Adapters *a, int i,
                                 const void *u) {
    return mat(dtype_at(u, r->dtype, a->rank * (size_t)i), r->dtype, a->width);
}

static struct Mat transposed(struct Mat x) {
    x.transposed = true;
    return x;
}

static float adapter_scale(const struct BlockRun *r) {
    return (float)(r->m->config.lora.alpha / (double)r->m->config.lora.rank);
}

// Multiplies u or du, in place, by s.
static void scale(struct BlockRun *r, const struct Adapters *a, void *u) {
    LAUNCH(r->m, dropout,
           (struct Dropout){.rows = r->rows,
                            .cols = a->width,
                            .dtype = r->dtype,
                            .x = u,
                            .y = u,
                            .scale = adapter_scale(r)});
}

// y = dropout(x) times s, both (rows, in).
static void drop(struct BlockRun *r, const struct Adapters *a, const void *x, void *y) {
    const struct Param *w = &r->group->param[a->product];
    uint64_t layer = (uint64_t)(r->m->params->first_layer + r->layer);
    float p = (float)r->m->config.lora.dropout;
    LAUNCH(r->m, dropout,
           (struct Dropout){
               .rows = r->rows,
               .cols = a->in,
               .dtype = r->dtype,
               .x = x,
               .y = y,
               .scale = adapter_scale(r) / (1 - p),
               .p = p,
               .seed = rng_bits(~r->acts->seed, layer * NBLOCK + (uint64_t)a->product),
               .first = r->acts->first_row * w->whole_cols + w->first_col,
               .stride = w->whole_cols,
           });
}

// Returns what A' is multiplied with, and du' for the gradient of A: x; or, where elements are
// dropped, dropout(x) times s. Without dropout u and du are multiplied by s instead.
static const void *input_of(struct BlockRun *r, const struct Adapters *a, const void *x) {
    if (a->drops)
        drop(r, a, x, a->dropped);
    return a->drops ? a->dropped : x;
}

// Makes u.
static void go_down(struct BlockRun *r, const struct Adapters *a, const void *x) {
    const void *in = input_of(r, a, x);
    multiply(r, (struct Matmul){
                    .m = r->rows,
                    .n = a->width,
                    .k = a->in,
                    .a = mat(in, r->dtype, a->in),
                    .b = mat_transposed(adapter_weight(r, a->target[0]), r->dtype, a->in),
                    .c = mat(a->u, r->dtype, a->width),
                });
    if (!a->drops)
        scale(r, a, a->u);
}

// Returns `y`, a product x W' of a whole matrix, for n of its columns from `first` on (rows of W).
static struct Matmul some_columns(struct Matmul y, size_t first, size_t n) {
    y.n = n;
    y.b.data = dtype_at(y.b.data, y.b.dtype, first * y.b.ld);
    y.c.data = dtype_at(y.c.data, y.c.dtype, first);
    y.bias = y.bias ? dtype_at(y.bias, y.b.dtype, first) : NULL;
    y.gelu = y.gelu ? dtype_at(y.gelu, y.c.dtype, first) : NULL;
    return y;
}

void adapters_forward(struct BlockRun *r, const struct Adapters *a, const struct Matmul *y) {
    size_t done = 0;
    if (!r->restores) // u is kept
        go_down(r, a, y->a.data);
    for (int i = 0; i < a->n; i++) {
        int b = ADAPTER_B + (int)a->target[i];
        size_t first = adapter_target(&r->m->config, a->target[i]).first;
        struct Matmul part = some_columns(*y, first, r->adapter->param[b].rows);
        part.k2 = a->rank;
        part.a2 = low_columns_of(r, a, i, a->u);
        part.b2 = mat_transposed(adapter_weight(r, b), r->dtype, a->rank);
        if (done < first)
            multiply(r, some_columns(*y, done, first - done));
        multiply(r, part);
        done = first + part.n;
    }
    if (done < y->n)
        multiply(r, some_columns(*y, done, y->n - done));
}

// dB (+)= dy' u, and du = dy B.
static void go_up_backward(struct BlockRun *r, const struct Adapters *a, int i, const void *dy) {
    int b = ADAPTER_B + (int)a->target[i];
    size_t out = r->adapter->param[b].rows;
    multiply(r, (struct Matmul){
                    .m = out,
                    .n = a->rank,
                    .k = r->rows,
                    .a = transposed(columns_of(r, a, i, dy)),
                    .b = low_columns_of(r, a, i, a->u),
                    .c = mat(adapter_gradient(r, b), r->m->grad_dtype, a->rank),
                    .accumulate = r->adapter_dw.accumulate,
                });
    multiply(r, (struct Matmul){
                    .m = r->rows,
                    .n = a->rank,
                    .k = out,
                    .a = columns_of(r, a, i, dy),
                    .b = mat(adapter_weight(r, b), r->dtype, a->rank),
                    .c = low_columns_of(r, a, i, a->du),
                });
}

void adapters_backward(struct BlockRun *r, const struct Adapters *a, const void *x,
                       struct Matmul *dx) {
    const void *dy = dx->a.data, *in = input_of(r, a, x);
    for (int i = 0; i < a->n; i++)
        go_up_backward(r, a, i, dy);
    if (!a->drops)
        scale(r, a, a->du);
    multiply(r, (struct Matmul){
                    .m = a->width,
                    .n = a->in,
                    .k = r->rows,
                    .a = mat_transposed(a->du, r->dtype, a->width),
                    .b = mat(in, r->dtype, a->in),
                    .c = mat(adapter_gradient(r, a->target[0]), r->m->grad_dtype, a->in),
                    .accumulate = r->adapter_dw.accumulate,
                });
    struct Mat du = mat(a->du, r->dtype, a->width);
    struct Mat A = mat(adapter_weight(r, a->target[0]), r->dtype, a->in);
    if (!a->drops) {
        dx->k2 = a->width;
        dx->a2 = du;
        dx->b2 = A;
        return;
    }
    multiply(r,
             (struct Matmul){.m = r->rows, .n = a->in, .k = a->width, .a = du, .b = A, .c = dx->c});
    drop(r, a, dx->c.data, dx->c.data);
    dx->accumulate = true;
}
