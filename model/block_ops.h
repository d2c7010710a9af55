// The operations of a block: products, norms, attention and the activation, each forward and
// backward. Each puts its kernels on the compute queue, with the tensors of acts.h and the
// parameters of one block; block.c calls them in order.
//
// Kernels get NULL for tensors that a family lacks. The two properties of the family that these
// operations ask for have names here: is_rotary, is_swiglu.
#ifndef MODEL_BLOCK_OPS_H
#define MODEL_BLOCK_OPS_H
#include "model/block_run.h"

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
// dx (rows, k) = dy (rows, n) W (n, k), and what comes through adapters, times GELU'(dgelu) if that
// is not NULL; dW (n, k) (+)= dy' x, and dbias (n) (+)= column sums of dy, if they are trained;
// likewise the adapters' gradients. dx may be x.
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
