// Models by name: the values of --model, for training from random weights and for plans before any
// download. The sizes are those of the published configurations.
#ifndef MODEL_PRESETS_H
#define MODEL_PRESETS_H
#include "model/config.h"

struct Preset {
    const char *name;
    enum FamilyKind family;
    size_t layers, heads, kv_heads, head_size, channels, ffn; // 0: model_config_finish's
    size_t seq_len;                                           // default sequence length in training
    size_t vocab;                                             // of its own tokenizer
    bool untied;
    double norm_eps, rope_theta;
    const char *rope_scaling; // as model_rope_scaling reads it; NULL: none
    size_t window;
};

// Returns the model of that name, or NULL.
const struct Preset *preset_named(const char *name);
// Returns model i; NULL behind the last.
const struct Preset *preset_at(size_t i);
// Returns the name that is nearest to a mistyped one, or NULL if none is near.
const char *preset_nearest(const char *name);
// Returns all names, separated by commas. free() it.
char *preset_names(void);

#endif
