// Attention over a cache of keys and values, in every table: against the oracle; and, on the CPU,
// that it has the bits of attention over the whole sequence.
#include "kernels/cpu/cpu.h"
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

struct Shape {
    size_t b, t, nh, nkv, hs, capacity;
    int32_t past[3]; // of each sequence
    size_t window;
    bool other_dtype; // the cache's: bf16, or fp32 of a bf16 model
};

static void *starts_of(struct Run *r, size_t b, size_t t, const int32_t *past) {
    int32_t *starts = base_alloc(b * t * sizeof *starts);
    for (size_t i = 0; i < b * t; i++)
        starts[i] = -past[i / t];
    void *mem = input_bytes(r, b * t * sizeof *starts, starts);
    free(starts);
    return mem;
}

static void queue(struct Run *r, struct AttentionCached *a) {
    a->work = scratch(r, r->device->kernels->attention_cached_work(r->device, a));
    r->device->kernels->attention_cached(r->device->queue[QUEUE_COMPUTE], a);
}

// Probabilities are rounded where they are multiplied in pairs (test_kernels_attention.c).
static double slack_of(enum Dtype d, size_t keys) {
    double units = d == F32 ? 0 : dtype_unit(d) / 0x1p-24;
    return 64 + sqrt((double)keys) + units;
}

static void oracle_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    struct AttentionCached a = {.b = s->b,
                                .t = s->t,
                                .nh = s->nh,
                                .nkv = s->nkv,
                                .hs = s->hs,
                                .window = s->window,
                                .capacity = s->capacity,
                                .dtype = d};
    a.cache_dtype = !s->other_dtype ? d : d == BF16 ? F32 : BF16;
    a.starts = starts_of(r, s->b, s->t, s->past);
    a.qkv = input_random(r, d, s->b * s->t * (s->nh + 2 * s->nkv) * s->hs, 0, 1);
    a.cache = output_random(r, "cache", a.cache_dtype, 2 * s->b * s->nkv * s->capacity * s->hs, 0);
    a.out = output_poison(r, "out", d, s->b * s->t * s->nh * s->hs, slack_of(d, s->capacity));
    queue(r, &a);
}

