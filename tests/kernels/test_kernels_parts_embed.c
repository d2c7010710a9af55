// The embedding of a vocabulary that lies on several ranks, in every table: each part against the
// oracle, and all parts together against one rank that has the whole, whose bits they have: the
// lookups where they are added up, the gradients row by row.
#include "tests/kernels/parts.h"
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

static const char *const out_of[MAX_PARTS] = {"out 0", "out 1", "out 2", "out 3"};
static const char *const dwte_of[MAX_PARTS] = {"dwte 0", "dwte 1", "dwte 2", "dwte 3"};
static const char *const dwpe_of[MAX_PARTS] = {"dwpe 0", "dwpe 1", "dwpe 2", "dwpe 3"};

struct Embed {
    struct Split split;
    size_t b, t, c;
    size_t distinct; // tokens are among so many, evenly spread
    bool accumulate, grad_fp32, no_positions;
};

static const struct Embed embeds[] = {
    {{50, 1, 64}, 3, 17, 36, 12, false, false, false},
    {{50, 2, 1}, 3, 17, 36, 12, true, false, false},
    {{211, 2, 64}, 2, 64, 128, 211, true, true, false},
    {{50257, 3, 64}, 1, 17, 7, 16, false, true, false},
    {{100, 3, 64}, 2, 65, 8, 50, false, false, true}, // the third part has no token
    {{256, 4, 64}, 12, 64, 33, 60, false, false, false},
    {{300, 4, 1}, 3, 1000, 40, 300, false, true, false}, // many tiles of a GPU's sort
    {{300, 3, 64}, 3, 1000, 33, 7, true, false, false},  // whose sums they cut
    {{300, 2, 64}, 3, 1000, 36, 1, true, true, true},    // and one token nearly everywhere
};
enum { NEMBEDS = sizeof embeds / sizeof embeds[0] };

static const int32_t *input_tokens(struct Run *r, const struct Embed *s) {
    size_t n = s->b * s->t, step = s->split.v / s->distinct;
    int32_t *tokens = base_alloc(n * sizeof *tokens);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(rng_bits(5, i) % s->distinct * step);
    tokens[n - 1] = (int32_t)s->split.v - 1;
    const int32_t *mem = input_bytes(r, n * sizeof *tokens, tokens);
    free(tokens);
    return mem;
}

// Rows begin .. begin + n - 1 of a matrix that is the same whoever has which of them.
static float *rows_of(const struct Embed *s, size_t begin, size_t n) {
    float *x = base_alloc(n * s->c * sizeof *x);
    for (size_t i = 0; i < n * s->c; i++)
        x[i] = rng_normal(11, begin * s->c + i);
    return x;
}

// One rank's lookup, of v rows from `first` on: positions are added by whoever has row 0.
static void queue_lookup(struct Run *r, enum Dtype d, const struct Embed *s, const char *name,
                         const int32_t *tokens, size_t first, size_t v) {
    struct EmbedForward a = {s->b, s->t, s->c, v, first, d, .tokens = tokens};
    float *wte = rows_of(s, first, v), *wpe = rows_of(s, 1 << 20, s->t);
    a.wte = input_values(r, d, v * s->c, wte);
    a.wpe = first || s->no_positions ? NULL : input_values(r, d, s->t * s->c, wpe);
    a.out = output_poison(r, name, d, s->b * s->t * s->c, 0);
    r->device->kernels->embed_forward(compute(r), &a);
    free(wte);
    free(wpe);
}

static void lookups_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Embed *s = shape;
    const int32_t *tokens = input_tokens(r, s);
    for (size_t p = 0; p < s->split.parts; p++)
        queue_lookup(r, d, s, out_of[p], tokens, p * vp_of(&s->split), vp_of(&s->split));
}

static const float *input_dout(struct Run *r, enum Dtype d, const struct Embed *s) {
    float *x = rows_of(s, 1 << 21, s->b * s->t);
    const float *mem = input_values(r, d, s->b * s->t * s->c, x);
    free(x);
    return mem;
}

static void queue_gradient(struct Run *r, const struct Embed *s, struct EmbedBackward *a,
                           const char *dwte, const char *dwpe) {
    double places = (double)(s->b * s->t) / (double)s->distinct; // that a token stands in
    float *x = rows_of(s, a->first_token, a->v), *y = rows_of(s, 1 << 22, s->t);
    a->dwte = output_values(r, dwte, a->grad_dtype, a->v * s->c, 4 + sqrt(places), x);
    if (!s->no_positions)
        a->dwpe = output_values(r, dwpe, a->grad_dtype, s->t * s->c, 4, y);
    a->work = scratch(r, r->device->kernels->embed_backward_work(r->device, a));
    r->device->kernels->embed_backward(compute(r), a);
    free(x);
    free(y);
}

