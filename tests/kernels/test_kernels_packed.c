// What packed and masked batches ask of kernels, in every table: targets that do not count, and
// positions that begin anew with each document. Against the oracle, and the oracle against what
// must be: a row that does not count leaves nothing, whatever is in it; a document in the middle of
// a sequence is computed bit for bit as one in a sequence of its own.
//
// Attention's share of it, the first key that a query sees, is test_kernels_seen.c's.
#include "tests/kernels/first.h"
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

// ---- targets that do not count ----

struct Masked {
    size_t rows, v, vp;
    size_t every; // row i counts where i % every is 0; 0: none does
    bool backward;
};

static bool counts(const struct Masked *s, size_t row) {
    return s->every && row % s->every == 0;
}

// The logits of rows that do not count are no numbers, and as large as can be.
static float logit_of(const struct Masked *s, size_t i) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    return counts(s, i / s->vp) ? 2 * rng_normal(7, i % 9973) : bad[i % 3];
}

static void masked_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Masked *s = shape;
    static const float scale = 1024;
    struct Classifier a = {.rows = s->rows, .v = s->v, .vp = s->vp, .dtype = d};
    int32_t *targets = base_alloc(s->rows * sizeof *targets);
    float *logits = base_alloc(s->rows * s->vp * sizeof *logits);
    for (size_t i = 0; i < s->rows; i++)
        targets[i] = counts(s, i) ? (int32_t)(rng_bits(6, i) % s->v) : UNCOUNTED;
    for (size_t i = 0; i < s->rows * s->vp; i++)
        logits[i] = logit_of(s, i);
    a.targets = input_bytes(r, s->rows * sizeof *targets, targets);
    a.logits = output_values(r, "logits", d, s->rows * s->vp, 32, logits);
    a.loss = output_poison(r, "loss", F32, s->rows, 32);
    a.dloss = 1.0f / (float)s->rows;
    a.loss_scale = input_values(r, F32, 1, &scale);
    a.backward = s->backward;
    r->device->kernels->classifier(compute(r), &a);
    free(targets);
    free(logits);
}

// Zeros without a sign where a row does not count; something where it does.
static void nothing_left_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Masked *s = shape;
    masked_body(r, d, shape);
    run_finish(r);
    const float *loss = run_result(r, "loss");
    const char *logits = run_result(r, "logits");
    size_t row_bytes = s->vp * dtype_size(d);
    static const char zeros[50304 * sizeof(float)];
    for (size_t i = 0; i < s->rows; i++) {
        bool zero = memcmp(logits + i * row_bytes, zeros, row_bytes) == 0;
        if (counts(s, i) ? !(loss[i] > 0) : memcmp(&loss[i], zeros, sizeof *loss) != 0)
            fail_msg("%s %s: loss %g of row %zu", r->device->kernels->name, dtype_name(d),
                     (double)loss[i], i);
        if (s->backward && zero == counts(s, i))
            fail_msg("%s %s: the gradient of row %zu is %s 0", r->device->kernels->name,
                     dtype_name(d), i, zero ? "all" : "not");
    }
}

