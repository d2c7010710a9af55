// The products of a block's adapters (lora.h), beside those of its matrices.
//
// With A (rank, k) and B (n, rank), a target's y = x W' + s (x A') B', s = alpha / rank. Backward:
//
//   u = s x A'    dB = dy' u    du = s dy B    dA = du' x    dx = dy W + du A
//
// u is kept, at every level of recomputation. With --lora-dropout, x here is dropout(x), and so is
// du A. The targets of one product drop the same elements of their input, where PEFT draws anew for
// each. Elements are drawn by their place in the training data, the layer and the product: the same
// in every grid, micro-batch and level of recomputation. Next: adapter_ops.c.
#ifndef MODEL_ADAPTER_OPS_H
#define MODEL_ADAPTER_OPS_H
#include "model/adapter.h"
#include "model/block_run.h"

// The adapters of a product's targets. Their A's are one matrix (width, k), width = rank n, as they
// are adjacent in the group and have one input; so u and du are (rows, width).
struct Adapters {
    int n; // 0: the product has none
    enum LoraTarget target[LORA_BESIDE];
    enum BlockParam product;
    size_t rank, width, in, ld; // in: k; ld: columns of y
    void *u, *du, *dropped;     // dropped: (rows, k), the input where some is dropped, times s
    bool drops;
};
struct Adapters adapters_of(const struct BlockRun *r, enum BlockParam product);

// Computes y = x W' + bias, a product of the whole matrix, with u B' in each target's columns.
void adapters_forward(struct BlockRun *r, const struct Adapters *a, const struct Matmul *y);
// Makes the gradients of A and B, and adds du A to the product dx = dy W, which is run next: as its
// second pair, or to its C if elements are dropped. That C may be x.
void adapters_backward(struct BlockRun *r, const struct Adapters *a, const void *x,
                       struct Matmul *dx);

#endif
