// Layer norm and RMS norm with their residual addition, forward and backward, in every table:
// against the oracle, PyTorch, and finite differences of the oracle.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

enum Where { SUM_APART, SUM_IN_X, SUM_IN_DELTA, NO_DELTA };

struct Shape {
    size_t rows, c;
    enum Where where;
    bool no_y;
    bool accumulate, grad_fp32; // backward
    bool rms, no_bias;
    bool frozen; // no gradient of the weights
    float eps;   // 0: 1e-5
};

static void queue_forward(struct Run *r, const struct NormForward *a) {
    r->device->kernels->norm_forward(r->device->queue[QUEUE_COMPUTE], a);
}

static void queue_backward(struct Run *r, struct NormBackward *a) {
    a->work = scratch(r, r->device->kernels->norm_backward_work(r->device, a));
    r->device->kernels->norm_backward(r->device->queue[QUEUE_COMPUTE], a);
}

static void forward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    size_t size = s->rows * s->c;
    struct NormForward a = {.rows = s->rows, .c = s->c, .dtype = d};
    a.eps = s->eps > 0 ? s->eps : 1e-5f;
    a.x = s->where == SUM_IN_X ? output_random(r, "sum", d, size, 0)
                               : input_random(r, d, size, 3, 2); // mean 3: cancels in the variance
    if (s->where == SUM_IN_DELTA)
        a.delta = output_random(r, "sum", d, size, 0);
    else if (s->where != NO_DELTA)
        a.delta = input_random(r, d, size, 0, 1);
    if (s->where == SUM_APART)
        a.sum = output_poison(r, "sum", d, size, 0);
    else if (s->where != NO_DELTA)
        a.sum = (void *)(s->where == SUM_IN_X ? a.x : a.delta);
    if (!s->no_y) {
        a.y = output_poison(r, "y", d, size, 16);
        if (!s->rms)
            a.mean = output_poison(r, "mean", F32, s->rows, 32);
        a.rstd = output_poison(r, "rstd", F32, s->rows, 32);
    }
    a.weight = input_random(r, d, s->c, 1, 0.3f);
    if (!s->no_bias)
        a.bias = input_random(r, d, s->c, 0, 1);
    queue_forward(r, &a);
}

TEST(test_forward_oracle) {
    static const struct Shape shapes[] = {
        {.rows = 1, .c = 36},
        {.rows = 17, .c = 36, .where = SUM_IN_X},
        {.rows = 17, .c = 36, .where = SUM_IN_DELTA},
        {.rows = 17, .c = 36, .where = NO_DELTA},
        {.rows = 17, .c = 36, .no_y = true},
        {.rows = 34, .c = 7},
        {.rows = 3, .c = 768},
        {.rows = 301, .c = 129, .where = SUM_IN_X},
        {.rows = 2, .c = 1600, .where = NO_DELTA},
        {.rows = 3, .c = 1600, .where = SUM_IN_DELTA}, // rows of more than one warp, on a GPU
        {.rows = 3, .c = 4104, .where = SUM_IN_X},
        {.rows = 2, .c = 5001},
        {.rows = 17, .c = 36, .eps = 2, .where = NO_DELTA},
        {.rows = 17, .c = 36, .no_bias = true},
        {.rows = 17, .c = 36, .rms = true, .no_bias = true, .eps = 1e-6f},
        {.rows = 34, .c = 7, .rms = true, .no_bias = true, .where = NO_DELTA, .eps = 3},
        {.rows = 5, .c = 129, .rms = true, .where = SUM_IN_X},
        {.rows = 3, .c = 2048, .rms = true, .no_bias = true, .where = SUM_IN_DELTA},
        {.rows = 2, .c = 4104, .rms = true, .no_bias = true, .where = SUM_IN_X},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_check(*state, forward_body, &shapes[i], true);
}

static void backward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    size_t size = s->rows * s->c;
    double slack = 8 + 4 * sqrt((double)s->rows);
    struct NormBackward a = {.rows = s->rows, .c = s->c, .dtype = d, .accumulate = s->accumulate};
    a.grad_dtype = s->grad_fp32 ? F32 : d;
    a.dy = input_random(r, d, size, 0, 1);
    a.x = input_random(r, d, size, 0.5f, 2);
    a.weight = input_random(r, d, s->c, 1, 0.3f);
    if (!s->rms)
        a.mean = input_random(r, F32, s->rows, 0.5f, 0.1f);
    a.rstd = input_random(r, F32, s->rows, 0.5f, 0.05f);
    a.dx = output_random(r, "dx", d, size, 16);
    if (!s->frozen)
        a.dweight = output_random(r, "dweight", a.grad_dtype, s->c, slack);
    if (!s->frozen && !s->no_bias)
        a.dbias = output_random(r, "dbias", a.grad_dtype, s->c, slack);
    queue_backward(r, &a);
}

