// The operations of a block: products, norms, attention and the activation, each forward and
// backward. Each puts its kernels on the compute queue, with the tensors of acts.h and the
// parameters of one block; block.c calls them in order.
//
// Kernels get NULL for tensors that a family lacks. The two properties of the family that these
// operations ask for have names here: is_rotary, is_swiglu.
#ifndef MODEL_BLOCK_OPS_H
#define MODEL_BLOCK_OPS_H
#include "model/launch.h"

// The arguments that the operations share while one unit runs.
struct BlockRun {
    struct Model *m;
    const struct Group *group, *adapter; // of the block, and of its adapter; NULL: it has none
    const void *w, *adapter_w;
    struct Grad dw, adapter_dw;
    struct Acts *acts;
    int layer;
    void **act;               // the layer's tensors
    size_t rows, own_rows, C; // rows R of products, R' of norms (acts.h)
    enum Dtype dtype;
};

// w, dw: of all groups; dw is NULL in a forward pass.
static inline struct BlockRun run_of(struct Model *m, const struct Unit *u, void *const w[],
                                     const struct Grad dw[], struct Acts *acts) {
    struct BlockRun r = {.m = m,
                         .group = &m->params->group[u->group],
                         .w = w[u->group],
                         .acts = acts,
                         .layer = u->layer,
                         .act = acts->block[u->layer],
                         .rows = acts_rows(acts),
                         .own_rows = acts_own_rows(acts),
                         .C = m->config.channels,
                         .dtype = m->config.dtype};
    if (dw)
        r.dw = dw[u->group];
    if (u->adapter < 0)
        return r;
    r.adapter = &m->params->group[u->adapter];
    r.adapter_w = w[u->adapter];
    if (dw)
        r.adapter_dw = dw[u->adapter];
    return r;
}

// A product of the unit's rows, or of their gradients.
static inline void multiply(struct BlockRun *r, struct Matmul args) {
    args.few_rows = is_few_rows(r->acts, args.m);
    LAUNCH_WITH_WORK(r->m, matmul, args);
}

// Returns a parameter's weights, or NULL if the family lacks it.
static inline const void *weight(const struct BlockRun *r, enum BlockParam p) {
    const struct Param *param = &r->group->param[p];
    return param->rows ? dtype_at(r->w, r->dtype, param->offset) : NULL;
}

// The same for its gradient; NULL also if it is not trained.
static inline void *gradient(const struct BlockRun *r, enum BlockParam p) {
    const struct Param *param = &r->group->param[p];
    return param->rows && r->dw.mem ? dtype_at(r->dw.mem, r->m->grad_dtype, param->offset) : NULL;
}

static inline bool is_rotary(const struct BlockRun *r) {
    return r->m->config.family->position == POSITION_ROTARY;
}
static inline bool is_swiglu(const struct BlockRun *r) {
    return r->m->config.family->mlp == MLP_SWIGLU;
}

// y (rows, n) = x (rows, k) W (n, k)' + bias, plus the adapters' products of its targets; gelu, if
// not NULL, receives GELU(y).
void linear_forward(struct BlockRun *r, void *y, const void *x, enum BlockParam w,
                    enum BlockParam bias, void *gelu);
// dW (n, k) (+)= dy' x, and dbias (n) (+)= column sums of dy, if they are trained; likewise the
// adapters' gradients. Then dx (rows, k) = dy (rows, n) W (n, k), and what comes through adapters,
// times GELU'(dgelu) if that is not NULL. dx may be x.
void linear_backward(struct BlockRun *r, void *dx, const void *dy, const void *x, enum BlockParam w,
                     enum BlockParam bias, const void *dgelu);

// A block's norm: y = norm(sum), sum = x + delta.
struct NormTensors {
    enum Act sum, mean, rstd, y;
    enum BlockParam weight, bias;
};
extern const struct NormTensors norm1, norm2;
// If delta is NULL, x is the sum.
void norm_forward(struct BlockRun *r, const struct NormTensors *norm, const void *x,
                  const void *delta);
// acts->dx += the gradient of the norm's input, from acts->dnorm, that of its output.
void norm_backward(struct BlockRun *r, const struct NormTensors *norm);

// Rotary embedding of queries and keys, from ACT_QKV to the tensor that attention reads. Backward:
// dqkv becomes the gradient of the input of the rotation.
void rotate_forward(struct BlockRun *r);
void rotate_backward(struct BlockRun *r, void *dqkv);

// Makes ACT_ATT and ACT_LSE; backward: makes dqkv from dout, the gradient of ACT_ATT.
void attention_forward(struct BlockRun *r);
void attention_backward(struct BlockRun *r, const void *dout, void *dqkv);

// Makes ACT_MLP from ACT_FC, unless a product's epilogue makes it; backward: makes dfc from dout,
// the gradient of the block's output, through its last product.
void activation_forward(struct BlockRun *r);
void activation_backward(struct BlockRun *r, const void *dout, void *dfc);

#endif
