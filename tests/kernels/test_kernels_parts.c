// The classifier of a vocabulary that lies on several ranks, in every table: each of its halves
// against the oracle, what a part knows of a row against the formula, and all parts together
// against the oracle's Classifier of the whole. The embedding is test_kernels_parts_embed.c's.
#include "tests/kernels/parts.h"
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

static const char *const logits_of[MAX_PARTS] = {"logits 0", "logits 1", "logits 2", "logits 3"};
static const char *const loss_of[MAX_PARTS] = {"loss 0", "loss 1", "loss 2", "loss 3"};

struct Shape {
    struct Split split;
    size_t rows, every; // row i counts where i % every is 0
    float scale, lean;  // standard deviation of the logits; the mean of each part more than before
    bool backward;
    float loss_scale; // 0: none given
};

static const struct Shape shapes[] = {
    {{211, 1, 64}, 5, 1, 1, 0, true, 0},
    {{50257, 1, 64}, 2, 1, 2, 0, true, 1024},
    {{211, 1, 1}, 5, 2, 2, 0, false, 0},
    {{211, 2, 64}, 5, 1, 1, 0, true, 0},
    {{211, 2, 64}, 300, 3, 1, 0, false, 0}, // more rows than a block of threads
    {{50257, 3, 64}, 3, 1, 2, 0, true, 65536},
    {{50257, 3, 64}, 3, 2, 2, 0, false, 0},
    {{100, 3, 64}, 4, 1, 1, 0, true, 128}, // the third part has no token
    {{65, 4, 64}, 5, 2, 1, 5, true, 0},    // and one token in the second, none in the others
    {{130, 4, 1}, 7, 3, 3, 0, true, 0},    // no whole packs
    {{501, 4, 64}, 6, 1, 1, 300, true, 0}, // only the last part's logits are more than nothing
    {{501, 4, 64}, 6, 1, 1, -300, true, 8},
    {{300, 3, 64}, 4, 1, 5000, 0, true, 0},
    // A CUDA block's rounds: 256 threads with packs of 8, three at a time, and one element more.
    {{12297, 2, 8}, 3, 1, 2, 0, true, 0},
};
enum { NSHAPES = sizeof shapes / sizeof shapes[0] };

static const int32_t *input_targets(struct Run *r, const struct Shape *s) {
    int32_t *targets = base_alloc(s->rows * sizeof *targets);
    for (size_t i = 0; i < s->rows; i++)
        targets[i] = i % s->every ? UNCOUNTED : (int32_t)(rng_bits(6, i) % s->split.v);
    targets[0] = (int32_t)s->split.v - 1;
    const int32_t *mem = input_bytes(r, s->rows * sizeof *targets, targets);
    free(targets);
    return mem;
}

// What is in the padding must not count: it is larger than all.
static float logit_at(const struct Shape *s, size_t row, size_t token) {
    size_t part = token / vp_of(&s->split);
    if (token >= s->split.v)
        return 30000;
    return s->scale * rng_normal(7, row * 99991 + token) + s->lean * (float)part;
}

// Those of columns begin .. begin + n - 1, as an output.
static void *output_logits(struct Run *r, const char *name, enum Dtype d, const struct Shape *s,
                           size_t begin, size_t n) {
    float *x = base_alloc(s->rows * n * sizeof *x);
    for (size_t i = 0; i < s->rows * n; i++)
        x[i] = logit_at(s, i / n, begin + i % n);
    double slack = 16 * (1 + (double)s->scale);
    void *mem = output_values(r, name, d, s->rows * n, slack, x);
    free(x);
    return mem;
}

static const float *input_loss_scale(struct Run *r, const struct Shape *s) {
    return s->loss_scale > 0 ? input_values(r, F32, 1, &s->loss_scale) : NULL;
}

static float dloss_of(const struct Shape *s) {
    return 1.0f / (float)s->rows;
}

