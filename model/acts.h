// Activations: what the forward pass leaves for the backward pass of one micro-batch.
//
// A block makes up to fourteen tensors. Each is either KEPT, with memory of its own in every layer,
// or SCRATCH: one buffer that all layers share, made again just before the layer's backward pass.
// The recompute level says which. All memory is one arena laid out before step 1; nothing is
// allocated inside a step.
//
// What one layer keeps of a micro-batch is adjacent, in a SLOT. There may be fewer slots than that:
// then layers take turns in them, and whoever runs the model moves out what is kept and back in, in
// time (zero/offload/activations.h); a layer's tensors are at the same place in both passes.
// Two slots are the least, since a block reads what the block before it left.
//
// Units hand each other two tensors whose sum is the residual stream: `x`, and `delta`, what the
// last matmul added to it. The addition is left to the next norm, which reads both anyway.
#ifndef MODEL_ACTS_H
#define MODEL_ACTS_H
#include "kernels/tp_comm.h"
#include "kernels/tier.h"
#include "model/config.h"

// The tensors of a block in the order in which they are made. R = b * t rows, of which each place
// of sequence parallelism has a part, R'; else R' = R. Those that a family lacks are NULL: means
// where its norm is RMS, and ACT_ROTATED but where heads have norms, which want their input again
// (else rotation happens in ACT_QKV).
enum Act {
    ACT_X,       // (R', C) residual stream at the block's entry
    ACT_MEAN1,   // (R') fp32
    ACT_RSTD1,   // (R') fp32
    ACT_NORM1,   // (R', C)
    ACT_QKV,     // (R, (NH + 2 NKV) HS)
    ACT_ROTATED, // the same, behind the heads' norms and rotary embedding
    ACT_LSE,     // (b, NH, t) fp32
    ACT_ATT,     // (R, NH HS) attention's output before its projection
    ACT_X2,      // (R', C) residual stream between attention and MLP
    ACT_MEAN2,   // (R') fp32
    ACT_RSTD2,   // (R') fp32
    ACT_NORM2,   // (R', C)
    ACT_FC,      // (R, F) the MLP's pre-activation; SwiGLU's: (R, 2F)
    ACT_MLP,     // (R, F) the MLP's activation
    NACT
};

#define BIT(tensor) (UINT32_C(1) << (tensor)) // of a set of them

// What the head does with the final norm's output.
enum HeadMode {
    // forward: only the norm; backward: logits, loss and gradients, row chunk by row chunk
    HEAD_TRAIN,
    HEAD_LOSS,   // forward: the loss; no backward pass follows
    HEAD_LOGITS, // forward: the logits of row `logits_row`
};

struct Acts {
    size_t b, t;           // the micro-batch in use: at most b_max, t_max
    size_t b_max, t_max;   // what there is memory for
    void *(*block)[NACT];  // [layer][tensor], of the micro-batch in use
    void *(*blocks)[NACT]; // [set][layer][tensor]: micro-batch i has set i % sets
    size_t sets, layers;
    uint32_t kept;              // bit per tensor
    size_t slots, slot_bytes;   // kept tensors of set s, layer i are in slot (s * layers + i) %
    char *slot_mem;             // slots, and slots follow one another
    void *delta;                // (R', C) what the next norm adds to x
    void *x_final, *norm_final; // (R', C) the head's; x_final: or the sum x + delta that a stage
                                // of a pipeline leaves for the next, as the norm there stores it
    float *mean_final, *rstd_final; // (R')
    void *dx;                       // (R', C) gradient of the residual stream
    void *dnorm;                    // (R', C) gradient of a norm's output
    void *whole, *sums;             // (R, C) rows of all places, and of which a sum is due; NULL:
                                    // R' = R
    void *dwide;                    // gradients inside attention (qkv and att), or the MLP (fc)
    void *logits;                   // (logit_rows, Vp), then their gradient
    size_t logit_rows, tp_size, row_parts; // R' = R / row_parts
    struct SoftmaxPart *softmax; // (places, logit_rows), where the vocabulary lies on several
    float *losses;               // (R)

    // Set by the caller of a walk. After acts_use.
    const int32_t *tokens, *targets; // (b, t) on the device
    const int32_t *starts, *first;   // of packed documents (kernels/batch.h): where each token's
        // begins, and the first key that it sees; NULL: none are packed
    enum HeadMode mode;
    size_t logits_row;       // HEAD_LOGITS
    float dloss;             // HEAD_TRAIN: gradient of the objective by one counted token's loss,
    const float *loss_scale; // and what it is multiplied by, on the device
    double *loss_sum;        // on the device: sum over the micro-batch's tokens
    bool accumulate_loss;    // add to loss_sum instead of overwriting it

    struct Block arena, logits_block, softmax_block;
};

struct ActsSpec {
    enum Recompute level;
    size_t b, t;        // micro-batches of up to b sequences of t tokens
    size_t sets;        // micro-batches whose tensors are kept at a time; 0: one
    size_t slots;       // of kept tensors: as many as layers in all sets, or fewer, but 2
    bool no_head;       // no unit is the head
    size_t piece_bytes; // logits are made in pieces of about as many,
    size_t piece_rows;  // and of a multiple of as many rows, where they have more
    size_t tp_size;     // of tensor parallelism, which sum some of the tensors; 0: one
    size_t row_parts;   // of what lies between products, a divisor of t; 0: one
    size_t slot_parts;  // a slot can be cut into as many of whole cache lines; 0: one
};

// The tensors of a block that a level keeps, a bit each.
uint32_t acts_kept(enum Recompute level);

// Lays out and allocates the arenas in `tier`. Errors: -ENOMEM. acts_close frees.
int acts_open(struct Acts *a, const struct ModelConfig *c, const struct ActsSpec *spec,
              struct Tier *tier, struct Error *e);
void acts_close(struct Acts *a);

// The length at which a sequence of `tokens` tokens is run when sampling: the next power of two of
// at least 32, at most t_max; where rows are in parts, such a multiple of those. Few lengths mean
// few shapes for which kernels are prepared; what is behind the last token is never looked at,
// since attention is causal.
static inline size_t acts_sample_length(const struct Acts *a, size_t tokens) {
    size_t t = round_up(32, a->row_parts);
    while (t < tokens)
        t *= 2;
    return size_min(t, a->t_max);
}

// Makes a micro-batch the one in use, of those whose tensors are kept.
static inline void acts_use(struct Acts *a, size_t micro) {
    a->block = a->blocks + micro % a->sets * a->layers;
}

// Where a stage of a pipeline that does not begin with the embedding finds its input, the sum x +
// delta of a micro-batch, (R', C): the first block's, or the head's.
static inline void *acts_input(const struct Acts *a, size_t micro) {
    return a->layers ? a->blocks[micro % a->sets * a->layers][ACT_X] : a->x_final;
}

static inline size_t acts_rows(const struct Acts *a) {
    return a->b * a->t;
}
// R'
static inline size_t acts_own_rows(const struct Acts *a) {
    return acts_rows(a) / a->row_parts;
}

#endif