TEST(test_backward_oracle) {
    static const struct Shape shapes[] = {
        {.rows = 1, .c = 36},
        {.rows = 17, .c = 36, .accumulate = true},
        {.rows = 17, .c = 36, .grad_fp32 = true},
        {.rows = 34, .c = 7, .grad_fp32 = true, .accumulate = true},
        {.rows = 5, .c = 768, .accumulate = true},
        {.rows = 301, .c = 129},
        {.rows = 1025, .c = 33, .grad_fp32 = true},
        {.rows = 3, .c = 3001, .grad_fp32 = true},
        // On a GPU: as many rows as each team's slots, and one more; teams of 16, 2 and 1 a block.
        {.rows = 1300, .c = 20},
        {.rows = 33, .c = 1600, .accumulate = true},
        {.rows = 17, .c = 2568, .rms = true},
        {.rows = 17, .c = 5120, .grad_fp32 = true},
        // Where a thread has one pack more, or a team one warp.
        {.rows = 2, .c = 1599},
        {.rows = 3, .c = 1601, .accumulate = true},
        {.rows = 5, .c = 2048, .rms = true, .no_bias = true},
        {.rows = 5, .c = 2056},
        {.rows = 3, .c = 2560},
        {.rows = 2, .c = 4096, .grad_fp32 = true},
        {.rows = 3, .c = 4104, .accumulate = true},
        {.rows = 2, .c = 5119, .accumulate = true},
        {.rows = 813, .c = 776},
        {.rows = 17, .c = 36, .no_bias = true},
        {.rows = 17, .c = 36, .rms = true, .no_bias = true, .accumulate = true},
        {.rows = 34, .c = 7, .rms = true, .no_bias = true, .grad_fp32 = true},
        {.rows = 301, .c = 129, .rms = true},
        {.rows = 813, .c = 776, .rms = true, .no_bias = true, .grad_fp32 = true},
        {.rows = 17, .c = 36, .frozen = true},
        {.rows = 301, .c = 129, .frozen = true, .rms = true, .no_bias = true},
        {.rows = 3, .c = 3001, .frozen = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_check(*state, backward_body, &shapes[i], true);
}

enum { R = 34, C = 36 };

static void torch_forward_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    struct NormForward a = {.rows = R, .c = C, .dtype = d, .eps = 1e-5f};
    a.x = input_values(r, d, R * C, values_f32(v, "norm_x", R * C));
    a.delta = input_values(r, d, R * C, values_f32(v, "norm_delta", R * C));
    a.sum = output_poison(r, "sum", d, R * C, 0);
    a.y = output_poison(r, "y", d, R * C, 0);
    a.mean = output_poison(r, "mean", F32, R, 0);
    a.rstd = output_poison(r, "rstd", F32, R, 0);
    a.weight = input_values(r, d, C, values_f32(v, "norm_weight", C));
    a.bias = input_values(r, d, C, values_f32(v, "norm_bias", C));
    queue_forward(r, &a);
    run_finish(r);
    run_expect(r, "sum", "PyTorch", values_f32(v, "norm_sum", R * C), 0); // exact in bf16
    run_expect(r, "y", "PyTorch", values_f32(v, "norm_y", R * C), d == F32 ? 8 : 1);
    run_expect(r, "mean", "PyTorch", values_f32(v, "norm_mean", R), 8);
    run_expect(r, "rstd", "PyTorch", values_f32(v, "norm_rstd", R), 8);
}

static void torch_backward_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    struct NormBackward a = {.rows = R, .c = C, .dtype = d, .grad_dtype = d};
    a.dy = input_values(r, d, R * C, values_f32(v, "norm_dy", R * C));
    a.x = input_values(r, d, R * C, values_f32(v, "norm_sum", R * C));
    a.weight = input_values(r, d, C, values_f32(v, "norm_weight", C));
    a.mean = input_values(r, F32, R, values_f32(v, "norm_mean", R));
    a.rstd = input_values(r, F32, R, values_f32(v, "norm_rstd", R));
    a.dx = output_values(r, "dx", d, R * C, 0, values_f32(v, "norm_past", R * C));
    a.dweight = output_poison(r, "dweight", d, C, 0);
    a.dbias = output_poison(r, "dbias", d, C, 0);
    queue_backward(r, &a);
    run_finish(r);
    run_expect(r, "dx", "PyTorch", values_f32(v, "norm_dx", R * C), d == F32 ? 8 : 1);
    run_expect(r, "dweight", "PyTorch", values_f32(v, "norm_dweight", C), d == F32 ? 16 : 1);
    run_expect(r, "dbias", "PyTorch", values_f32(v, "norm_dbias", C), d == F32 ? 16 : 1);
}

