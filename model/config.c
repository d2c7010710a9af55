// Presets and checks of a model's shape. See config.h.
#include "model/config.h"

#include <errno.h>
#include <string.h>

enum { VOCAB_MULTIPLE = 128, MAX_HEAD_SIZE = 256, MAX_LAYERS = 1024 };
static const size_t max_side = (size_t)1 << 24; // any one dimension; products stay far below 2^63

static const struct ModelPreset presets[] = {
    {"gpt2", 12, 12, 768, 1024, 50257},
    {"gpt2-medium", 24, 16, 1024, 1024, 50257},
    {"gpt2-large", 36, 20, 1280, 1024, 50257},
    {"gpt2-xl", 48, 25, 1600, 1024, 50257},
    {"tiny", 4, 4, 128, 64, 256},
};

const char *recompute_name(enum Recompute level) {
    static const char *const names[NRECOMPUTE] = {"none", "gelu", "attention", "block"};
    return names[level];
}

const struct ModelPreset *model_presets(size_t i) {
    return i < sizeof presets / sizeof presets[0] ? &presets[i] : NULL;
}

const struct ModelPreset *model_preset(const char *name) {
    for (size_t i = 0; model_presets(i); i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

static int check_side(const char *flag, size_t value, size_t most, struct Error *e) {
    if (value >= 1 && value <= most)
        return 0;
    return error_set(e, -EINVAL, "%s %zu: expected 1 to %zu", flag, value, most);
}

int model_config_finish(struct ModelConfig *c, struct Error *e) {
    int err = check_side("--layers", c->layers, MAX_LAYERS, e);
    if (!err)
        err = check_side("--heads", c->heads, max_side, e);
    if (!err)
        err = check_side("--channels", c->channels, max_side, e);
    if (!err)
        err = check_side("--seq-len", c->seq_len, max_side, e);
    if (!err)
        err = check_side("--vocab", c->vocab, max_side, e);
    if (err)
        return err;
    if (c->channels % c->heads)
        return error_set(e, -EINVAL,
                         "--channels %zu: expected a multiple of --heads %zu, for example %zu",
                         c->channels, c->heads, round_up(c->channels, c->heads));
    if (c->channels / c->heads > MAX_HEAD_SIZE)
        return error_set(e, -EINVAL, "--heads %zu: a head has %zu channels, at most %d are built",
                         c->heads, c->channels / c->heads, MAX_HEAD_SIZE);
    c->vocab_padded = round_up(c->vocab, VOCAB_MULTIPLE);
    c->norm = NORM_LAYERNORM;
    c->position = POSITION_LEARNED;
    c->mlp = MLP_GELU;
    c->kv_heads = c->heads;
    c->window = 0;
    c->tie = true;
    return 0;
}
