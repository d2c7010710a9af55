// A sequence that goes through attention, forward and backward, and which of its results are to
// have the same bits in two runs.
//
// Used by test_kernels_seen.c and test_kernels_sparse.c.
#ifndef TESTS_KERNELS_SEEN_CASE_H
#define TESTS_KERNELS_SEEN_CASE_H
#include "tests/kernels/first.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The operands of both passes. first: (T), or NULL. layout: whose lists lie in the host's memory,
// of so many bytes; begin NULL: none.
struct Case {
    size_t t, nh, nkv, hs;
    const int32_t *first;
    float *qkv, *dout;
    struct Layout layout;
    size_t layout_bytes;
};

static inline size_t qkv_size(const struct Case *c) {
    return c->t * (c->nh + 2 * c->nkv) * c->hs;
}
static inline size_t out_size(const struct Case *c) {
    return c->t * c->nh * c->hs;
}

static inline struct Case case_of(size_t t, size_t nh, size_t nkv, size_t hs,
                                  const int32_t *first) {
    struct Case c = {.t = t, .nh = nh, .nkv = nkv, .hs = hs, .first = first};
    c.qkv = base_alloc(qkv_size(&c) * sizeof *c.qkv);
    c.dout = base_alloc(out_size(&c) * sizeof *c.dout);
    for (size_t i = 0; i < qkv_size(&c); i++)
        c.qkv[i] = rng_normal(1, i);
    for (size_t i = 0; i < out_size(&c); i++)
        c.dout[i] = rng_normal(2, i);
    return c;
}

static inline void case_free(struct Case *c) {
    free(c->qkv);
    free(c->dout);
}

// Sets key and value of time `time`, of all key heads.
static inline void case_set_key(struct Case *c, size_t time, float key, float value) {
    size_t n = c->nkv * c->hs;
    float *at = c->qkv + (time * (c->nh + 2 * c->nkv) + c->nh) * c->hs;
    for (size_t i = 0; i < n; i++) {
        at[i] = key;
        at[n + i] = value;
    }
}

// Queries of 0, which weigh all that they see alike, so that results count keys: keys and values
// are 1 from time `begin` to `end` alone, and one element of each head's output counts.
static inline void case_set_visits(struct Case *c, size_t begin, size_t end) {
    memset(c->qkv, 0, qkv_size(c) * sizeof *c->qkv);
    memset(c->dout, 0, out_size(c) * sizeof *c->dout);
    for (size_t i = begin; i < size_min(c->t, end); i++)
        case_set_key(c, i, 1, 1);
    for (size_t i = 0; i < out_size(c); i += c->hs)
        c->dout[i] = 1;
}

// size: of the largest term of the difference that it is.
static inline void expect_near(const struct Run *r, enum Dtype d, const char *what, size_t i,
                               double is, double want, double size) {
    double slack = d == F32 ? 1e-5 : 1.6e-2;
    if (!(fabs(is - want) <= slack * size))
        fail_msg("%s %s: %s of time %zu is %g; visited once each, tiles make it %g",
                 r->device->kernels->name, dtype_name(d), what, i, is, want);
}

// How far results may lie from the oracle's (output_poison).
struct Slack {
    double out, lse, dqkv;
};