TEST(masked_rows_leave_nothing) {
    static const struct Masked shapes[] = {
        {1, 211, 256, 0, true},   {5, 211, 256, 2, true},     {6, 211, 256, 3, false},
        {17, 129, 129, 5, true},  {2, 50257, 50304, 2, true}, {3, 9217, 9224, 2, false},
        {3, 9217, 9224, 0, true}, {5, 6151, 6151, 2, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_each(*state, nothing_left_body, &shapes[i]);
}

// Of finite logits, as a comparison of no numbers says nothing. Rows that count are as the oracle
// has them beside rows that do not.
static void plain_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Masked *s = shape;
    struct Classifier a = {.rows = s->rows, .v = s->v, .vp = s->vp, .dtype = d};
    int32_t *targets = base_alloc(s->rows * sizeof *targets);
    for (size_t i = 0; i < s->rows; i++)
        targets[i] = counts(s, i) ? (int32_t)(rng_bits(6, i) % s->v) : UNCOUNTED;
    a.targets = input_bytes(r, s->rows * sizeof *targets, targets);
    a.logits = output_random(r, "logits", d, s->rows * s->vp, 32);
    a.loss = output_poison(r, "loss", F32, s->rows, 32);
    a.dloss = 1;
    a.backward = s->backward;
    r->device->kernels->classifier(compute(r), &a);
    free(targets);
}

TEST(rows_beside_masked_ones_are_the_oracles) {
    static const struct Masked shapes[] = {
        {5, 211, 256, 2, true},     {17, 129, 129, 5, true},   {17, 3, 3, 2, true},
        {2, 50257, 50304, 2, true}, {3, 9217, 9224, 2, false}, {7, 9217, 9224, 3, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_check(*state, plain_body, &shapes[i], true);
}

// ---- positions of packed documents, against the oracle ----

struct Packed {
    size_t b, t, c, document; // tokens of one; the first of a sequence is cut (first.h)
    bool accumulate, grad_fp32;
};
enum { VOCAB = 50, EXTRA_POSITIONS = 3, NH = 3, NKV = 1, HEADS = NH + 2 * NKV };

static const int32_t *starts_of(struct Run *r, const struct Packed *s) {
    return input_pattern(r, &(struct Pattern){.document = s->document}, s->b, s->t);
}

static const int32_t *tokens_of(struct Run *r, size_t n) {
    int32_t *tokens = base_alloc(n * sizeof *tokens);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(rng_bits(5, i) % VOCAB);
    const int32_t *mem = input_bytes(r, n * sizeof *tokens, tokens);
    free(tokens);
    return mem;
}

static void embed_forward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Packed *s = shape;
    struct EmbedForward a = {.b = s->b, .t = s->t, .c = s->c, .v = VOCAB, .dtype = d};
    a.tokens = tokens_of(r, s->b * s->t);
    a.starts = starts_of(r, s);
    a.wte = input_random(r, d, VOCAB * s->c, 0, 1);
    a.wpe = input_random(r, d, (s->t + EXTRA_POSITIONS) * s->c, 0, 1);
    a.out = output_poison(r, "out", d, s->b * s->t * s->c, 0);
    r->device->kernels->embed_forward(compute(r), &a);
}

static void embed_backward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Packed *s = shape;
    size_t places = s->b * ceil_div(s->t, s->document); // that a position stands in
    struct EmbedBackward a = {.b = s->b, .t = s->t, .c = s->c, .v = VOCAB, .dtype = d};
    a.grad_dtype = s->grad_fp32 ? F32 : d;
    a.accumulate = s->accumulate;
    a.tokens = tokens_of(r, s->b * s->t);
    a.starts = starts_of(r, s);
    a.dout = input_random(r, d, s->b * s->t * s->c, 0, 1);
    a.dwte = output_random(r, "dwte", a.grad_dtype, VOCAB * s->c,
                           4 + sqrt((double)(s->b * s->t) / VOCAB));
    a.dwpe = output_random(r, "dwpe", a.grad_dtype, (s->t + EXTRA_POSITIONS) * s->c,
                           4 + sqrt((double)places));
    a.work = scratch(r, r->device->kernels->embed_backward_work(r->device, &a));
    r->device->kernels->embed_backward(compute(r), &a);
}

static const float *angles(struct Run *r, size_t t, size_t hs) {
    float *table = base_alloc(t * hs * sizeof *table);
    for (size_t i = 0; i < t * hs / 2; i++) {
        double angle =
            (double)(i / (hs / 2)) * pow(100, -2.0 * (double)(i % (hs / 2)) / (double)hs);
        table[2 * i] = (float)cos(angle);
        table[2 * i + 1] = (float)sin(angle);
    }
    const float *mem = input_values(r, F32, t * hs, table);
    free(table);
    return mem;
}

static void rotate_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Packed *s = shape;
    size_t hs = s->c, size = s->b * s->t * HEADS * hs;
    struct RotateForward f = {s->b, s->t, NH, NKV, hs, d, .eps = 1e-6f};
    f.starts = starts_of(r, s);
    f.table = angles(r, s->t, hs);
    f.q_norm = input_random(r, d, hs, 1, 0.3f);
    f.x = input_random(r, d, size, 0, 1);
    f.y = output_poison(r, "y", d, size, 4);
    r->device->kernels->rotate_forward(compute(r), &f);
    struct RotateBackward a = {s->b, s->t, NH, NKV, hs, d, F32, .eps = 1e-6f};
    a.starts = f.starts;
    a.table = f.table;
    a.q_norm = f.q_norm;
    a.x = f.x;
    a.dy = output_random(r, "dy", d, size, 8);
    a.dq_norm = output_poison(r, "dq_norm", F32, hs, 8 + 4 * sqrt((double)(s->b * s->t * NH)));
    a.work = scratch(r, r->device->kernels->rotate_backward_work(r->device, &a));
    r->device->kernels->rotate_backward(compute(r), &a);
}

