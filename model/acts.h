// Activations: what the forward pass leaves for the backward pass of one micro-batch.
//
// A block makes up to fifteen tensors. Each is either KEPT, with memory of its own in every layer,
// or SCRATCH: one buffer that all layers share, made again just before the layer's backward pass.
// The recompute level says which. All memory is one arena laid out before step 1; nothing is
// allocated inside a step.
//
// The tensors that one layer keeps of a micro-batch are adjacent, in a SLOT. There may be fewer
// slots than layers: then layers take turns in them, and the caller of the model moves the kept
// tensors out and back in, in time (zero/offload/activations.h); a layer has the same slot in both
// passes. Two slots are the least, since a block reads what the block before it left.
//
// Units hand each other two tensors whose sum is the residual stream: `x`, and `delta`, what the
// last matmul added to it. The addition is left to the next norm, which reads both anyway.
#ifndef MODEL_ACTS_H
#define MODEL_ACTS_H
#include "kernels/tp_comm.h"
#include "kernels/tier.h"
#include "model/config.h"

// The tensors of a block in the order in which they are made. R = b * t rows. With sequence
// parallelism each TP rank has a part of them, R'; else R' = R. Tensors that a family lacks are
// NULL: the means if its norm is RMS; ACT_ROTATED unless heads have norms, whose backward pass
// reads their input again (else rotation happens in ACT_QKV).
enum Act {
    ACT_X,       // (R', C) residual stream at the block's entry
    ACT_MEAN1,   // (R') fp32
    ACT_RSTD1,   // (R') fp32
    ACT_NORM1,   // (R', C)
    ACT_QKV,     // (R, (NH + 2 NKV) HS)
    ACT_ROTATED, // as ACT_QKV, after the heads' norms and rotary embedding
    ACT_LSE,     // (b, NH, t) fp32
    ACT_ATT,     // (R, NH HS) attention's output before its projection
    ACT_X2,      // (R', C) residual stream between attention and MLP
    ACT_MEAN2,   // (R') fp32
    ACT_RSTD2,   // (R') fp32
    ACT_NORM2,   // (R', C)
    ACT_FC,      // (R, F) the MLP's pre-activation; SwiGLU's: (R, 2F)
    ACT_MLP,     // (R, F) the MLP's activation
    ACT_LOW,     // (R, rank) of each target of adapters: u (adapter_ops.h)
    NACT
};

#define BIT(tensor) (UINT32_C(1) << (tensor)) // in a set of tensors

// The work of the head on the final norm's output, and so what the walk is for.
enum HeadMode {
    // forward: only the norm; backward: logits, loss and gradients, row chunk by row chunk
    HEAD_TRAIN,
    HEAD_LOSS,   // forward: the loss; no backward pass follows
    HEAD_LOGITS, // forward: the logits of some rows (struct Acts)
};

struct KvCache;

struct Acts {
    size_t b, t;           // the micro-batch in use: at most b_max, t_max
    size_t b_max, t_max;   // the largest that memory was allocated for
    void *(*block)[NACT];  // [layer][tensor], of the micro-batch in use
    void *(*blocks)[NACT]; // [set][layer][tensor]: micro-batch i has set i % sets
    size_t sets, layers;
    bool inference; // as in struct ActsSpec
    size_t generated_rows;
    uint32_t kept;              // bit per tensor
    size_t slots, slot_bytes;   // of the tensors that a layer of a set keeps (slot_of in acts.c)
    char *slot_mem;             // slots are adjacent
    size_t forgotten;           // as in struct ActsSpec
    void *delta;                // (R', C) added to x by the next norm
    void *x_final, *norm_final; // (R', C) the head's; x_final: or the sum x + delta that a stage
                                // of a pipeline leaves for the next, as the norm there stores it
    float *mean_final, *rstd_final; // (R')
    void *dx;                       // (R', C) gradient of the residual stream
    void *dnorm;                    // (R', C) gradient of a norm's output
    void *whole, *sums; // (R, C) rows of all TP ranks, and those to be summed; NULL: R' = R
    void *dwide;        // gradients inside attention (qkv and att), or the MLP (fc)
    void *dropped;      // an adapter's input, some of it dropped, (R, k); NULL: nothing is
    void *dlow;         // adapters' du (adapter_ops.h), (R, LORA_BESIDE rank) at most
    void *logits;       // (logit_rows, Vp), then their gradient
    size_t logit_rows, tp_size, row_parts; // R' = R / row_parts
    struct SoftmaxPart *softmax; // (tp_size, logit_rows), if the vocabulary is split over TP ranks
    float *losses;               // (R)