TEST(the_oracle_has_the_same) {
    static const struct Shape shapes[] = {
        {1, 1, 1, 1, 1, 64, {0}, 0, false},
        {1, 1, 4, 2, 64, 64, {63}, 0, false},
        {1, 1, 4, 1, 64, 128, {64}, 0, false},
        {3, 1, 6, 3, 80, 192, {0, 65, 191}, 0, false},
        {2, 7, 6, 2, 9, 128, {60, 3}, 0, false},
        {1, 70, 9, 3, 64, 128, {0}, 0, false},
        {1, 33, 2, 2, 128, 256, {130}, 0, false},
        {1, 5, 2, 1, 256, 64, {11}, 0, false},
        {2, 1, 4, 4, 16, 64, {5, 50}, 0, true},
        {1, 40, 4, 2, 64, 64, {20}, 0, true},
        // Windows; positions take turns in the cache.
        {1, 1, 4, 2, 64, 192, {1000}, 100, false},
        {2, 3, 2, 1, 48, 128, {20, 333}, 30, false},
        {1, 80, 2, 1, 64, 256, {500}, 64, false},
        {1, 1, 1, 1, 64, 128, {64}, 1, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_check(*state, oracle_body, &shapes[i], true);
}

// ---- as attention over the whole ----

enum { PIECES = 3, SEQUENCES = 2 };
struct Whole {
    size_t piece[PIECES]; // rows that come together
    size_t nh, nkv, hs, window, capacity;
};

static size_t whole_rows(const struct Whole *s) {
    return s->piece[0] + s->piece[1] + s->piece[2];
}

static const float *values_of(size_t n) {
    float *x = base_alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = rng_normal(5, i);
    return x;
}

// Rows `from` to from + t of each sequence.
static void *piece_of(struct Run *r, enum Dtype d, const float *qkv, size_t row, size_t all,
                      size_t from, size_t t) {
    float *x = base_alloc(SEQUENCES * t * row * sizeof *x);
    for (size_t b = 0; b < SEQUENCES; b++)
        memcpy(x + b * t * row, qkv + (b * all + from) * row, t * row * sizeof *x);
    void *mem = input_values(r, d, SEQUENCES * t * row, x);
    free(x);
    return mem;
}

static void queue_whole(struct Run *r, enum Dtype d, const struct Whole *s, const float *qkv) {
    size_t t = whole_rows(s), n = SEQUENCES * t;
    int32_t *first = base_alloc(n * sizeof *first);
    for (size_t i = 0; i < n; i++)
        first[i] = (int32_t)(s->window && i % t >= s->window ? i % t + 1 - s->window : 0);
    struct AttentionForward a = {.b = SEQUENCES,
                                 .t = t,
                                 .nh = s->nh,
                                 .nkv = s->nkv,
                                 .hs = s->hs,
                                 .window = s->window,
                                 .dtype = d};
    a.qkv = input_values(r, d, n * (s->nh + 2 * s->nkv) * s->hs, qkv);
    a.first = s->window ? input_bytes(r, n * sizeof *first, first) : NULL;
    a.out = output_poison(r, "whole", d, n * s->nh * s->hs, 0);
    a.lse = output_poison(r, "lse", F32, n * s->nh, 0);
    a.work = scratch(r, r->device->kernels->attention_forward_work(r->device, &a));
    r->device->kernels->attention_forward(r->device->queue[QUEUE_COMPUTE], &a);
    free(first);
}

static void compare_pieces(const struct Run *r, enum Dtype d, const struct Whole *s) {
    static const char *const names[PIECES] = {"out 0", "out 1", "out 2"};
    size_t all = whole_rows(s), bytes = s->nh * s->hs * dtype_size(d), from = 0;
    const char *whole = run_result(r, "whole");
    for (size_t i = 0; i < PIECES; from += s->piece[i++]) {
        const char *out = run_result(r, names[i]);
        for (size_t b = 0; b < SEQUENCES; b++)
            for (size_t t = 0; t < s->piece[i]; t++)
                if (memcmp(out + (b * s->piece[i] + t) * bytes,
                           whole + (b * all + from + t) * bytes, bytes) != 0)
                    fail_msg("%s, %s: position %zu of sequence %zu, in piece %zu, differs from "
                             "attention over the whole",
                             r->device->kernels->name, dtype_name(d), from + t, b, i);
    }
}

static void whole_body(struct Run *r, enum Dtype d, const void *shape) {
    static const char *const names[PIECES] = {"out 0", "out 1", "out 2"};
    const struct Whole *s = shape;
    const char *table = r->device->kernels->name;
    if (!strcmp(table, "oracle") || !strcmp(table, "cuda"))
        return; // the order of their sums is another
    size_t all = whole_rows(s), row = (s->nh + 2 * s->nkv) * s->hs, from = 0;
    const float *qkv = values_of(SEQUENCES * all * row);
    queue_whole(r, d, s, qkv);
    void *cache = output_poison(r, "cache", d, 2 * SEQUENCES * s->nkv * s->capacity * s->hs, 0);
    for (size_t i = 0; i < PIECES; from += s->piece[i++]) {
        const int32_t past[SEQUENCES] = {(int32_t)from, (int32_t)from};
        struct AttentionCached a = {.b = SEQUENCES,
                                    .t = s->piece[i],
                                    .nh = s->nh,
                                    .nkv = s->nkv,
                                    .hs = s->hs,
                                    .window = s->window,
                                    .capacity = s->capacity,
                                    .dtype = d,
                                    .cache_dtype = d};
        a.starts = starts_of(r, SEQUENCES, s->piece[i], past);
        a.qkv = piece_of(r, d, qkv, row, all, from, s->piece[i]);
        a.out = output_poison(r, names[i], d, SEQUENCES * s->piece[i] * s->nh * s->hs, 0);
        a.cache = cache;
        queue(r, &a);
    }
    run_finish(r);
    compare_pieces(r, d, s);
    free((void *)qkv);
}

TEST(it_has_the_bits_of_attention_over_the_whole) {
    static const struct Whole shapes[] = {
        {{1, 1, 1}, 1, 1, 64, 0, 64},      {{70, 1, 1}, 6, 2, 64, 0, 128},
        {{63, 1, 1}, 9, 3, 64, 0, 128},    {{17, 61, 1}, 4, 4, 80, 0, 128},
        {{64, 129, 1}, 4, 2, 9, 0, 256},   {{200, 1, 66}, 2, 1, 128, 0, 320},
        {{130, 1, 1}, 6, 2, 64, 50, 256},  {{100, 130, 1}, 2, 1, 64, 64, 256},
        {{300, 1, 40}, 3, 1, 48, 65, 448},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_each(*state, whole_body, &shapes[i]);
}

AROUND_ALL(rig_setup, rig_teardown);
