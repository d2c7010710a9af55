// The kernels of the update (sums, clipping, casts) in every table against the oracle, and with
// AdamW, which has a file of its own (test_kernels_adamw.c), against PyTorch.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

struct SumShape {
    size_t n;
    bool square, accumulate;
};

static void sum_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct SumShape *s = shape;
    static const double before = 1000;
    void *x = output_random(r, "x", d, s->n, 0); // an "output", to read it back
    double *out = output_bytes(r, "out", sizeof *out, &before);
    struct Sum a = {s->n, d, x, s->square, s->accumulate, out};
    r->device->kernels->sum(compute(r), &a);
}

// In fp64: each of n additions is off by 2^-53 of the sum so far, mostly in turns up and down.
static void sum_value_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct SumShape *s = shape;
    sum_body(r, d, shape);
    run_finish(r);
    double got;
    long double want = s->accumulate ? 1000 : 0, size = want;
    for (size_t i = 0; i < s->n; i++) {
        long double term = dtype_load(run_result(r, "x"), d, i);
        want += s->square ? term * term : term;
        size += s->square ? term * term : fabsl(term);
    }
    memcpy(&got, run_result(r, "out"), sizeof got);
    if (!(fabsl(got - want) <= 1e-12L * size))
        fail_msg("%s %s: the sum of %zu is %.17g, should be %.17g", r->device->kernels->name,
                 dtype_name(d), s->n, got, (double)want);
}

TEST(test_sum) {
    static const struct SumShape shapes[] = {
        {1, false, false},      {17, true, false},    {17, false, true},     {4096, true, true},
        {100003, false, false}, {100003, true, true}, {65536, false, false}, {1000003, true, false},
    };
    static const struct SumShape longest = {2200001, true, true}; // more than one turn of a GPU
    rig_each(*state, sum_value_body, &longest);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        rig_each(*state, sum_value_body, &shapes[i]);
        rig_check(*state, sum_body, &shapes[i], true); // the bits of one and two threads
    }
}

// Squares of large values do not overflow, and what is not finite stays so.
static void sum_special_body(struct Run *r, enum Dtype d, const void *shape) {
    float large = d == F16 ? 0x1p15f : 0x1p100f, special = *(const float *)shape * large, x[50];
    for (size_t i = 0; i < 50; i++)
        x[i] = i == 33 ? special : large;
    double *out = output_bytes(r, "out", sizeof *out, NULL), got;
    struct Sum a = {50, d, input_values(r, d, 50, x), true, false, out};
    r->device->kernels->sum(compute(r), &a);
    run_finish(r);
    memcpy(&got, run_result(r, "out"), sizeof got);
    double want = 49 * (double)large * large + (double)special * special;
    if (isnan(want) ? !isnan(got) : got != want)
        fail_msg("%s: the sum of squares with one %g is %g", r->device->kernels->name, special,
                 got);
}

TEST(test_sum_special) {
    static const float special[] = {1, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < 4; i++)
        rig_each(*state, sum_special_body, &special[i]);
}

struct ClipCase {
    double squares[3];
    float clip, norm, scale;
    bool skip;
    float loss_scale;
    uint64_t updates; // before; the host knows of 5
};

static void clip_body(struct Run *r, enum Dtype d, const void *shape) {
    (void)d;
    const struct ClipCase *c = shape;
    struct StepState before = {.lr = 7,
                               .clip = c->clip,
                               .beta1 = 3,
                               .loss_scale_settings = {c->loss_scale, 1, 2, 1},
                               .corrections = {{0.1f, 0.2f}, {0.3f, 0.4f}},
                               .known_updates = 5,
                               .updates = c->updates,
                               .loss_scale = {c->loss_scale, 1, c->updates}},
                     s;
    double *squares = input_bytes(r, sizeof c->squares, c->squares);
    struct StepClip a = {1, 3, 3, 1, squares, output_bytes(r, "state", sizeof before, &before)};
    r->device->kernels->step_clip(compute(r), &a);
    run_finish(r);
    memcpy(&s, run_result(r, "state"), sizeof s);
    assert_true(s.lr == 7 && s.beta1 == 3 && s.clip == c->clip && s.known_updates == 5);
    assert_int_equal(s.skip, c->skip);
    const struct BiasCorrection *now = &before.corrections[c->updates - 5];
    assert_true(s.correction.first == now->first && s.correction.second == now->second);
    assert_int_equal(s.updates, c->updates + !c->skip);
    struct LossScale scale = before.loss_scale;
    loss_scale_update(&scale, &before.loss_scale_settings, c->skip);
    assert_true(s.loss_scale.scale == scale.scale && s.loss_scale.good == scale.good);
    assert_int_equal(s.loss_scale.hysteresis, scale.hysteresis);
    if (!c->skip && (fabsf(s.grad_norm - c->norm) > 1e-6f * c->norm ||
                     fabsf(s.grad_scale - c->scale) > 1e-6f * c->scale))
        fail_msg("%s: norm %g and scale %g, should be %g and %g", r->device->kernels->name,
                 s.grad_norm, s.grad_scale, c->norm, c->scale);
}