static void torch_rms_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    struct NormForward f = {.rows = R, .c = C, .dtype = d, .eps = 1e-6f};
    f.x = input_values(r, d, R * C, values_f32(v, "rms_x", R * C));
    f.y = output_poison(r, "y", d, R * C, 0);
    f.rstd = output_poison(r, "rstd", F32, R, 0);
    f.weight = input_values(r, d, C, values_f32(v, "rms_weight", C));
    queue_forward(r, &f);
    struct NormBackward a = {.rows = R, .c = C, .dtype = d, .grad_dtype = d};
    a.dy = input_values(r, d, R * C, values_f32(v, "rms_dy", R * C));
    a.x = f.x;
    a.weight = f.weight;
    a.rstd = input_values(r, F32, R, values_f32(v, "rms_rstd", R));
    a.dx = output_values(r, "dx", d, R * C, 0, values_f32(v, "rms_past", R * C));
    a.dweight = output_poison(r, "dweight", d, C, 0);
    queue_backward(r, &a);
    run_finish(r);
    run_expect(r, "y", "PyTorch", values_f32(v, "rms_y", R * C), d == F32 ? 8 : 1);
    run_expect(r, "rstd", "PyTorch", values_f32(v, "rms_rstd", R), 8);
    run_expect(r, "dx", "PyTorch", values_f32(v, "rms_dx", R * C), d == F32 ? 8 : 1);
    run_expect(r, "dweight", "PyTorch", values_f32(v, "rms_dweight", C), d == F32 ? 16 : 1);
}

TEST(test_torch) {
    const struct Rig *rig = *state;
    rig_each(rig, torch_forward_body, rig->values);
    rig_each(rig, torch_backward_body, rig->values);
    rig_each(rig, torch_rms_body, rig->values);
}

// A norm on host arrays, for finite differences: its loss is the sum of y * dy.
enum { FR = 5, FC = 9 };
struct Layer {
    struct Device *oracle;
    bool rms; // and no bias
    float x[FR * FC], weight[FC], bias[FC], y[FR * FC], dy[FR * FC], mean[FR], rstd[FR];
};

static double layer_loss(void *context) {
    struct Layer *l = context;
    struct NormForward a = {.rows = FR, .c = FC, .dtype = F32, .eps = 1e-5f, .x = l->x, .y = l->y};
    a.mean = l->rms ? NULL : l->mean;
    a.rstd = l->rstd;
    a.weight = l->weight;
    a.bias = l->rms ? NULL : l->bias;
    l->oracle->kernels->norm_forward(l->oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l->oracle, QUEUE_COMPUTE);
    return rig_dot(l->y, l->dy, FR * FC);
}

static void check_slopes(struct Layer *l) {
    layer_loss(l);
    float dx[FR * FC] = {0}, dweight[FC], dbias[FC];
    struct NormBackward a = {.rows = FR, .c = FC, .dtype = F32, .grad_dtype = F32, .dy = l->dy};
    a.x = l->x;
    a.weight = l->weight;
    a.mean = l->rms ? NULL : l->mean;
    a.rstd = l->rstd;
    a.dx = dx;
    a.dweight = dweight;
    a.dbias = l->rms ? NULL : dbias;
    l->oracle->kernels->norm_backward(l->oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l->oracle, QUEUE_COMPUTE);
    struct RigSlopes s = {layer_loss, l, 0x1p-5f, 1e-4, 1};
    rig_expect_slopes(&s, "dx", l->x, dx, FR * FC);
    rig_expect_slopes(&s, "dweight", l->weight, dweight, FC);
    if (!l->rms)
        rig_expect_slopes(&s, "dbias", l->bias, dbias, FC);
}

