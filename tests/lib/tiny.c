// See tiny.h.
#include "zero/state.h"
#include "tests/lib/tiny.h"
#include "tests/lib/test.h"

#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#endif
#ifndef THREAD_SANITIZER
#define THREAD_SANITIZER 0
#endif

bool tiny_has_disk(void) {
    struct NvmeSettings disk = {.folder = disk_folder};
    struct Error e;
    return nvme_preflight(&disk, 0, &e) == 0;
}

bool tests_under_thread_sanitizer(void) {
    return THREAD_SANITIZER;
}

struct RankSettings tiny_settings(enum Dtype dtype) {
    struct RankSettings s = {
        .model =
            {.layers = 2, .heads = 3, .channels = 36, .seq_len = 17, .vocab = 61, .dtype = dtype},
        .batch = 2,
        .nmicro = 2,
        .grad_dtype = F32,
        .cache_dtype = NDTYPE,
        .threads = 2,
        .device_bytes = SIZE_MAX,
        .prefetch = 1,
        .ranks = 1,
        .loss_scale = {65536, 1, 1000, 2},
    };
    struct Error e;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    return s;
}

static const struct {
    const char *name;
    enum FamilyKind kind;
    bool untied;
    size_t window;
} tiny_families[TINY_FAMILIES] = {
    {"gpt2", FAMILY_GPT2, false, 0},         {"gpt2, untied", FAMILY_GPT2, true, 0},
    {"llama, tied", FAMILY_LLAMA, false, 0}, {"llama", FAMILY_LLAMA, true, 0},
    {"mistral", FAMILY_MISTRAL, true, 5},    {"qwen2", FAMILY_QWEN2, false, 0},
    {"qwen3", FAMILY_QWEN3, true, 0},
};

struct RankSettings tiny_family(int i, enum Dtype dtype) {
    struct RankSettings s = tiny_settings(dtype);
    bool old = tiny_families[i].kind == FAMILY_GPT2;
    struct Error e;
    s.model = (struct ModelConfig){.layers = 4,
                                   .heads = 4,
                                   .kv_heads = old ? 4 : 2,
                                   .channels = 36,
                                   .head_size = old ? 9 : 10,
                                   .ffn = 44,
                                   .seq_len = 17,
                                   .vocab = 61,
                                   .dtype = dtype,
                                   .kind = tiny_families[i].kind,
                                   .window = tiny_families[i].window,
                                   .untied = tiny_families[i].untied};
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    return s;
}

struct RankSettings tiny_changed(struct RankSettings s, int i) {
    s.stage = i % 4;
    s.recompute = (enum Recompute)(i % NRECOMPUTE);
    s.opt_tier = i % 3 > 0 ? TIER_CPU : TIER_DEVICE;
    s.param_tier = i % 3 > 1 ? TIER_CPU : TIER_DEVICE;
    s.act_tier = i % 2 > 0 ? TIER_CPU : TIER_DEVICE;
    s.prefetch = (size_t)i % 3;
    return s;
}

const char *tiny_family_name(int i) {
    return tiny_families[i].name;
}

void tiny_open(struct Rank *r, const struct RankSettings *s, uint64_t seed) {
    struct Error e = {0};
    if (rank_open(r, s, false, &e))
        fail_msg("%s", e.text);
    zero_init_weights(&r->zero, seed);
}

// Whether a document begins with that token of all samples', beside those that begin a sample.
static bool begins_document(const struct ModelConfig *c, uint64_t at) {
    return at % c->seq_len == 0 || rng_bits(6, at) % 4 == 0;
}

// The last target of a document is the first token of another.
static bool target_counts(const struct ModelConfig *c, uint64_t at) {
    return at / c->seq_len % 4 != 3 && !begins_document(c, at + 1) && rng_bits(7, at) % 3 > 0;
}

// The same whoever reads it.
int tiny_read(void *config, uint64_t first, size_t n, const struct Batch *batch, struct Error *e) {
    const struct ModelConfig *c = config;
    (void)e;
    for (size_t i = 0; i < n * c->seq_len; i++) {
        uint64_t at = first * c->seq_len + i;
        batch->inputs[i] = (int32_t)(rng_bits(5, at) % c->vocab);
        batch->targets[i] = (int32_t)(rng_bits(5, at + 1) % c->vocab);
        if (!batch->starts)
            continue;
        bool begins = begins_document(c, at);
        batch->starts[i] = begins ? (int32_t)(at % c->seq_len) : batch->starts[i - 1];
        if (!target_counts(c, at))
            batch->targets[i] = UNCOUNTED;
    }
    return 0;
}

