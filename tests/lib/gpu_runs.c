// See gpu_runs.h.
#include "zero/state.h"
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
    struct TinyStep step[OUTCOME_STEPS];
    tiny_steps(r, out->steps, step);
    for (int i = 0; i < out->steps; i++)
        outcome_keep(out, r, i, step[i]);
    uint64_t hash = zero_weights_hash(&r->zero);
    if (tiny_is_first(r))
        out->hash = hash;
}

struct Outcome run_steps(const struct RankSettings *s, int steps) {
    struct Outcome out = {.steps = steps};
    CHECK(steps <= OUTCOME_STEPS, "%d steps; an outcome holds %d", steps, OUTCOME_STEPS);
    tiny_ranks(s, train_steps, &out);
    return out;
}

void expect_no_race(const char *what) {
    size_t races = sim_races();
    if (races)
        fail_msg("%s: %zu races", what, races);
}

void expect_same(const struct Outcome *a, const struct Outcome *b, const struct RankSettings *s,
                 const char *what) {
    char name[400];
    snprintf(name, sizeof name, ": %s", what);
    outcome_expect_same(a, b, s, name);
    snprintf(name, sizeof name, "%s: %s", settings_text(s), what);
    expect_no_race(name);
}