TEST(positions_begin_anew_as_the_oracles) {
    static const struct Packed shapes[] = {
        {1, 1, 36, 1, false, false},   {3, 17, 36, 5, false, false}, {3, 17, 36, 5, true, false},
        {2, 64, 128, 9, true, true},   {2, 65, 8, 65, false, true}, // a document and a bit
        {3, 300, 40, 1, false, false}, // all at position 0: many tiles of one position, on a GPU
        {12, 64, 34, 7, true, false},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        rig_check(*state, embed_forward_body, &shapes[i], true);
        rig_check(*state, embed_backward_body, &shapes[i], true);
        rig_check(*state, rotate_body, &shapes[i], true);
    }
}

// ---- and against documents of their own ----

// DOCUMENTS of LENGTH tokens: one behind the other in a sequence, or each in its own.
enum { DOCUMENTS = 6, LENGTH = 7, C = 20, ROWS = DOCUMENTS * LENGTH };

struct Packing {
    size_t b, t;
    const int32_t *starts;
};

static struct Packing layout_of(struct Run *r, bool packed) {
    int32_t starts[ROWS];
    for (int32_t i = 0; i < ROWS; i++)
        starts[i] = i / LENGTH * LENGTH;
    const int32_t *mem = input_bytes(r, sizeof starts, starts);
    return packed ? (struct Packing){1, ROWS, mem} : (struct Packing){DOCUMENTS, LENGTH, NULL};
}

static void alone_body(struct Run *r, enum Dtype d, const void *packed) {
    struct Packing l = layout_of(r, *(const bool *)packed);
    const struct Kernels *k = r->device->kernels;
    const int32_t *tokens = tokens_of(r, ROWS);
    struct EmbedForward e = {l.b, l.t, C, VOCAB, 0, d, tokens, l.starts, .out = NULL};
    e.wte = input_random(r, d, VOCAB * C, 0, 1);
    e.wpe = input_random(r, d, ROWS * C, 0, 1);
    e.out = output_poison(r, "out", d, ROWS * C, 0);
    k->embed_forward(compute(r), &e);
    struct EmbedBackward eb = {l.b, l.t, C, VOCAB, 0, d, F32, tokens, l.starts, .accumulate = true};
    eb.dout = input_random(r, d, ROWS * C, 0, 1);
    eb.dwte = output_random(r, "dwte", F32, VOCAB * C, 4);
    eb.dwpe = output_random(r, "dwpe", F32, ROWS * C, 4);
    eb.work = scratch(r, k->embed_backward_work(r->device, &eb));
    k->embed_backward(compute(r), &eb);
    struct RotateForward f = {l.b, l.t, NH, NKV, C, d, l.starts, .y = NULL};
    f.table = angles(r, ROWS, C);
    f.x = input_random(r, d, ROWS * HEADS * C, 0, 1);
    f.y = output_poison(r, "y", d, ROWS * HEADS * C, 0);
    k->rotate_forward(compute(r), &f);
    struct RotateBackward b = {l.b, l.t, NH, NKV, C, d, d, l.starts, .table = f.table};
    b.dy = output_random(r, "dy", d, ROWS * HEADS * C, 0);
    b.work = scratch(r, k->rotate_backward_work(r->device, &b));
    k->rotate_backward(compute(r), &b);
    run_finish(r);
}

// Sums over rows have the same rows in another order on a GPU, so that they may differ by rounding.
static void expect_same(const struct Run *a, const struct Run *b, enum Dtype d) {
    static const char *const bits[] = {"out", "y", "dy"};
    const size_t n[] = {ROWS * C, ROWS * HEADS * C, ROWS * HEADS * C};
    const char *name = a->device->kernels->name;
    for (int i = 0; i < 3; i++)
        if (memcmp(run_result(a, bits[i]), run_result(b, bits[i]), n[i] * dtype_size(d)) != 0)
            fail_msg("%s %s: %s of packed documents has other bits", name, dtype_name(d), bits[i]);
    run_expect(b, "dwte", "the packed one", run_result(a, "dwte"), 8);
    run_expect(b, "dwpe", "the packed one", run_result(a, "dwpe"), 8);
}

TEST(documents_are_as_alone) {
    const struct Rig *rig = *state;
    for (int table = 0; table < rig->ntable; table++)
        for (enum Dtype d = F32; d < NDTYPE; d++) {
            struct Run run[2];
            for (int i = 0; i < 2; i++) {
                bool packed = i == 1;
                run_init(&run[i], rig->device[table][0], true);
                alone_body(&run[i], d, &packed);
            }
            expect_same(&run[1], &run[0], d);
            run_close(&run[0]);
            run_close(&run[1]);
        }
}

AROUND_ALL(rig_setup, rig_teardown);
