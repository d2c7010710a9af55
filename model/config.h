// The shape of a GPT. (The presets are in zero/run/settings.c.)
//
// What a GPT could vary in besides its sizes (norm, position, MLP, ...) has a name here from the
// start, and one value that is built. No flag names another, and model_config_finish fills it in.
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H
#include "kernels/base.h"
#include "kernels/dtype.h"

enum Norm { NORM_LAYERNORM };
enum Position { POSITION_LEARNED };
enum Mlp { MLP_GELU };

// Which activations of a block the forward pass keeps; the others are made again in the backward
// pass.
enum Recompute {
    RECOMPUTE_NONE, // keeps every tensor
    RECOMPUTE_GELU, // drops the MLP's GELU (4C of 16C)
    // drops also the norms' outputs and attention's output: keeps x, qkv, x2, fc (9C)
    RECOMPUTE_ATTENTION,
    RECOMPUTE_BLOCK, // keeps only the block's input (1C)
    NRECOMPUTE
};

const char *recompute_name(enum Recompute level);

struct ModelConfig {
    size_t layers, heads, channels; // L, NH, C; C is a multiple of NH
    size_t seq_len;                 // T, and the rows of the position embedding
    size_t vocab;                   // V
    size_t vocab_padded;            // Vp: V rounded up to 128, what the matrices really have
    enum Dtype dtype;               // parameters and activations
    enum Norm norm;
    enum Position position;
    enum Mlp mlp;
    float norm_eps;
    size_t kv_heads; // = heads
    size_t window;   // attention window; 0: the whole sequence
    bool tie;        // the head's matrix is the token embedding
};

// Fills vocab_padded and the fixed choices, and checks the sizes against each other.
// Errors: -EINVAL with the flag, its value and what would be right.
int model_config_finish(struct ModelConfig *c, struct Error *e);

#endif
