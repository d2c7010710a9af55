// The operations of a block: see block_ops.h. Next: block.c.
#include "model/block_ops.h"

#include "model/adapter_ops.h"
#include "model/kv_cache.h"
#include "model/megatron.h"

// ---- products ----

// Returns the bias to add after a product: if TP ranks sum it, only one of them adds the bias.
static const void *added_bias(const struct BlockRun *r, enum BlockParam w, enum BlockParam bias) {
    bool once = r->group->param[w].split == SPLIT_COLUMNS;
    return once && !megatron_adds(r->m) ? NULL : weight(r, bias);
}

void linear_forward(struct BlockRun *r, void *y, const void *x, enum BlockParam w,
                    enum BlockParam bias, void *gelu) {
    size_t n = r->group->param[w].rows, k = r->group->param[w].cols;
    struct Adapters adapters = adapters_of(r, w);
    struct Matmul product = {
        .m = r->rows,
        .n = n,
        .k = k,
        .a = mat(x, r->dtype, k),
        .b = mat_transposed(weight(r, w), r->dtype, k),
        .c = mat(y, r->dtype, n),
        .bias = added_bias(r, w, bias),
        .gelu = gelu,
    };
    if (adapters.n)
        adapters_forward(r, &adapters, &product);
    else
        multiply(r, product);
}

// dW (n, k) (+)= dy' x; dbias (n) (+)= column sums of dy; nothing if they are not trained.
static void linear_weights_backward(struct BlockRun *r, const void *dy, const void *x,
                                    enum BlockParam w, enum BlockParam bias) {
    size_t n = r->group->param[w].rows, k = r->group->param[w].cols;
    if (!gradient(r, w))
        return;
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
}

void linear_backward(struct BlockRun *r, void *dx, const void *dy, const void *x, enum BlockParam w,
                     enum BlockParam bias, const void *dgelu) {
    size_t n = r->group->param[w].rows, k = r->group->param[w].cols;
    struct Adapters adapters = adapters_of(r, w);
    struct Matmul product = {
        .m = r->rows,
        .n = k,
        .k = n,
        .a = mat(dy, r->dtype, n),
        .b = mat(weight(r, w), r->dtype, k),
        .c = mat(dx, r->dtype, k),
        .dgelu = dgelu,
    };
    if (adapters.n)
        adapters_backward(r, &adapters, x, &product);
    if (dx == x) // which dx overwrites
        linear_weights_backward(r, dy, x, w, bias);
    multiply(r, product);
    if (dx != x)
        linear_weights_backward(r, dy, x, w, bias);
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
