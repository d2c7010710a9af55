// See gpu_runs.h.
#include "tests/lib/gpu_runs.h"

struct RankSettings gpu_settings(enum Dtype dtype, int ranks, int stage) {
    struct RankSettings s = tiny_settings(dtype);
    s.device = DEVICE_CUDA;
    s.ranks = ranks;
    s.stage = stage;
    s.nmicro = 1;
    s.grad_dtype = dtype;
    return s;
}

struct RankSettings wide_settings(enum Dtype dtype, int ranks, int stage, size_t tokens) {
    struct RankSettings s = gpu_settings(dtype, ranks, stage);
    struct Error e;
    s.model = (struct ModelConfig){
        .layers = 2, .heads = 2, .channels = 128, .seq_len = tokens, .vocab = 61, .dtype = dtype};
    s.batch = 1;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    return s;
}

struct RankSettings minute_settings(int stage, size_t layers) {
    struct RankSettings s = gpu_settings(BF16, 2, stage);
    struct Error e;
    s.model = (struct ModelConfig){
        .layers = layers, .heads = 1, .channels = 8, .seq_len = 4, .vocab = 11, .dtype = BF16};
    s.batch = 1;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    return s;
}

static void train_steps(void *context, struct Rank *r) {
    struct Outcome *out = context;
    struct TinyStep step[LONG_STEPS];
    tiny_steps(r, out->steps, step);
    for (int i = 0; i < out->steps && tiny_is_first(r); i++) {
        out->loss[i] = step[i].loss;
        out->norm[i] = step[i].grad_norm;
    }
    uint64_t hash = zero_weights_hash(&r->zero);
    if (tiny_is_first(r))
        out->hash = hash;
}

struct Outcome run_steps(const struct RankSettings *s, int steps) {
    struct Outcome out = {.steps = steps};
    tiny_ranks(s, train_steps, &out);
    return out;
}

void expect_no_race(const char *what) {
    size_t races = sim_races();
    if (races)
        fail_msg("%s: %zu races", what, races);
}

static const char *name_of(const struct RankSettings *s, const char *what) {
    static char text[240];
    snprintf(text, sizeof text,
             "%s (stage %d, %d ranks, %s, %zu micro-batches, prefetch %zu, optimizer on %s (%g), "
             "parameters on %s)",
             what, s->stage, s->ranks, dtype_name(s->model.dtype), s->nmicro, s->prefetch,
             tier_name(s->opt_tier), s->offload_ratio, tier_name(s->param_tier));
    return text;
}

void expect_same(const struct Outcome *a, const struct Outcome *b, const struct RankSettings *s,
                 const char *what) {
    const char *name = name_of(s, what);
    for (int i = 0; i < a->steps; i++)
        if (a->loss[i] != b->loss[i] || a->norm[i] != b->norm[i])
            fail_msg("%s: loss %.9g, norm %.9g at step %d, not %.9g, %.9g", name, b->loss[i],
                     b->norm[i], i + 1, a->loss[i], a->norm[i]);
    if (a->hash != b->hash)
        fail_msg("%s: hash %016llx, not %016llx", name, (unsigned long long)b->hash,
                 (unsigned long long)a->hash);
    expect_no_race(name);
}