static void parts_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    size_t vp = vp_of(&s->split), parts = s->split.parts;
    const int32_t *targets = input_targets(r, s);
    struct SoftmaxPart *all = output_bytes(r, "all", parts * s->rows * sizeof *all, NULL);
    void *logits[MAX_PARTS];
    for (size_t p = 0; p < parts; p++) {
        logits[p] = output_logits(r, logits_of[p], d, s, p * vp, vp);
        struct ClassifierPart a = {s->rows, tokens_in(&s->split, p), vp, p * vp, d, logits[p],
                                   targets, all + p * s->rows};
        r->device->kernels->classifier_part(compute(r), &a);
    }
    const float *loss_scale = input_loss_scale(r, s);
    for (size_t p = 0; p < parts; p++) {
        struct ClassifierMerge a = {s->rows, tokens_in(&s->split, p), vp, .parts = parts,
                                    .dtype = d};
        a.first_token = p * vp;
        a.logits = logits[p];
        a.targets = targets;
        a.all = all;
        a.loss = output_poison(r, loss_of[p], F32, s->rows, 32);
        a.loss_scale = loss_scale;
        a.dloss = dloss_of(s);
        a.backward = s->backward;
        r->device->kernels->classifier_merge(compute(r), &a);
    }
}

static void whole_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    size_t vp = vp_of(&s->split) * s->split.parts;
    struct Classifier a = {.rows = s->rows, .v = s->split.v, .vp = vp, .dtype = d};
    a.targets = input_targets(r, s);
    a.logits = output_logits(r, "logits", d, s, 0, vp);
    a.loss = output_poison(r, "loss", F32, s->rows, 32);
    a.loss_scale = input_loss_scale(r, s);
    a.dloss = dloss_of(s);
    a.backward = s->backward;
    r->device->kernels->classifier(compute(r), &a);
}

TEST(parts_are_the_oracles) {
    for (size_t i = 0; i < NSHAPES; i++)
        rig_check(*state, parts_body, &shapes[i], true);
}

// Of one part and one row, by the formula.
static void check_knowledge(const struct Run *r, enum Dtype d, const struct Shape *s, size_t part,
                            size_t row) {
    const struct SoftmaxPart *got =
        (const struct SoftmaxPart *)run_result(r, "all") + part * s->rows + row;
    size_t begin = part * vp_of(&s->split), n = tokens_in(&s->split, part);
    size_t target = row ? rng_bits(6, row) % s->split.v : s->split.v - 1;
    bool counts = row % s->every == 0;
    float max = -INFINITY;
    double sum = 0;
    for (size_t i = 0; counts && i < n; i++)
        max = fmaxf(max, stored(d, logit_at(s, row, begin + i)));
    for (size_t i = 0; counts && i < n; i++)
        sum += exp((double)stored(d, logit_at(s, row, begin + i)) - (double)max);
    bool mine = counts && target >= begin && target < begin + n;
    float at = mine ? stored(d, logit_at(s, row, target)) : -INFINITY;
    if (got->max != max || got->target != at || !(fabs(got->sum - sum) <= 0x1p-18 * sum))
        fail_msg("%s %s: row %zu of part %zu: maximum %g, should be %g; target %g, should be %g; "
                 "sum %.9g, should be %.9g",
                 r->device->kernels->name, dtype_name(d), row, part, got->max, max, got->target, at,
                 got->sum, sum);
}

static void knowledge_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    parts_body(r, d, s);
    run_finish(r);
    for (size_t part = 0; part < s->split.parts; part++)
        for (size_t row = 0; row < s->rows; row++)
            check_knowledge(r, d, s, part, row);
}

TEST(parts_know_what_the_formula_says) {
    for (size_t i = 0; i < NSHAPES; i++)
        rig_each(*state, knowledge_body, &shapes[i]);
}

// All parts' losses have the same bits, and are near the whole's.
static void check_losses(const struct Run *parts, const struct Run *whole, const struct Shape *s) {
    const float *want = run_result(whole, "loss"), *first = run_result(parts, loss_of[0]);
    for (size_t p = 1; p < s->split.parts; p++)
        if (memcmp(run_result(parts, loss_of[p]), first, s->rows * sizeof *first) != 0)
            fail_msg("%s: part %zu has other losses than part 0", parts->device->kernels->name, p);
    for (size_t i = 0; i < s->rows; i++)
        if (!(fabsf(first[i] - want[i]) <= 0x1p-20f * (1 + fabsf(want[i]))))
            fail_msg("%s: loss %zu is %.9g of %zu parts, and %.9g of the whole",
                     parts->device->kernels->name, i, first[i], s->split.parts, want[i]);
}

