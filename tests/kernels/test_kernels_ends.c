// GELU, embedding and classifier in every table: against the oracle, PyTorch, and finite
// differences of the oracle.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

// Relative to a value: its rounding, and a little for the arithmetic before.
static double half_step(enum Dtype d) {
    return d == F32 ? 0x1p-21 : 1.0625 * dtype_unit(d);
}

static void gelu_body(struct Run *r, enum Dtype d, const void *shape) {
    size_t n = *(const size_t *)shape;
    struct GeluForward a = {n, d, input_random(r, d, n, 0, 2), output_poison(r, "y", d, n, 1)};
    r->device->kernels->gelu_forward(compute(r), &a);
}

TEST(test_gelu_oracle) {
    static const size_t sizes[] = {1, 3, 17, 1003, 70001};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        rig_check(*state, gelu_body, &sizes[i], true);
}

// Every bf16 number there is, also as fp32, and every fp16 number. Where GELU is large it is its
// argument or 0, never NaN.
static void gelu_all_body(struct Run *r, enum Dtype d, const void *shape) {
    (void)shape;
    static float x[65536];
    for (uint32_t i = 0; i < 65536; i++)
        x[i] = d == F16 ? f32_from_f16((uint16_t)i) : f32_from_bf16((uint16_t)i);
    struct GeluForward a = {65536, d, input_values(r, d, 65536, x), NULL};
    a.y = output_poison(r, "y", d, 65536, 0);
    r->device->kernels->gelu_forward(compute(r), &a);
    run_finish(r);
    for (size_t i = 0; i < 65536; i++) {
        double t = 0.7978845608028654 * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
        double want = x[i] / (1 + exp(-2 * t)), got = dtype_load(run_result(r, "y"), d, i);
        double limit = half_step(d) * fabs(want) + fmax(1.1 * dtype_least(d), 0x1p-120);
        limit *= fmax(1, fabs(t)); // exp(-2t) is as far off as its argument
        if (isnan(x[i]) ? !isnan(got) : isfinite(x[i]) && !(fabs(got - want) <= limit))
            fail_msg("%s %s: GELU(%g) is %g, should be %g", r->device->kernels->name, dtype_name(d),
                     x[i], got, want);
        if (x[i] == INFINITY && got != INFINITY)
            fail_msg("%s: GELU of infinity is %g", r->device->kernels->name, got);
    }
}

static void gelu_torch_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    size_t n = values_count(v, "gelu_x");
    float *ones = base_alloc(n * sizeof *ones);
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    void *x = input_values(r, d, n, values_f32(v, "gelu_x", n));
    struct GeluForward a = {n, d, x, output_poison(r, "y", d, n, 0)};
    r->device->kernels->gelu_forward(compute(r), &a);
    // The slope, from a matmul of ones whose epilogue multiplies by it.
    struct Matmul m = {.m = n, .n = 1, .k = 1, .dgelu = x};
    m.a = (struct Mat){input_values(r, d, n, ones), d, 1, false, NULL};
    m.b = (struct Mat){input_values(r, d, 1, ones), d, 1, false, NULL};
    m.c = (struct Mat){output_poison(r, "slope", d, n, 0), d, 1, false, NULL};
    m.work = scratch(r, r->device->kernels->matmul_work(r->device, &m));
    r->device->kernels->matmul(compute(r), &m);
    free(ones);
    run_finish(r);
    run_expect(r, "slope", "PyTorch", values_f32(v, "gelu_slope", n), d == F32 ? 32 : 1);
    const float *want = values_f32(v, "gelu_y", n); // up to 1e4: compared one by one
    for (size_t i = 0; i < n; i++) {
        double got = dtype_load(run_result(r, "y"), d, i);
        double limit = half_step(d) * fabs(want[i]) + 1e-6;
        if (!(fabs(got - want[i]) <= limit))
            fail_msg("%s %s: gelu[%zu] is %g, PyTorch says %g", r->device->kernels->name,
                     dtype_name(d), i, got, want[i]);
    }
}

TEST(test_gelu_all) {
    rig_each(*state, gelu_all_body, NULL);
}

struct EmbedShape {
    size_t b, t, c, v;
    size_t distinct; // tokens are among the multiples of v / distinct
    bool accumulate, grad_fp32, no_positions;
};

static const struct EmbedShape embeds[] = {
    {1, 1, 36, 2, 1, false, false, false},       {3, 17, 36, 50, 12, false, false, false},
    {3, 17, 36, 50, 1, true, false, false}, // one token stands in all rows
    {1, 17, 7, 50257, 16, false, true, false},   {2, 64, 128, 211, 211, true, true, false},
    {12, 64, 33, 300, 60, false, false, false},  {2, 5, 770, 10, 10, true, false, false},
    {3, 1000, 40, 300, 300, false, true, false}, // many tiles of a GPU's sort
    {3, 1000, 33, 50, 1, true, false, false},    // and one token in all of them
    {2, 300, 8, 70000, 7, false, false, false},  // tokens of more than 16 bits
    {3, 17, 36, 50, 12, true, false, true},      {2, 65, 7, 50, 12, false, true, true},
};
enum { NEMBEDS = sizeof embeds / sizeof embeds[0], EXTRA_POSITIONS = 3 };