TEST(test_clip) {
    static const struct ClipCase cases[] = {
        {{9, 16, 0}, 1, 5, 0.2f, false, 1, 6},
        {{9, 16, 0}, 0, 5, 1, false, 1, 5},
        {{9, 16, 0}, 5.5f, 5, 1, false, 1, 6},
        {{0, 0, 0}, 1, 0, 1, false, 1, 5},
        {{9, NAN, 1}, 1, 0, 0, true, 1, 6},
        {{INFINITY, 1, 1}, 1, 0, 0, true, 1, 5},
        {{1, 1, INFINITY}, 0, 0, 0, true, 1, 6},
        {{2, 7, 7}, 2, 4, 0.5f, false, 1, 5},
        {{9, 16, 0}, 1, 5.0f / 64, 1.0f / 64, false, 64, 6},
        {{9, 16, 0}, 0.01f, 5.0f / 64, 0.128f / 64, false, 64, 5},
        {{INFINITY, 1, 1}, 1, 0, 0, true, 64, 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        rig_each(*state, clip_body, &cases[i]);
}

// Three steps as a training run makes them: sum of squares, clip factor, update.
static void torch_body(struct Run *r, enum Dtype d, const void *values) {
    enum { N = 100, STEPS = 3 };
    static const float zeros[N];
    static const char *const names[STEPS] = {"state0", "state1", "state2"};
    const struct Values *v = values;
    const float *grads = values_f32(v, "adamw_grads", STEPS * N);
    const float *norms = values_f32(v, "adamw_norms", STEPS);
    struct AdamW a = {.n = N, .n_decay = 60, .grad_dtype = d, .param_dtype = d};
    a.master = output_values(r, "master", F32, N, 0, values_f32(v, "adamw_start", N));
    a.m = output_values(r, "m", F32, N, 0, zeros);
    a.v = output_values(r, "v", F32, N, 0, zeros);
    double *squares = output_bytes(r, "squares", sizeof *squares, NULL);
    for (int i = 0; i < STEPS; i++) {
        struct StepState s = {.lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .clip = 1};
        s.weight_decay = 0.1f;
        s.loss_scale = (struct LossScale){1, 1, 0};
        for (int k = 0; k <= STEPS_AHEAD; k++) // the host knows of all updates but the last
            s.corrections[k] = (struct BiasCorrection){(float)(1 - pow(0.9, i + k)),
                                                       (float)(1 - pow(0.95, i + k))};
        s.updates = (uint64_t)i;
        s.known_updates = (uint64_t)i - 1;
        struct StepState *state = output_bytes(r, names[i], sizeof s, &s);
        a.state = state;
        a.grad = input_values(r, d, N, grads + i * N);
        struct Sum sum = {N, d, a.grad, true, false, squares};
        r->device->kernels->sum(compute(r), &sum);
        r->device->kernels->step_clip(compute(r), &(struct StepClip){1, 1, 1, 1, squares, state});
        r->device->kernels->adamw(compute(r), &a);
    }
    run_finish(r);
    for (int i = 0; i < STEPS; i++) {
        const struct StepState *s = run_result(r, names[i]);
        if (fabsf(s->grad_norm - norms[i]) > 1e-6f * norms[i])
            fail_msg("norm %g, PyTorch says %g", s->grad_norm, norms[i]);
    }
    const float *weights = values_f32(v, "adamw_weights", STEPS * N);
    run_expect(r, "master", "PyTorch", weights + (STEPS - 1) * N, 4);
    run_expect(r, "m", "PyTorch", values_f32(v, "adamw_m", N), 8);
    run_expect(r, "v", "PyTorch", values_f32(v, "adamw_v", N), 8);
}

TEST(test_torch) {
    const struct Rig *rig = *state;
    rig_each(rig, torch_body, rig->values);
}

// Every rounding there is: each upper half of an fp32 with lower halves at, above and below the
// middle between two bf16 or two fp16 numbers.
static void cast_all_body(struct Run *r, enum Dtype src, const void *shape) {
    enum { LOWS = 12, N = 65536 * LOWS - 3 }; // no multiple of a vector
    static const uint32_t lows[LOWS] = {0,      1,      0xfff,  0x1000, 0x1001, 0x2fff,
                                        0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xffff};
    static uint32_t bits[65536 * LOWS];
    static uint16_t halves[65536 * LOWS];
    enum Dtype dst = *(const enum Dtype *)shape;
    for (uint32_t i = 0; i < 65536 * LOWS; i++) {
        bits[i] = (i / LOWS) << 16 | lows[i % LOWS];
        halves[i] = (uint16_t)i;
    }
    struct Cast a = {.n = N, .dst_dtype = dst, .src_dtype = src};
    a.src = input_bytes(r, N * dtype_size(src), src == F32 ? (void *)bits : halves);
    a.dst = output_poison(r, "dst", dst, N, 0);
    r->device->kernels->cast(compute(r), &a);
    run_finish(r);
    for (size_t i = 0; i < N; i++) {
        float x = dtype_load(src == F32 ? (void *)bits : halves, src, i);
        uint32_t want = dtype_bits(dst, x), got = 0;
        memcpy(&got, (const char *)run_result(r, "dst") + i * dtype_size(dst), dtype_size(dst));
        if (isnan(x) ? !isnan(dtype_load(run_result(r, "dst"), dst, i)) : got != want)
            fail_msg("%s: cast of %s %x to %s is %x, should be %x", r->device->kernels->name,
                     dtype_name(src), src == F32 ? bits[i] : halves[i], dtype_name(dst), got, want);
    }
}

TEST(test_cast) {
    for (enum Dtype dst = F32; dst < NDTYPE; dst++)
        rig_each(*state, cast_all_body, &dst);
}

// f16_from_f32 and f32_from_f16 themselves: the value of each number from its fields, and between
// it and the next the middle, which goes to the even one, and the numbers beside the middle.
TEST(test_f16) {
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double step = h < 0x800 ? 0x1p-24 : ldexp(1, (int)(h >> 10) - 25);
        double value = h < 0x400 ? h * step : (h % 0x400 + 0x400) * step;
        if (f32_from_f16((uint16_t)h) != value)
            fail_msg("fp16 %x is %a, should be %a", h, f32_from_f16((uint16_t)h), value);
        float middle = (float)(value + step / 2);
        struct {
            float x;
            uint32_t want;
        } cases[] = {{(float)value, h},
                     {nextafterf(middle, 0), h},
                     {middle, h % 2 ? h + 1 : h},
                     {nextafterf(middle, INFINITY), h + 1}};
        for (size_t i = 0; i < 4; i++) {
            uint16_t got = f16_from_f32(cases[i].x), minus = f16_from_f32(-cases[i].x);
            if (got != cases[i].want || minus != (cases[i].want | 0x8000))
                fail_msg("%a rounds to fp16 %x, its negative to %x, should be %x", cases[i].x, got,
                         minus, cases[i].want);
        }
    }
    assert_int_equal(f16_from_f32(INFINITY), 0x7c00);
    assert_int_equal(f16_from_f32(1e30f), 0x7c00);
    assert_true(isnan(f32_from_f16(f16_from_f32(NAN))) && isnan(f32_from_f16(0x7c01)));
    assert_true(f32_from_f16(0xfc00) == -INFINITY);
}

// bf16_from_f32 itself, which all others are held against, rounds as PyTorch does. The bits of a
// NaN are a choice: ours keep its upper half, PyTorch's are always the same.
TEST(test_bf16_torch) {
    const struct Rig *rig = *state;
    size_t n = values_count(rig->values, "bf16_bits");
    assert_true(n > 2000);
    const float *x = values_f32(rig->values, "bf16_f32", n);
    const uint16_t *want = values_u16(rig->values, "bf16_bits", n);
    for (size_t i = 0; i < n; i++) {
        uint16_t got = bf16_from_f32(x[i]);
        bool nan = (want[i] & 0x7fff) > 0x7f80;
        if (nan ? !isnan(f32_from_bf16(got)) : got != want[i])
            fail_msg("%a rounds to %x, PyTorch says %x", x[i], got, want[i]);
    }
}

AROUND_ALL(rig_setup, rig_teardown);
