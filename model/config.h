// The shape of a transformer: its family, which says what a block is made of, and its sizes.
//
// A family is a row of data (config.c). Tensors that a family lacks have no rows among the
// parameters (params.c) and no bytes among the activations (acts.c), and kernels get NULL for them
// (kernels/kernels.h): no function is written for one family. Next: params.h.
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H
#include "kernels/base.h"
#include "kernels/dtype.h"
#include "model/freeze.h"
#include "model/lora.h"
#include "model/sparse.h"

enum Norm { NORM_LAYER, NORM_RMS };
enum Position { POSITION_LEARNED, POSITION_ROTARY };
enum Mlp { MLP_GELU, MLP_SWIGLU };

enum FamilyKind { FAMILY_GPT2, FAMILY_LLAMA, FAMILY_MISTRAL, FAMILY_QWEN2, FAMILY_QWEN3, NFAMILY };

struct Family {
    const char *name;
    enum Norm norm;
    enum Position position;
    enum Mlp mlp;
    bool bias;     // every product of a block and every norm has a bias
    bool qkv_bias; // the product that makes queries, keys and values has a bias
    bool qk_norm;  // each head's queries and keys have a norm of their own
};

extern const struct Family families[NFAMILY];

// Rotary embedding: the angles' base, and how angles are scaled for sequences longer than those of
// the original training (Llama 3.1, section 3.4.2; linear: Chen et al. 2023; YaRN: Peng et al.
// 2023).
enum RopeScaling { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };
struct Rope {
    enum RopeScaling scaling;
    double theta, factor;
    double low, high; // llama3: wavelengths above original / low are stretched, those below
    size_t original;  // original / high are not; `original` is the length of the original training
    // yarn: pairs that turn `fast` times or more in `original` tokens are not stretched, those that
    // turn `slow` times or less are; the bounds are rounded outwards to whole pairs, unless
    // `exact`. Cosines and sines are multiplied by `attention`.
    double fast, slow, attention;
    bool exact;
};

// The activations of a block that the forward pass keeps; the backward pass recomputes the others.
enum Recompute {
    RECOMPUTE_NONE, // keeps every tensor
    RECOMPUTE_GELU, // drops the MLP's activation (4C of GPT-2's 16C)
    // drops also the norms' outputs and attention's output: keeps x, qkv, x2, fc (9C)
    RECOMPUTE_ATTENTION,
    RECOMPUTE_MLP,   // drops also the MLP's pre-activation: keeps x, qkv, x2 (5C)
    RECOMPUTE_BLOCK, // keeps only the block's input (1C)
    NRECOMPUTE
};

const char *recompute_name(enum Recompute level);

struct ModelConfig {
    size_t layers, heads, channels; // L; NH, of queries; C
    size_t seq_len;                 // T
    size_t vocab;                   // V
    size_t vocab_padded;            // Vp: V rounded up to 128, what the matrices really have
    enum Dtype dtype;               // parameters and activations
    enum FamilyKind kind;
    const struct Family *family; // its row
    size_t kv_heads;             // NKV, heads of keys and values: a divisor of NH
    size_t head_size;            // HS
    size_t ffn;                  // F, the width of the MLP
    size_t positions;            // rows of a learned position embedding: at least T
    size_t window;               // a token sees itself and the window - 1 tokens before it; 0: all
    struct Sparse sparse;        // the blocks within the window that a token sees; 0: all
    double sparse_share;         // share of the whole model's causal scores that the pattern leaves
    size_t first_head;           // index in the whole model of this part's first head
    double norm_eps;
    struct Rope rope;
    bool untied;          // the head has a matrix of its own; else it is the token embedding
    struct Freeze freeze; // the units that are not trained
    struct Lora lora;     // the adapters that are trained instead of all others; rank 0: none
};

// Fills in what is 0 and follows from the rest: kv_heads = heads, head_size = channels / heads, ffn
// = 4 channels, positions = seq_len, norm_eps = 1e-5, theta = 10000; the family's row, vocab_padded
// and sparse_share. Then checks the sizes against each other. Errors: -EINVAL with the flag, its
// value and what would be right.
int model_config_finish(struct ModelConfig *c, struct Error *e);

// The part of a model that TP rank tp_rank of tp_size computes: its heads, its columns of the MLP
// and its rows of the vocabulary: vocab_padded, equally many on each rank; `vocab` counts those
// that are tokens, down to 0 on the last ranks. Sequences, channels and layers are those of the
// whole model. With tp_size 1 it is the whole model.
struct ModelConfig model_config_part(const struct ModelConfig *whole, size_t tp_rank,
                                     size_t tp_size);
// Checks that a model can be split over tp_size ranks. Errors: -EINVAL with the flag, its value and
// valid values.
int model_config_check_parts(const struct ModelConfig *whole, size_t tp_size, struct Error *e);

// True if a unit, 0 .. L+1 of the whole model, is frozen; with adapters, all are.
static inline bool model_unit_is_frozen(const struct ModelConfig *whole, int unit) {
    size_t head = whole->layers + 1, u = (size_t)unit;
    if (whole->lora.rank)
        return true;
    if (u == 0 || (u == head && !whole->untied))
        return whole->freeze.embeddings;
    return u == head ? whole->freeze.head : freeze_has_layer(&whole->freeze, u - 1);
}

// True if a unit has an adapter: a block that --freeze does not name.
static inline bool model_unit_has_adapter(const struct ModelConfig *whole, int unit) {
    bool block = unit > 0 && (size_t)unit <= whole->layers;
    return whole->lora.rank && block && !freeze_has_layer(&whole->freeze, (size_t)unit - 1);
}

// Returns the first unit that is trained, or whose adapter is; the head if none before it is.
int model_first_trained(const struct ModelConfig *whole);

// Columns of a row of qkv, of attention's output and of the MLP's pre-activation.
static inline size_t model_qkv_width(const struct ModelConfig *c) {
    return (c->heads + 2 * c->kv_heads) * c->head_size;
}
static inline size_t model_attention_width(const struct ModelConfig *c) {
    return c->heads * c->head_size;
}
static inline size_t model_fc_width(const struct ModelConfig *c) {
    return (c->family->mlp == MLP_SWIGLU ? 2 : 1) * c->ffn;
}

// Reads "none", "linear:FACTOR", "llama3:FACTOR:LOW:HIGH:ORIGINAL" or
// "yarn:FACTOR:ORIGINAL[:FAST:SLOW:ATTENTION[:exact]]" into `rope`, whose theta it leaves. Errors:
// -EINVAL with --rope-scaling, its value and what would be right.
int model_rope_scaling(struct Rope *rope, const char *text, struct Error *e);

// Returns the angle by which pair i of a head turns from one token to the next, rounded to fp32 at
// the steps at which transformers rounds it.
float model_rope_frequency(const struct ModelConfig *c, size_t i);
// Fills table (t, head_size / 2, 2), for rotate_forward, with cos and sin of each angle (position
// times frequency, in fp32); for yarn times its factor.
void model_rope_table(const struct ModelConfig *c, size_t t, float *table);

#endif