    // Set by the caller of a walk, after acts_use.
    const int32_t *tokens, *targets; // (b, t) on the device
    const int32_t *starts, *first;   // for packed documents (kernels/batch.h): where each token's
        // document begins, and the first key that it sees; NULL: not packed
    uint64_t seed,
        first_row; // HEAD_TRAIN: of --lora-dropout; and the micro-batch's first row among
                   // those of all training data
    enum HeadMode mode;
    size_t logits_row, logits_count; // HEAD_LOGITS: the first row, and how many
    const struct KvCache *cache; // HEAD_LOGITS: of the tokens before `tokens`, which attention adds
                                 // to it; starts say how many. NULL: tokens are all there are
    size_t cache_first;          // the cache's sequence that is the first here
    float dloss;             // HEAD_TRAIN: gradient of the objective by one counted token's loss,
    const float *loss_scale; // and its factor, on the device
    double *loss_sum;        // on the device: sum over the micro-batch's tokens
    bool accumulate_loss;    // add to loss_sum instead of overwriting it

    struct Block arena, logits_block, softmax_block;
};

struct ActsSpec {
    enum Recompute level;
    size_t b, t;      // micro-batches of at most b sequences of t tokens
    size_t sets;      // micro-batches whose tensors are kept at the same time; 0: one
    size_t slots;     // of kept tensors: one for each layer of each set, or fewer, but at least 2
    size_t forgotten; // the first layers, whose tensors no backward pass reads: where each layer
                      // would have a slot of its own, these share one
    bool no_head;     // no unit is the head
    bool inference;   // no backward pass will follow: nothing is kept for one
    size_t generated_rows; // generation alone (HEAD_LOGITS), of so many rows of logits at most at a
                           // time; 0: any mode
    size_t piece_bytes;    // logits are made in pieces of about this size,
    size_t piece_rows;     // of a multiple of this many rows if they have more rows
    size_t tp_size;        // ranks of tensor parallelism; 0: one
    size_t row_parts;      // parts of the rows between products, a divisor of t; 0: one
    size_t slot_parts;     // a slot can be cut into this many parts of whole cache lines; 0: one
};

// Returns the tensors of a block that a level keeps, a bit each.
uint32_t acts_kept(enum Recompute level);

// Lays out and allocates the arenas in `tier`. Errors: -ENOMEM. acts_close frees.
int acts_open(struct Acts *a, const struct ModelConfig *c, const struct ActsSpec *spec,
              struct Tier *tier, struct Error *e);
void acts_close(struct Acts *a);

// Returns the length at which a sequence of `tokens` tokens is run when sampling: 32, rounded up to
// a multiple of row_parts and doubled until they fit; at most t_max. Few lengths mean few shapes
// for which kernels are prepared; tokens past the last one change nothing, since attention is
// causal.
static inline size_t acts_sample_length(const struct Acts *a, size_t tokens) {
    size_t t = round_up(32, a->row_parts);
    while (t < tokens)
        t *= 2;
    return size_min(t, a->t_max);
}

// Makes a micro-batch the current one, among those whose tensors are kept.
static inline void acts_use(struct Acts *a, size_t micro) {
    a->block = a->blocks + micro % a->sets * a->layers;
}

// Returns the input of a pipeline stage that does not begin with the embedding: the sum x + delta
// of a micro-batch, (R', C), of the first block or else of the head.
static inline void *acts_input(const struct Acts *a, size_t micro) {
    return a->layers ? a->blocks[micro % a->sets * a->layers][ACT_X] : a->x_final;
}

static inline size_t acts_rows(const struct Acts *a) {
    return a->b * a->t;
}
// R', the rows of this rank between products.
static inline size_t acts_own_rows(const struct Acts *a) {
    return acts_rows(a) / a->row_parts;
}

#endif
