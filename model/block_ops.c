// The operations of a block: see block_ops.h. Next: block.c.
#include "model/block_ops.h"

#include "model/adapter.h"
#include "model/kv_cache.h"
#include "model/megatron.h"

// ---- products ----

// Returns the bias to add after a product: if TP ranks sum it, only one of them adds the bias.
static const void *added_bias(const struct BlockRun *r, enum BlockParam w, enum BlockParam bias) {
    bool once = r->group->param[w].split == SPLIT_COLUMNS;
    return once && !megatron_adds(r->m) ? NULL : weight(r, bias);
}

// A product of the unit's rows: (rows, n) = a (rows, k) b (k, n).
static void multiply(struct BlockRun *r, struct Matmul args) {
    args.few_rows = is_few_rows(r->acts, args.m);
    LAUNCH_WITH_WORK(r->m, matmul, args);
}

// ---- adapters ----

// The adapters of a product's targets. Their A's are one matrix (rank n, k), as they are adjacent in
// the group and have one input; so the tensors u = (alpha / rank) x A' and du are (rows, rank n).
struct Adapters {
    int n;
    enum LoraTarget target[LORA_BESIDE];
    size_t rank, width, in; // width: rank n
    void *u, *du;
};

static struct Adapters adapters_of(const struct BlockRun *r, enum BlockParam w) {
    const struct ModelConfig *c = &r->m->config;
    struct Adapters a = {.rank = c->lora.rank};
    if (!r->adapter)
        return a;
    a.n = adapter_targets(c, w, a.target);
    a.width = a.rank * (size_t)a.n;
    a.in = r->group->param[w].cols;
    a.u = r->acts->lora;
    a.du = dtype_at(a.u, r->dtype, r->rows * a.width);
    return a;
}

static const void *adapter_weight(const struct BlockRun *r, int p) {
    return dtype_at(r->adapter_w, r->dtype, r->adapter->param[p].offset);
}

static void *adapter_gradient(const struct BlockRun *r, int p) {
    return dtype_at(r->adapter_dw.mem, r->m->grad_dtype, r->adapter->param[p].offset);
}

// Multiplies u or du by alpha / rank.
static void scale(struct BlockRun *r, const struct Adapters *a, void *u) {
    LAUNCH(r->m, dropout,
           (struct Dropout){.rows = r->rows,
                            .cols = a->width,
                            .dtype = r->dtype,
                            .x = u,
                            .y = u,
                            .scale = (float)(r->m->config.lora.alpha / (double)a->rank)});
}

static void adapter_down(struct BlockRun *r, const struct Adapters *a, const void *x) {
    multiply(r, (struct Matmul){
                    .m = r->rows,
                    .n = a->width,
                    .k = a->in,
                    .a = mat(x, r->dtype, a->in),
                    .b = mat_transposed(adapter_weight(r, a->target[0]), r->dtype, a->in),
                    .c = mat(a->u, r->dtype, a->width),
                });
    scale(r, a, a->u);
}

// The columns of y (rows, ld) that are a target's, and those of u or du.
static struct Mat columns_of(const struct BlockRun *r, const struct Adapters *a, int i,
                             const void *y, size_t ld) {
    struct AdapterTarget t = adapter_target(&r->m->config, a->target[i]);
    return mat(dtype_at(y, r->dtype, t.first), r->dtype, ld);
}
static struct Mat low_columns_of(const struct BlockRun *r, const struct Adapters *a, int i,
                                 const void *u) {
    return mat(dtype_at(u, r->dtype, a->rank * (size_t)i), r->dtype, a->width);
}

// y (rows, ld) += u B' of each target; gelu: of a product that has one target.
static void adapter_forward(struct BlockRun *r, const struct Adapters *a, void *y, const void *x,
                            size_t ld, void *gelu) {
    adapter_down(r, a, x);
    for (int i = 0; i < a->n; i++) {
        int b = ADAPTER_B + (int)a->target[i];
        multiply(r, (struct Matmul){
                        .m = r->rows,
                        .n = r->adapter->param[b].rows,
                        .k = a->rank,
                        .a = low_columns_of(r, a, i, a->u),
                        .b = mat_transposed(adapter_weight(r, b), r->dtype, a->rank),
                        .c = columns_of(r, a, i, y, ld),
                        .accumulate = true,
                        .gelu = gelu,
                    });
    }
}

