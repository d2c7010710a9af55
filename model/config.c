// Checks of a model's shape. See config.h.
#include "model/config.h"

#include <errno.h>

enum { VOCAB_MULTIPLE = 128, MAX_HEAD_SIZE = 256, MAX_LAYERS = 1024 };
static const size_t max_side = (size_t)1 << 24; // any one dimension; products stay far below 2^63

const char *recompute_name(enum Recompute level) {
    static const char *const names[NRECOMPUTE] = {"none", "gelu", "attention", "block"};
    return names[level];
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
    c->norm_eps = 1e-5f;
    c->kv_heads = c->heads;
    c->window = 0;
    c->tie = true;
    return 0;
}