static int32_t *embed_tokens(struct Run *r, const struct EmbedShape *s) {
    size_t n = s->b * s->t;
    int32_t *tokens = base_alloc(n * sizeof *tokens);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(rng_bits(5, i) % s->distinct * (s->v / s->distinct));
    tokens[n - 1] = (int32_t)s->v - 1; // the last row of wte
    int32_t *mem = input_bytes(r, n * sizeof *tokens, tokens);
    free(tokens);
    return mem;
}

static void embed_forward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct EmbedShape *s = shape;
    struct EmbedForward a = {.b = s->b, .t = s->t, .c = s->c, .v = s->v, .dtype = d};
    a.tokens = embed_tokens(r, s);
    a.wte = input_random(r, d, s->v * s->c, 0, 1);
    if (!s->no_positions)
        a.wpe = input_random(r, d, (s->t + EXTRA_POSITIONS) * s->c, 0, 1);
    a.out = output_poison(r, "out", d, s->b * s->t * s->c, 0);
    r->device->kernels->embed_forward(compute(r), &a);
}

static void queue_embed_backward(struct Run *r, struct EmbedBackward *a) {
    a->work = scratch(r, r->device->kernels->embed_backward_work(r->device, a));
    r->device->kernels->embed_backward(compute(r), a);
}

static void embed_backward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct EmbedShape *s = shape;
    struct EmbedBackward a = {.b = s->b, .t = s->t, .c = s->c, .v = s->v, .dtype = d};
    a.grad_dtype = s->grad_fp32 ? F32 : d;
    a.accumulate = s->accumulate;
    a.tokens = embed_tokens(r, s);
    a.dout = input_random(r, d, s->b * s->t * s->c, 0, 1);
    double places = (double)(s->b * s->t) / (double)s->distinct; // that a token stands in
    a.dwte = output_random(r, "dwte", a.grad_dtype, s->v * s->c, 4 + sqrt(places));
    // Positions that the batch does not have keep their gradient: the oracle leaves them alone.
    if (!s->no_positions)
        a.dwpe = output_random(r, "dwpe", a.grad_dtype, (s->t + EXTRA_POSITIONS) * s->c, 4);
    queue_embed_backward(r, &a);
}

TEST(test_embed_oracle) {
    for (size_t i = 0; i < NEMBEDS; i++) {
        rig_check(*state, embed_forward_body, &embeds[i], true);
        rig_check(*state, embed_backward_body, &embeds[i], true);
    }
}

static void embed_torch_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    enum { B = 3, T = 17, C = 36, V = 50, SIZE = B * T * C };
    static const float zeros[V * C];
    int32_t *tokens = input_bytes(r, B * T * 4, values_i32(v, "embed_tokens", B * T));
    struct EmbedForward f = {.b = B, .t = T, .c = C, .v = V, .dtype = d, .tokens = tokens};
    f.wte = input_values(r, d, V * C, values_f32(v, "embed_wte", V * C));
    f.wpe = input_values(r, d, T * C, values_f32(v, "embed_wpe", T * C));
    f.out = output_poison(r, "out", d, SIZE, 0);
    r->device->kernels->embed_forward(compute(r), &f);
    struct EmbedBackward a = {.b = B, .t = T, .c = C, .v = V, .dtype = d, .grad_dtype = d};
    a.tokens = tokens;
    a.dout = input_values(r, d, SIZE, values_f32(v, "embed_dout", SIZE));
    a.dwte = output_values(r, "dwte", d, V * C, 0, zeros);
    a.dwpe = output_poison(r, "dwpe", d, T * C, 0);
    queue_embed_backward(r, &a);
    run_finish(r);
    run_expect(r, "out", "PyTorch", values_f32(v, "embed_out", SIZE), 0); // exact in bf16
    run_expect(r, "dwte", "PyTorch", values_f32(v, "embed_dwte", V * C), d == F32 ? 4 : 1);
    run_expect(r, "dwpe", "PyTorch", values_f32(v, "embed_dwpe", T * C), d == F32 ? 4 : 1);
}

struct ClassifierShape {
    size_t rows, v, vp;
    float scale;
    bool backward;
    float loss_scale; // 0: none given
};