// dB (+)= dy' u and du = (alpha / rank) dy B of each target; dA (+)= du' x.
static void adapter_weights(struct BlockRun *r, const struct Adapters *a, const void *dy,
                            const void *x, size_t ld) {
    adapter_down(r, a, x);
    for (int i = 0; i < a->n; i++) {
        int b = ADAPTER_B + (int)a->target[i];
        size_t out = r->adapter->param[b].rows;
        struct Mat dy_i = columns_of(r, a, i, dy, ld), dy_t = dy_i;
        dy_t.transposed = true;
        multiply(r, (struct Matmul){
                        .m = out,
                        .n = a->rank,
                        .k = r->rows,
                        .a = dy_t,
                        .b = low_columns_of(r, a, i, a->u),
                        .c = mat(adapter_gradient(r, b), r->m->grad_dtype, a->rank),
                        .accumulate = r->adapter_dw.accumulate,
                    });
        multiply(r, (struct Matmul){
                        .m = r->rows,
                        .n = a->rank,
                        .k = out,
                        .a = dy_i,
                        .b = mat(adapter_weight(r, b), r->dtype, a->rank),
                        .c = low_columns_of(r, a, i, a->du),
                    });
    }
    scale(r, a, a->du);
    multiply(r, (struct Matmul){
                    .m = a->width,
                    .n = a->in,
                    .k = r->rows,
                    .a = mat_transposed(a->du, r->dtype, a->width),
                    .b = mat(x, r->dtype, a->in),
                    .c = mat(adapter_gradient(r, a->target[0]), r->m->grad_dtype, a->in),
                    .accumulate = r->adapter_dw.accumulate,
                });
}

// dx = (dx + du A) GELU'(dgelu), if that is not NULL.
static void adapter_input(struct BlockRun *r, const struct Adapters *a, void *dx,
                          const void *dgelu) {
    multiply(r, (struct Matmul){
                    .m = r->rows,
                    .n = a->in,
                    .k = a->width,
                    .a = mat(a->du, r->dtype, a->width),
                    .b = mat(adapter_weight(r, a->target[0]), r->dtype, a->in),
                    .c = mat(dx, r->dtype, a->in),
                    .accumulate = true,
                    .dgelu = dgelu,
                });
}

// ---- products with their adapters ----

void linear_forward(struct BlockRun *r, void *y, const void *x, enum BlockParam w,
                    enum BlockParam bias, void *gelu) {
    size_t n = r->group->param[w].rows, k = r->group->param[w].cols;
    struct Adapters a = adapters_of(r, w);
    multiply(r, (struct Matmul){
                    .m = r->rows,
                    .n = n,
                    .k = k,
                    .a = mat(x, r->dtype, k),
                    .b = mat_transposed(weight(r, w), r->dtype, k),
                    .c = mat(y, r->dtype, n),
                    .bias = added_bias(r, w, bias),
                    .gelu = a.n ? NULL : gelu,
                });
    if (a.n)
        adapter_forward(r, &a, y, x, n, gelu);
}

void linear_backward(struct BlockRun *r, void *dx, const void *dy, const void *x, enum BlockParam w,
                     enum BlockParam bias, const void *dgelu) {
    size_t n = r->group->param[w].rows, k = r->group->param[w].cols;
    struct Adapters a = adapters_of(r, w);
    if (a.n)
        adapter_weights(r, &a, dy, x, n);
    if (gradient(r, w))
        multiply(r, (struct Matmul){
                        .m = n,
                        .n = k,
                        .k = r->rows,
                        .a = mat_transposed(dy, r->dtype, n),
                        .b = mat(x, r->dtype, k),
                        .c = mat(gradient(r, w), r->m->grad_dtype, k),
                        .accumulate = r->dw.accumulate,
                        .dbias = gradient(r, bias),
                    });
    multiply(r, (struct Matmul){
                    .m = r->rows,
                    .n = k,
                    .k = n,
                    .a = mat(dy, r->dtype, n),
                    .b = mat(weight(r, w), r->dtype, k),
                    .c = mat(dx, r->dtype, k),
                    .dgelu = a.n ? NULL : dgelu,
                });
    if (a.n)
        adapter_input(r, &a, dx, dgelu);
}