static int count_targets(void *config, uint64_t first, uint64_t n, uint64_t *counted,
                         struct Error *e) {
    const struct ModelConfig *c = config;
    (void)e;
    *counted = 0;
    for (uint64_t at = first * c->seq_len; at < (first + n) * c->seq_len; at++)
        *counted += target_counts(c, at);
    return 0;
}

struct BatchSource tiny_source(const struct Rank *r) {
    return (struct BatchSource){tiny_read, r->model.packed ? count_targets : NULL,
                                (void *)&r->params.config};
}

void tiny_queue_step(struct Rank *r) {
    struct LrSchedule schedule = {.kind = SCHEDULE_LINEAR, .lr = 1e-3, .steps = 1000};
    struct AdamSettings adam = {0.9, 0.95, 1e-8, 0.1, 1};
    struct StepState settings = schedule_step(&schedule, &adam, r->zero.step, r->zero.updates);
    struct BatchSource from = tiny_source(r);
    struct Error e = {0};
    if (rank_queue_step(r, &from, &settings, &e))
        fail_msg("%s", e.text);
}

struct TinyStep tiny_take_step(struct Rank *r) {
    struct StepResult result = zero_step_wait(&r->zero);
    return (struct TinyStep){rank_mean_loss(r, &result), result.grad_norm, result.skipped,
                             result.words != 0};
}

struct TinyStep tiny_step(struct Rank *r) {
    tiny_queue_step(r);
    return tiny_take_step(r);
}

void tiny_steps(struct Rank *r, int steps, struct TinyStep *out) {
    for (int i = 0; i < steps + STEPS_AHEAD; i++) {
        if (i < steps)
            tiny_queue_step(r);
        if (i >= STEPS_AHEAD)
            out[i - STEPS_AHEAD] = tiny_take_step(r);
    }
}

float tiny_validate(struct Rank *r, uint64_t samples) {
    struct BatchSource from = tiny_source(r);
    struct Error e = {0};
    float loss;
    if (rank_validate(r, &from, samples, &loss, &e))
        fail_msg("%s", e.text);
    return loss;
}

// ---- several ranks ----

static const struct World *joined; // a launcher's job, or NULL

void tiny_join(const struct World *w) {
    joined = w->launched ? w : NULL;
}

bool tiny_is_first(const struct Rank *r) {
    return r->all->rank == (joined ? joined->first : 0);
}

struct RanksRun {
    const struct RankSettings *settings;
    RankBody *body;
    void *context;
};

static void run_rank(void *context, int rank, struct ThreadGroup *group) {
    const struct RanksRun *run = context;
    struct RankSettings s = *run->settings;
    struct Rank r;
    s.rank = rank;
    s.group = group;
    s.timeout_s = s.timeout_s > 0 ? s.timeout_s : 60;
    s.processes = joined && s.ranks > 1;
    s.comm_chunk = 1 << 16; // several pieces in a group
    s.check_comm = true;
    tiny_open(&r, &s, 1);
    run->body(run->context, &r);
    rank_close(&r);
}

void tiny_ranks(const struct RankSettings *s, RankBody *body, void *context) {
    struct RanksRun run = {s, body, context};
    struct World w = joined ? *joined : world_of_threads(s->ranks);
    struct RankDeviceChoice choice;
    struct Error ignored;
    rank_device_choose(s, false, &choice, &ignored); // before there are threads
    CHECK(w.size == s->ranks, "%d ranks in a world of %d", s->ranks, w.size);
    world_run(&w, run_rank, &run);
}

uint64_t tiny_run(const struct RankSettings *s, uint64_t seed, int steps) {
    struct Rank r;
    tiny_open(&r, s, seed);
    for (int i = 0; i < steps; i++)
        tiny_step(&r);
    uint64_t hash = zero_weights_hash(&r.zero);
    rank_close(&r);
    return hash;
}
