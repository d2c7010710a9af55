// SwiGLU, forward and backward, in every table: against the oracle, PyTorch, the formula at every
// number of 16 bits, and finite differences of the oracle.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

struct Shape {
    size_t rows, n;
    bool in_place; // dx is x
};

static void queue_forward(struct Run *r, const struct SwigluForward *a) {
    r->device->kernels->swiglu_forward(r->device->queue[QUEUE_COMPUTE], a);
}

static void queue_backward(struct Run *r, const struct SwigluBackward *a) {
    r->device->kernels->swiglu_backward(r->device->queue[QUEUE_COMPUTE], a);
}

static void forward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    struct SwigluForward a = {.rows = s->rows, .n = s->n, .dtype = d};
    a.x = input_random(r, d, s->rows * 2 * s->n, 0, 2);
    a.y = output_poison(r, "y", d, s->rows * s->n, 1);
    queue_forward(r, &a);
}

static void backward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    size_t size = s->rows * 2 * s->n;
    struct SwigluBackward a = {.rows = s->rows, .n = s->n, .dtype = d};
    a.dy = input_random(r, d, s->rows * s->n, 0, 1);
    a.x = s->in_place ? output_random(r, "dx", d, size, 2) : input_random(r, d, size, 0, 2);
    a.dx = s->in_place ? (void *)a.x : output_poison(r, "dx", d, size, 2);
    queue_backward(r, &a);
}

TEST(test_oracle) {
    static const struct Shape shapes[] = {
        {1, 1, false},   {1, 8, false},    {3, 7, true},     {17, 36, false},  {17, 36, true},
        {5, 129, false}, {34, 1003, true}, {3, 2056, false}, {301, 264, true}, {2, 4099, false},
        {7, 3072, true}, {1, 20008, true}, // more than a block's piece of a GPU
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        rig_check(*state, forward_body, &shapes[i], true);
        rig_check(*state, backward_body, &shapes[i], true);
    }
}

// ---- the formula ----

// Every fp16 number, or every bf16 number (also as fp32), as a gate; u and dy are a power of 2.
enum { ALL = 65536 };
static const float UP = 2, DY = 0.5f;

// `terms`: of the sum that the value is, which may cancel; their errors stay. e^-g is as far off as
// its argument.
static void expect_close(const struct Run *r, const char *what, float g, double got, double want,
                         double terms) {
    enum Dtype d = r->operand[0].dtype;
    double unit = d == F32 ? 0x1p-21 * fmax(1, fabs(g)) : 1.07 * dtype_unit(d);
    double limit = unit * fabs(want) + fmax(1.1 * dtype_least(d), 0x1p-118);
    limit += (d == F32 ? 0x1p-22 : 0x1p-17) * terms;
    if (isnan(g) ? !isnan(got) : isfinite(g) && isfinite(want) && !(fabs(got - want) <= limit))
        fail_msg("%s %s: %s at gate %g is %g, should be %g", r->device->kernels->name,
                 dtype_name(d), what, g, got, want);
}

static void all_body(struct Run *r, enum Dtype d, const void *shape) {
    (void)shape;
    static float x[2 * ALL], dy[ALL];
    for (uint32_t i = 0; i < ALL; i++) {
        x[i] = d == F16 ? f32_from_f16((uint16_t)i) : f32_from_bf16((uint16_t)i);
        x[ALL + i] = UP;
        dy[i] = DY;
    }
    struct SwigluForward f = {1, ALL, d, input_values(r, d, 2 * ALL, x), NULL};
    f.y = output_poison(r, "y", d, ALL, 0);
    queue_forward(r, &f);
    struct SwigluBackward a = {1, ALL, d, f.x, input_values(r, d, ALL, dy), NULL};
    a.dx = output_poison(r, "dx", d, 2 * ALL, 0);
    queue_backward(r, &a);
    run_finish(r);
    const void *y = run_result(r, "y"), *dx = run_result(r, "dx");
    double most = d == F16 ? 65504 : 3e38;
    for (size_t i = 0; i < ALL; i++) {
        double g = x[i], s = 1 / (1 + exp(-g)), silu = g * s, second = silu / (1 + exp(g));
        if (fabs(silu * UP) < most)
            expect_close(r, "y", x[i], dtype_load(y, d, i), silu * UP, 0);
        expect_close(r, "dg", x[i], dtype_load(dx, d, i), DY * UP * (s + second), s + fabs(second));
        expect_close(r, "du", x[i], dtype_load(dx, d, ALL + i), DY * silu, 0);
    }
}

TEST(test_every_gate) {
    rig_each(*state, all_body, NULL);
}

// ---- PyTorch ----

enum { TR = 17, TN = 36 };

static void torch_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    struct SwigluForward f = {.rows = TR, .n = TN, .dtype = d};
    f.x = input_values(r, d, TR * 2 * TN, values_f32(v, "swiglu_x", TR * 2 * TN));
    f.y = output_poison(r, "y", d, TR * TN, 0);
    queue_forward(r, &f);
    struct SwigluBackward a = {.rows = TR, .n = TN, .dtype = d, .x = f.x};
    a.dy = input_values(r, d, TR * TN, values_f32(v, "swiglu_dy", TR * TN));
    a.dx = output_poison(r, "dx", d, TR * 2 * TN, 0);
    queue_backward(r, &a);
    run_finish(r);
    run_expect(r, "y", "PyTorch", values_f32(v, "swiglu_y", TR * TN), d == F32 ? 4 : 1);
    run_expect(r, "dx", "PyTorch", values_f32(v, "swiglu_dx", TR * 2 * TN), d == F32 ? 4 : 1);
}

TEST(test_torch) {
    const struct Rig *rig = *state;
    rig_each(rig, torch_body, rig->values);
}

// ---- finite differences of the oracle; the loss is the sum of y * dy ----

enum { FR = 3, FN = 7 };
struct Layer {
    struct Device *oracle;
    float x[FR * 2 * FN], y[FR * FN], dy[FR * FN];
};

static double layer_loss(void *context) {
    struct Layer *l = context;
    struct SwigluForward a = {FR, FN, F32, l->x, l->y};
    l->oracle->kernels->swiglu_forward(l->oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l->oracle, QUEUE_COMPUTE);
    return rig_dot(l->y, l->dy, FR * FN);
}

TEST(test_finite_differences) {
    const struct Rig *rig = *state;
    struct Layer l = {.oracle = rig->device[0][0]};
    for (size_t i = 0; i < FR * 2 * FN; i++)
        l.x[i] = 2 * rng_normal(1, i);
    for (size_t i = 0; i < FR * FN; i++)
        l.dy[i] = rng_normal(2, i);
    float dx[FR * 2 * FN];
    struct SwigluBackward a = {FR, FN, F32, l.x, l.dy, dx};
    l.oracle->kernels->swiglu_backward(l.oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l.oracle, QUEUE_COMPUTE);
    struct RigSlopes s = {layer_loss, &l, 0x1p-5f, 1e-4, 1};
    rig_expect_slopes(&s, "dx", l.x, dx, FR * 2 * FN);
}

AROUND_ALL(rig_setup, rig_teardown);