static void classifier_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct ClassifierShape *s = shape;
    struct Classifier a = {.rows = s->rows, .v = s->v, .vp = s->vp, .dtype = d};
    int32_t *targets = base_alloc(s->rows * sizeof *targets);
    for (size_t i = 0; i < s->rows; i++)
        targets[i] = (int32_t)(i == 0 ? s->v - 1 : rng_bits(6, i) % s->v);
    a.targets = input_bytes(r, s->rows * sizeof *targets, targets);
    free(targets);
    // Random in the padding as well: it must not count.
    float *logits = base_alloc(s->rows * s->vp * sizeof *logits);
    for (size_t i = 0; i < s->rows * s->vp; i++)
        logits[i] = s->scale * rng_normal(7, i % 9973) + (float)(i / s->vp % 3) * s->scale;
    a.logits = output_values(r, "logits", d, s->rows * s->vp, 16 * (1 + s->scale), logits);
    free(logits);
    a.loss = output_poison(r, "loss", F32, s->rows, 32);
    a.dloss = 1.0f / (float)s->rows;
    if (s->loss_scale > 0)
        a.loss_scale = input_values(r, F32, 1, &s->loss_scale);
    a.backward = s->backward;
    r->device->kernels->classifier(compute(r), &a);
}

TEST(test_classifier_oracle) {
    static const struct ClassifierShape shapes[] = {
        {1, 1, 1, 1, true, 0},
        {5, 211, 256, 1, true, 0},
        {5, 211, 256, 1, false, 0},
        {17, 3, 3, 1, true, 0},
        {17, 129, 129, 5, true, 0},
        {3, 50257, 50304, 2, true, 0},
        {3, 50257, 50304, 2, false, 0},
        {4, 100, 128, 300, true, 0},
        {2, 64, 128, 20000, true, 0},
        {5, 211, 256, 1, true, 1024},
        {3, 50257, 50304, 2, true, 65536},
        // A CUDA block's rounds: 768 threads with packs of 4 or 8, three packs at a time. One
        // element more than three rounds, a pack that is half padding, and no whole packs at all.
        {33, 9217, 9224, 2, true, 0},
        {4, 18433, 18440, 2, true, 0},
        {2, 18431, 18432, 2, true, 0},
        {5, 6151, 6151, 2, true, 128},
        {2, 50257, 50257, 2, true, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_check(*state, classifier_body, &shapes[i], true);
}

static void classifier_torch_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    enum { ROWS = 5, V = 211, VP = 256 };
    const float *logits = values_f32(v, "classifier_logits", ROWS * V);
    const float *dlogits = values_f32(v, "classifier_dlogits", ROWS * V);
    float padded[ROWS * VP], want[ROWS * VP];
    for (size_t i = 0; i < ROWS * VP; i++) {
        padded[i] = i % VP < V ? logits[i / VP * V + i % VP] : 99; // 99 may not count
        want[i] = i % VP < V ? dlogits[i / VP * V + i % VP] : 0;
    }
    struct Classifier a = {.rows = ROWS, .v = V, .vp = VP, .dtype = d, .backward = true};
    a.logits = output_values(r, "logits", d, ROWS * VP, 0, padded);
    a.targets = input_bytes(r, ROWS * 4, values_i32(v, "classifier_targets", ROWS));
    a.loss = output_poison(r, "loss", F32, ROWS, 0);
    a.dloss = 1.0f / ROWS;
    r->device->kernels->classifier(compute(r), &a);
    run_finish(r);
    run_expect(r, "loss", "PyTorch", values_f32(v, "classifier_loss", ROWS), 8);
    run_expect(r, "logits", "PyTorch", want, d == F32 ? 8 : 1);
}

// GPT-2's vocabulary; some columns of the gradient. Many are too small for fp16 as they are.
static void big_torch_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    enum { V = 50257 };
    static const float loss_scale = 0x1p16f;
    static float logits[2 * V];
    for (size_t i = 0; i < 2 * V; i++)
        logits[i] = f32_from_bf16(bf16_from_f32(16 * rng_uniform(7, i) - 8));
    struct Classifier a = {.rows = 2, .v = V, .vp = V, .dtype = d, .backward = true};
    a.logits = output_values(r, "logits", d, 2 * V, 0, logits);
    a.targets = input_bytes(r, 8, values_i32(v, "big_targets", 2));
    a.loss = output_poison(r, "loss", F32, 2, 0);
    a.dloss = 0.5f;
    a.loss_scale = input_values(r, F32, 1, &loss_scale);
    r->device->kernels->classifier(compute(r), &a);
    run_finish(r);
    run_expect(r, "loss", "PyTorch", values_f32(v, "big_loss", 2), 16);
    size_t ncolumn = values_count(v, "big_columns");
    const int32_t *columns = values_i32(v, "big_columns", ncolumn);
    const float *want = values_f32(v, "big_dlogits", 2 * ncolumn);
    for (size_t i = 0; i < 2 * ncolumn; i++) {
        size_t at = i / ncolumn * V + (size_t)columns[i % ncolumn];
        double got = dtype_load(run_result(r, "logits"), d, at), is = (double)loss_scale * want[i];
        double limit = (d == F32 ? 1e-5 : half_step(d)) * fabs(is) + 1.1 * dtype_least(d);
        if (!(fabs(got - is) <= limit))
            fail_msg("%s %s: dlogits[%zu] is %g, PyTorch says %g", r->device->kernels->name,
                     dtype_name(d), at, got, is);
    }
}