TEST(test_finite_differences) {
    const struct Rig *rig = *state;
    struct Layer l = {.oracle = rig->device[0][0]};
    for (size_t i = 0; i < FR * FC; i++) {
        l.x[i] = 2 * rng_normal(1, i);
        l.dy[i] = rng_normal(2, i);
    }
    for (size_t i = 0; i < FC; i++) {
        l.weight[i] = 1 + 0.3f * rng_normal(3, i);
        l.bias[i] = rng_normal(4, i);
    }
    for (int rms = 0; rms < 2; rms++) {
        l.rms = rms;
        check_slopes(&l);
    }
}

// The stored sum is one fp32 addition, rounded by bf16_from_f32: denormals, infinities and NaN
// included.
enum { SPECIAL = 1000 };

static void rounding_body(struct Run *r, enum Dtype d, const void *shape) {
    (void)shape;
    float x[SPECIAL], delta[SPECIAL];
    for (size_t i = 0; i < SPECIAL; i++) { // random bits, often nearly cancelling or denormal
        uint64_t bits = rng_bits(9, i);
        x[i] = f32_from_bits((uint32_t)bits & (i % 3 ? 0xffffffffu : 0x80ffffffu));
        delta[i] = i % 2 ? f32_from_bits((uint32_t)(bits >> 32)) : x[i] * -0.998f;
    }
    struct NormForward a = {.rows = 10, .c = SPECIAL / 10, .dtype = d, .eps = 1e-5f};
    a.x = input_values(r, d, SPECIAL, x);
    a.delta = input_values(r, d, SPECIAL, delta);
    a.sum = output_poison(r, "sum", d, SPECIAL, 0);
    queue_forward(r, &a);
    run_finish(r);
    for (size_t i = 0; i < SPECIAL; i++) {
        float want = 0, got = dtype_load(run_result(r, "sum"), d, i);
        dtype_store(&x[i], d, 0, x[i]);
        dtype_store(&delta[i], d, 0, delta[i]);
        dtype_store(&want, d, 0, dtype_load(&x[i], d, 0) + dtype_load(&delta[i], d, 0));
        want = dtype_load(&want, d, 0);
        if (isnan(want) ? !isnan(got) : f32_bits(got) != f32_bits(want))
            fail_msg("%s %s: sum[%zu] is %a, not %a", r->device->kernels->name, dtype_name(d), i,
                     got, want);
    }
}

TEST(test_rounding) {
    rig_each(*state, rounding_body, NULL);
}

// A NaN in a row reaches all of its normed values, and no other row.
static void nan_body(struct Run *r, enum Dtype d, const void *rms) {
    float x[3 * C];
    for (size_t i = 0; i < 3 * C; i++)
        x[i] = i == C + 5 ? NAN : (float)(i % 7);
    struct NormForward a = {
        .rows = 3, .c = C, .dtype = d, .eps = 1e-5f, .x = input_values(r, d, 3 * C, x)};
    a.weight = input_random(r, d, C, 1, 0.1f);
    a.y = output_poison(r, "y", d, 3 * C, 0);
    if (!*(const bool *)rms) {
        a.bias = input_random(r, d, C, 0, 1);
        a.mean = output_poison(r, "mean", F32, 3, 0);
    }
    a.rstd = output_poison(r, "rstd", F32, 3, 0);
    queue_forward(r, &a);
    run_finish(r);
    for (size_t i = 0; i < 3 * C; i++)
        if (isnan(dtype_load(run_result(r, "y"), d, i)) != (i / C == 1))
            fail_msg("%s %s: y[%zu]: NaN belongs to row 1", r->device->kernels->name, dtype_name(d),
                     i);
}

TEST(test_nan) {
    static const bool rms[] = {false, true};
    rig_each(*state, nan_body, &rms[0]);
    rig_each(*state, nan_body, &rms[1]);
}

AROUND_ALL(rig_setup, rig_teardown);