// ---- norms ----

const struct NormTensors norm1 = {ACT_X,     ACT_MEAN1,     ACT_RSTD1,
                                  ACT_NORM1, BLOCK_NORM1_W, BLOCK_NORM1_B};
const struct NormTensors norm2 = {ACT_X2,    ACT_MEAN2,     ACT_RSTD2,
                                  ACT_NORM2, BLOCK_NORM2_W, BLOCK_NORM2_B};

void norm_forward(struct BlockRun *r, const struct NormTensors *norm, const void *x,
                  const void *delta) {
    LAUNCH(r->m, norm_forward,
           (struct NormForward){
               .rows = r->own_rows,
               .c = r->C,
               .dtype = r->dtype,
               .eps = (float)r->m->config.norm_eps,
               .x = x,
               .delta = delta,
               .sum = r->act[norm->sum],
               .y = r->act[norm->y],
               .mean = r->act[norm->mean],
               .rstd = r->act[norm->rstd],
               .weight = weight(r, norm->weight),
               .bias = weight(r, norm->bias),
           });
}

void norm_backward(struct BlockRun *r, const struct NormTensors *norm) {
    struct NormBackward args = {
        .rows = r->own_rows,
        .c = r->C,
        .dtype = r->dtype,
        .grad_dtype = r->m->grad_dtype,
        .dy = r->acts->dnorm,
        .x = r->act[norm->sum],
        .weight = weight(r, norm->weight),
        .mean = r->act[norm->mean],
        .rstd = r->act[norm->rstd],
        .dx = r->acts->dx,
        .dweight = gradient(r, norm->weight),
        .dbias = gradient(r, norm->bias),
        .accumulate = r->dw.accumulate,
    };
    LAUNCH_WITH_WORK(r->m, norm_backward, args);
}

// ---- attention ----

// The tensor that attention reads: rotation has a tensor of its own, or happens in qkv.
static void *attention_input(const struct BlockRun *r) {
    return r->act[ACT_ROTATED] ? r->act[ACT_ROTATED] : r->act[ACT_QKV];
}

// The first key of each query: the batch's if documents are packed, else the model's.
static const int32_t *first_keys(const struct BlockRun *r) {
    return r->acts->first ? r->acts->first : r->m->first;
}

void rotate_forward(struct BlockRun *r) {
    const struct ModelConfig *c = &r->m->config;
    LAUNCH(r->m, rotate_forward,
           (struct RotateForward){
               .b = r->acts->b,
               .t = r->acts->t,
               .nh = c->heads,
               .nkv = c->kv_heads,
               .hs = c->head_size,
               .dtype = r->dtype,
               .starts = r->acts->starts,
               .table = r->m->rope,
               .q_norm = weight(r, BLOCK_Q_NORM_W),
               .k_norm = weight(r, BLOCK_K_NORM_W),
               .eps = (float)c->norm_eps,
               .x = r->act[ACT_QKV],
               .y = attention_input(r),
           });
}

// Attention of new tokens, whose sequences' earlier keys and values are in the cache.
static void attention_cached(struct BlockRun *r) {
    const struct KvCache *cache = r->acts->cache;
    struct AttentionCached args = {
        .b = r->acts->b,
        .t = r->acts->t,
        .nh = r->m->config.heads,
        .nkv = r->m->config.kv_heads,
        .hs = r->m->config.head_size,
        .window = r->m->config.window,
        .capacity = cache->capacity,
        .dtype = r->dtype,
        .cache_dtype = cache->dtype,
        .starts = r->acts->starts,
        .qkv = attention_input(r),
        .cache = kv_cache_at(cache, r->layer, r->acts->cache_first),
        .out = r->act[ACT_ATT],
    };
    LAUNCH_WITH_WORK(r->m, attention_cached, args);
}