TEST(test_torch) {
    const struct Rig *rig = *state;
    rig_each(rig, gelu_torch_body, rig->values);
    rig_each(rig, embed_torch_body, rig->values);
    rig_each(rig, classifier_torch_body, rig->values);
    rig_each(rig, big_torch_body, rig->values);
}

// The embedding and the classifier in one: logits are embedded tokens. Finite differences in wte
// and wpe go through both backward kernels of the oracle.
enum { FB = 2, FT = 5, FC = 6, FV = 4 };
struct Layer {
    struct Device *oracle;
    int32_t tokens[FB * FT], targets[FB * FT];
    float wte[FV * FC], wpe[FT * FC], logits[FB * FT * FC], loss[FB * FT];
    bool backward;
};

static double layer_loss(void *context) {
    struct Layer *l = context;
    const struct Kernels *kernels = l->oracle->kernels;
    struct EmbedForward f = {FB, FT, FC, FV, 0, F32, l->tokens, NULL, l->wte, l->wpe, l->logits};
    struct Classifier a = {.rows = FB * FT, .v = FC - 1, .vp = FC, .dtype = F32, .dloss = 1};
    a.logits = l->logits;
    a.targets = l->targets;
    a.loss = l->loss;
    a.backward = l->backward;
    kernels->embed_forward(l->oracle->queue[QUEUE_COMPUTE], &f);
    kernels->classifier(l->oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l->oracle, QUEUE_COMPUTE);
    double loss = 0;
    for (size_t i = 0; i < FB * FT; i++)
        loss += l->loss[i];
    return loss;
}

TEST(test_finite_differences) {
    const struct Rig *rig = *state;
    struct Layer l = {.oracle = rig->device[0][0], .backward = true};
    for (size_t i = 0; i < FB * FT; i++) {
        l.tokens[i] = (int32_t)(rng_bits(1, i) % FV);
        l.targets[i] = (int32_t)(rng_bits(2, i) % (FC - 1));
    }
    for (size_t i = 0; i < FV * FC; i++)
        l.wte[i] = rng_normal(3, i);
    for (size_t i = 0; i < FT * FC; i++)
        l.wpe[i] = rng_normal(4, i);
    layer_loss(&l);
    float dwte[FV * FC] = {0}, dwpe[FT * FC];
    struct EmbedBackward a = {.b = FB, .t = FT, .c = FC, .v = FV, .dtype = F32, .grad_dtype = F32};
    a.tokens = l.tokens;
    a.dout = l.logits;
    a.dwte = dwte;
    a.dwpe = dwpe;
    l.oracle->kernels->embed_backward(l.oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l.oracle, QUEUE_COMPUTE);
    l.backward = false;
    struct RigSlopes s = {layer_loss, &l, 0x1p-5f, 1e-4, 1};
    rig_expect_slopes(&s, "dwte", l.wte, dwte, FV * FC);
    rig_expect_slopes(&s, "dwpe", l.wpe, dwpe, FT * FC);
}

// A NaN among the logits reaches the loss: that is how a broken run is noticed.
static void nan_body(struct Run *r, enum Dtype d, const void *place) {
    float logits[2 * 64];
    for (size_t i = 0; i < 2 * 64; i++)
        logits[i] = i == *(const size_t *)place ? NAN : (float)(i % 5);
    static const int32_t targets[2] = {0, 1};
    struct Classifier a = {.rows = 2, .v = 50, .vp = 64, .dtype = d, .backward = true};
    a.logits = output_values(r, "logits", d, 2 * 64, 0, logits);
    a.targets = input_bytes(r, sizeof targets, targets);
    a.loss = output_poison(r, "loss", F32, 2, 0);
    a.dloss = 1;
    r->device->kernels->classifier(compute(r), &a);
    run_finish(r);
    const float *loss = run_result(r, "loss");
    if (!isnan(loss[0]) || isnan(loss[1]))
        fail_msg("%s %s: losses %g %g with a NaN at logit %zu", r->device->kernels->name,
                 dtype_name(d), loss[0], loss[1], *(const size_t *)place);
}

TEST(test_nan) {
    static const size_t places[] = {0, 7, 16, 49};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        rig_each(*state, nan_body, &places[i]);
}

AROUND_ALL(rig_setup, rig_teardown);