// Each gradient against the whole's, and their sum over a row, which is softmax's less one: 0.
static void check_gradients(const struct Run *parts, const struct Run *whole, enum Dtype d,
                            const struct Shape *s) {
    size_t vp = vp_of(&s->split), n = vp * s->split.parts;
    double unit = dloss_of(s) * (s->loss_scale > 0 ? (double)s->loss_scale : 1);
    const void *want = run_result(whole, "logits");
    for (size_t i = 0; i < s->rows; i++) {
        double sum = 0;
        for (size_t j = 0; j < n; j++) {
            double is = dtype_load(want, d, i * n + j);
            double got = dtype_load(run_result(parts, logits_of[j / vp]), d, i * vp + j % vp);
            double limit = (d == F32 ? 0x1p-16 : 2 * dtype_unit(d)) * fabs(is) +
                           2.2 * dtype_least(d) + 8 * 0x1p-24 * unit;
            if (!(fabs(got - is) <= limit))
                fail_msg("%s %s: dlogits[%zu][%zu] is %.9g of %zu parts, and %.9g of the whole",
                         parts->device->kernels->name, dtype_name(d), i, j, got, s->split.parts,
                         is);
            sum += got;
        }
        if (d == F32 && !(fabs(sum) <= 1e-5 * unit))
            fail_msg("%s: the gradients of row %zu add up to %g", parts->device->kernels->name, i,
                     sum);
    }
}

static void check_together(const struct Rig *rig, int table, enum Dtype d, const struct Shape *s) {
    struct Run whole, parts;
    run_init(&whole, rig->device[0][0], true);
    run_init(&parts, rig->device[table][0], true);
    whole_body(&whole, d, s);
    parts_body(&parts, d, s);
    run_finish(&whole);
    run_finish(&parts);
    check_losses(&parts, &whole, s);
    if (s->backward)
        check_gradients(&parts, &whole, d, s);
    run_close(&whole);
    run_close(&parts);
}

TEST(parts_together_are_the_classifier) {
    const struct Rig *rig = *state;
    for (size_t i = 0; i < NSHAPES; i++)
        for (int table = 0; table < rig->ntable; table++)
            for (enum Dtype d = F32; d < NDTYPE; d++)
                check_together(rig, table, d, &shapes[i]);
}

// Row 0 has a NaN in the second part; in row 1 all that the second part has is -inf; row 2 is as
// usual. All targets are in the first part.
static void no_numbers_body(struct Run *r, enum Dtype d, const void *unused) {
    (void)unused;
    enum { N = 64, ROWS = 3 };
    static const int32_t targets[ROWS] = {1, 2, 3};
    const int32_t *mem = input_bytes(r, sizeof targets, targets);
    struct SoftmaxPart *all = output_bytes(r, "all", 2 * ROWS * sizeof *all, NULL);
    void *logits[2];
    for (size_t p = 0; p < 2; p++) {
        float x[ROWS * N];
        for (size_t i = 0; i < ROWS * N; i++)
            x[i] = p == 1 && i / N == 1 ? -INFINITY : p == 1 && i == 7 ? NAN : (float)(i % 5);
        logits[p] = output_values(r, logits_of[p], d, ROWS * N, 0, x);
        struct ClassifierPart a = {ROWS, N, N, p * N, d, logits[p], mem, all + p * ROWS};
        r->device->kernels->classifier_part(compute(r), &a);
    }
    for (size_t p = 0; p < 2; p++) {
        float *loss = output_poison(r, loss_of[p], F32, ROWS, 0);
        struct ClassifierMerge a = {ROWS, N,   N,    p * N, 2, d,   logits[p],
                                    mem,  all, loss, NULL,  1, true};
        r->device->kernels->classifier_merge(compute(r), &a);
    }
    run_finish(r);
    for (size_t p = 0; p < 2; p++) {
        const float *loss = run_result(r, loss_of[p]);
        if (!isnan(loss[0]) || !isfinite(loss[1]) || !isfinite(loss[2]))
            fail_msg("%s %s: losses %g, %g, %g in part %zu", r->device->kernels->name,
                     dtype_name(d), loss[0], loss[1], loss[2], p);
        for (size_t i = N; i < ROWS * N; i++)
            if (!isfinite(dtype_load(run_result(r, logits_of[p]), d, i)))
                fail_msg("%s %s: gradient %zu of part %zu is no number", r->device->kernels->name,
                         dtype_name(d), i, p);
    }
}

TEST(no_numbers_reach_all_parts_and_no_more) {
    rig_each(*state, no_numbers_body, NULL);
}

AROUND_ALL(rig_setup, rig_teardown);