void attention_forward(struct BlockRun *r) {
    if (r->acts->cache) {
        attention_cached(r);
        return;
    }
    struct AttentionForward args = {
        .b = r->acts->b,
        .t = r->acts->t,
        .nh = r->m->config.heads,
        .nkv = r->m->config.kv_heads,
        .hs = r->m->config.head_size,
        .window = r->m->first ? r->m->config.window : 0,
        .dtype = r->dtype,
        .qkv = attention_input(r),
        .first = first_keys(r),
        .layout = r->m->layout,
        .out = r->act[ACT_ATT],
        .lse = r->act[ACT_LSE],
    };
    LAUNCH_WITH_WORK(r->m, attention_forward, args);
}

void attention_backward(struct BlockRun *r, const void *dout, void *dqkv) {
    struct AttentionBackward args = {
        .b = r->acts->b,
        .t = r->acts->t,
        .nh = r->m->config.heads,
        .nkv = r->m->config.kv_heads,
        .hs = r->m->config.head_size,
        .window = r->m->first ? r->m->config.window : 0,
        .dtype = r->dtype,
        .qkv = attention_input(r),
        .first = first_keys(r),
        .layout = r->m->layout,
        .out = r->act[ACT_ATT],
        .dout = dout,
        .lse = r->act[ACT_LSE],
        .dqkv = dqkv,
    };
    LAUNCH_WITH_WORK(r->m, attention_backward, args);
}

void rotate_backward(struct BlockRun *r, void *dqkv) {
    const struct ModelConfig *c = &r->m->config;
    struct RotateBackward args = {
        .b = r->acts->b,
        .t = r->acts->t,
        .nh = c->heads,
        .nkv = c->kv_heads,
        .hs = c->head_size,
        .dtype = r->dtype,
        .grad_dtype = r->m->grad_dtype,
        .starts = r->acts->starts,
        .table = r->m->rope,
        .x = r->act[ACT_QKV],
        .q_norm = weight(r, BLOCK_Q_NORM_W),
        .k_norm = weight(r, BLOCK_K_NORM_W),
        .eps = (float)c->norm_eps,
        .dy = dqkv,
        .dq_norm = gradient(r, BLOCK_Q_NORM_W),
        .dk_norm = gradient(r, BLOCK_K_NORM_W),
        .accumulate = r->dw.accumulate,
    };
    LAUNCH_WITH_WORK(r->m, rotate_backward, args);
}

// ---- activation ----

void activation_forward(struct BlockRun *r) {
    size_t n = r->m->config.ffn;
    const void *fc = r->act[ACT_FC];
    if (is_swiglu(r))
        LAUNCH(r->m, swiglu_forward,
               (struct SwigluForward){r->rows, n, r->dtype, fc, r->act[ACT_MLP]});
    else
        LAUNCH(r->m, gelu_forward,
               (struct GeluForward){r->rows * n, r->dtype, fc, r->act[ACT_MLP]});
}

// The product's epilogue applies GELU's derivative. SwiGLU's output gradient overwrites the output,
// which nothing reads any more.
void activation_backward(struct BlockRun *r, const void *dout, void *dfc) {
    void *mlp = r->act[ACT_MLP], *fc = r->act[ACT_FC];
    bool swiglu = is_swiglu(r);
    linear_backward(r, swiglu ? mlp : dfc, dout, mlp, BLOCK_OUT_W, BLOCK_OUT_B, swiglu ? NULL : fc);
    if (swiglu)
        LAUNCH(r->m, swiglu_backward,
               (struct SwigluBackward){r->rows, r->m->config.ffn, r->dtype, fc, mlp, dfc});
}