// Both passes, the backward one from what the forward one made.
static inline void queue_case(struct Run *r, enum Dtype d, const struct Case *c,
                              struct Slack slack) {
    struct Device *device = r->device;
    const struct Kernels *k = device->kernels;
    struct Stream *queue = device->queue[QUEUE_COMPUTE];
    struct AttentionForward f = {.b = 1, .t = c->t, .nh = c->nh, .nkv = c->nkv, .hs = c->hs};
    f.dtype = d;
    f.first = c->first ? input_bytes(r, c->t * sizeof *c->first, c->first) : NULL;
    f.layout = c->layout;
    if (c->layout.begin)
        f.layout.begin = input_bytes(r, c->layout_bytes, c->layout.begin);
    f.qkv = input_values(r, d, qkv_size(c), c->qkv);
    f.out = output_poison(r, "out", d, out_size(c), slack.out);
    f.lse = output_poison(r, "lse", F32, c->nh * c->t, slack.lse);
    f.work = scratch(r, k->attention_forward_work(device, &f));
    k->attention_forward(queue, &f);
    struct AttentionBackward a = {.b = 1, .t = c->t, .nh = c->nh, .nkv = c->nkv, .hs = c->hs};
    a.dtype = d;
    a.first = f.first;
    a.layout = f.layout;
    a.qkv = f.qkv;
    a.out = f.out;
    a.lse = f.lse;
    a.dout = input_values(r, d, out_size(c), c->dout);
    a.dqkv = output_poison(r, "dqkv", d, qkv_size(c), slack.dqkv);
    a.work = scratch(r, k->attention_backward_work(device, &a));
    k->attention_backward(queue, &a);
}

static inline void run_case(struct Run *r, struct Device *device, bool skew, enum Dtype d,
                            const struct Case *c) {
    run_init(r, device, skew);
    queue_case(r, d, c, (struct Slack){0, 0, 0});
    run_finish(r);
}

// The second run of a comparison: a GPU's threads take their turns in another order. The simulator
// looks for races in the first (tests/cusim/shared.cc), and takes half the time without.
static inline void run_reversed(struct Run *r, struct Device *device, bool skew, enum Dtype d,
                                const struct Case *c) {
    rig_set_order(1);
    run_case(r, device, skew, d, c);
    rig_set_order(0);
}

// Which results of a time must have the same bits in two runs of one case.
struct Same {
    bool query, key; // out, lse and dq; dk and dv
};

static inline void expect_same(const struct Run *one, const struct Run *two, enum Dtype d,
                               const struct Case *c, const struct Same *same, const char *what) {
    size_t size = dtype_size(d), queries = c->nh * c->hs, vectors = queries + 2 * c->nkv * c->hs;
    for (size_t i = 0; i < c->t; i++) {
        const char *name = one->device->kernels->name;
#define DIFFERS(output, at, n)                                                                     \
    memcmp((const char *)run_result(one, output) + (at),                                           \
           (const char *)run_result(two, output) + (at), (n)) != 0
        bool lse = false;
        for (size_t h = 0; h < c->nh; h++)
            lse |= DIFFERS("lse", (h * c->t + i) * sizeof(float), sizeof(float));
        if (same[i].query && (lse || DIFFERS("out", i * queries * size, queries * size)))
            fail_msg("%s %s, hs %zu: %s: query %zu has another output", name, dtype_name(d), c->hs,
                     what, i);
        if (same[i].query && DIFFERS("dqkv", i * vectors * size, queries * size))
            fail_msg("%s %s, hs %zu: %s: query %zu has another gradient", name, dtype_name(d),
                     c->hs, what, i);
        if (same[i].key &&
            DIFFERS("dqkv", (i * vectors + queries) * size, (vectors - queries) * size))
            fail_msg("%s %s, hs %zu: %s: key %zu has another gradient", name, dtype_name(d), c->hs,
                     what, i);
#undef DIFFERS
    }
}

// body on every table, in all dtypes, aligned and not.
static inline void each(const struct Rig *rig,
                        void (*body)(struct Device *, bool, enum Dtype, void *), void *context) {
    for (int i = 0; i < rig->ntable; i++)
        for (enum Dtype d = F32; d < NDTYPE; d++)
            for (int skew = 0; skew < 2; skew++)
                body(rig->device[i][1], skew, d, context);
}

static inline struct Same *same_all(bool query, bool key) {
    static struct Same same[512];
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        same[i] = (struct Same){query, key};
    return same;
}

// As large as fp16 can store it; the sums of its products are finite in fp32.
static inline float huge(enum Dtype d) {
    return d == F16 ? 6e4f : 1e30f;
}

#endif