static struct EmbedBackward gradient_of(struct Run *r, enum Dtype d, const struct Embed *s) {
    struct EmbedBackward a = {.b = s->b, .t = s->t, .c = s->c, .dtype = d};
    a.grad_dtype = s->grad_fp32 ? F32 : d;
    a.accumulate = s->accumulate;
    a.tokens = input_tokens(r, s);
    a.dout = input_dout(r, d, s);
    return a;
}

static void gradients_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Embed *s = shape;
    struct EmbedBackward a = gradient_of(r, d, s);
    a.v = vp_of(&s->split);
    for (size_t p = 0; p < s->split.parts; p++) {
        a.first_token = p * a.v;
        queue_gradient(r, s, &a, dwte_of[p], dwpe_of[p]);
    }
}

TEST(embedding_parts_are_the_oracles) {
    for (size_t i = 0; i < NEMBEDS; i++) {
        rig_check(*state, lookups_body, &embeds[i], true);
        rig_check(*state, gradients_body, &embeds[i], true);
    }
}

// Added in fp32 in the order of the parts and rounded once, as an all_reduce does.
static void check_lookups(const struct Run *parts, const struct Run *whole, enum Dtype d,
                          const struct Embed *s) {
    for (size_t i = 0; i < s->b * s->t * s->c; i++) {
        float sum = 0, want = dtype_load(run_result(whole, "out 0"), d, i);
        for (size_t p = 0; p < s->split.parts; p++)
            sum += dtype_load(run_result(parts, out_of[p]), d, i);
        if (dtype_bits(d, sum) != dtype_bits(d, want))
            fail_msg("%s %s: out[%zu] is %g of %zu parts, and %g of the whole",
                     parts->device->kernels->name, dtype_name(d), i, sum, s->split.parts, want);
    }
}

static void check_rows(const struct Run *parts, const struct Run *whole, enum Dtype d,
                       const struct Embed *s) {
    enum Dtype g = s->grad_fp32 ? F32 : d;
    size_t bytes = vp_of(&s->split) * s->c * dtype_size(g), dwpe = s->t * s->c * dtype_size(g);
    for (size_t p = 0; p < s->split.parts; p++) {
        const char *want = (const char *)run_result(whole, "dwte 0") + p * bytes;
        if (memcmp(run_result(parts, dwte_of[p]), want, bytes) != 0)
            fail_msg("%s %s: dwte of part %zu of %zu has other bits than the whole's rows",
                     parts->device->kernels->name, dtype_name(d), p, s->split.parts);
        if (!s->no_positions &&
            memcmp(run_result(parts, dwpe_of[p]), run_result(whole, "dwpe 0"), dwpe) != 0)
            fail_msg("%s %s: dwpe of part %zu of %zu has other bits than the whole's",
                     parts->device->kernels->name, dtype_name(d), p, s->split.parts);
    }
}

// On one table: forward, then backward, of the whole and of its parts.
static void check_embedding(struct Device *device, enum Dtype d, const struct Embed *s) {
    struct Embed one = *s; // part, as large as all of them
    one.split.parts = 1;
    one.split.unit = vp_of(&s->split) * s->split.parts;
    for (int backward = 0; backward < 2; backward++) {
        RigBody *body = backward ? gradients_body : lookups_body;
        struct Run whole, parts;
        run_init(&whole, device, true);
        run_init(&parts, device, true);
        body(&whole, d, &one);
        body(&parts, d, s);
        run_finish(&whole);
        run_finish(&parts);
        (backward ? check_rows : check_lookups)(&parts, &whole, d, s);
        run_close(&whole);
        run_close(&parts);
    }
}

TEST(embedding_parts_have_the_bits_of_the_whole) {
    const struct Rig *rig = *state;
    for (size_t i = 0; i < NEMBEDS; i++)
        for (int table = 0; table < rig->ntable; table++)
            for (enum Dtype d = F32; d < NDTYPE; d++)
                check_embedding(rig->device[table][1], d, &embeds[i]);
}

AROUND_ALL(rig_setup, rig_teardown);
