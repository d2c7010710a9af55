// See tiny.h.
#include "tests/tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
// cmocka.h wants the headers above it.
#include <cmocka.h>

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
        .threads = 2,
        .device_bytes = SIZE_MAX,
        .prefetch = 1,
        .ranks = 1,
    };
    struct Error e;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    return s;
}

void tiny_open(struct Rank *r, const struct RankSettings *s, uint64_t seed) {
    struct Error e = {{0}};
    if (rank_open(r, s, false, &e))
        fail_msg("%s", e.text);
    zero_init_weights(&r->zero, seed);
}

static void send_tokens(struct Rank *r, uint64_t key) {
    int32_t *inputs = feed_host(&r->feed), *targets = inputs + r->feed.tokens;
    for (size_t i = 0; i < acts_rows(&r->acts); i++) {
        inputs[i] = (int32_t)(rng_bits(key, i) % r->model.config.vocab);
        targets[i] = (int32_t)(rng_bits(key, i + 1) % r->model.config.vocab);
    }
    feed_send(&r->feed);
}

struct TinyStep tiny_step(struct Rank *r) {
    struct LrSchedule schedule = {.kind = SCHEDULE_CONSTANT, .lr = 1e-3};
    struct AdamSettings adam = {0.9, 0.95, 1e-8, 0.1, 1};
    struct StepState settings = schedule_step(&schedule, &adam, r->zero.step);
    size_t nmicro = r->zero.plan.nmicro, rows = acts_rows(&r->acts);
    for (size_t micro = 0; micro < nmicro; micro++) {
        send_tokens(r, r->zero.step * nmicro + micro);
        rank_take_batch(r);
        r->acts.dloss = 1.0f / (float)(rows * nmicro);
        zero_step_micro(&r->zero, &r->acts);
        feed_done(&r->feed);
    }
    zero_step_end(&r->zero, &settings, false);
    struct StepResult result = zero_step_wait(&r->zero);
    return (struct TinyStep){result.loss_sum / (double)(rows * nmicro), result.grad_norm,
                             result.skipped};
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
