// Rotary position embedding with and without the norms of heads, forward and backward, in every
// table: against the oracle, PyTorch, finite differences of the oracle, and what a rotation must
// do.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

enum Norms { NONE, QUERIES, KEYS, BOTH };

struct Shape {
    size_t b, t, nh, nkv, hs;
    enum Norms norms;
    bool in_place;                          // forward: y is x
    bool accumulate, grad_fp32, no_weights; // backward; the last: dx alone
};

static size_t qkv_size(const struct Shape *s) {
    return s->b * s->t * (s->nh + 2 * s->nkv) * s->hs;
}

// cos and sin of t / 10000^(2 i / HS), for T rows of HS / 2 pairs.
static const float *angles(struct Run *r, size_t t, size_t hs) {
    float *table = base_alloc(t * hs * sizeof *table);
    for (size_t at = 0; at < t * hs / 2; at++) {
        double pair = (double)(at % (hs / 2)), angle = (double)(at / (hs / 2));
        angle *= pow(10000, -2 * pair / (double)hs);
        table[2 * at] = (float)cos(angle);
        table[2 * at + 1] = (float)sin(angle);
    }
    const float *mem = input_values(r, F32, t * hs, table);
    free(table);
    return mem;
}

static void queue_backward(struct Run *r, struct RotateBackward *a) {
    a->work = scratch(r, r->device->kernels->rotate_backward_work(r->device, a));
    r->device->kernels->rotate_backward(compute(r), a);
}

static void forward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    size_t size = qkv_size(s);
    struct RotateForward a = {s->b, s->t, s->nh, s->nkv, s->hs, d, .eps = 1e-6f};
    a.table = angles(r, s->t, s->hs);
    if (s->norms & QUERIES)
        a.q_norm = input_random(r, d, s->hs, 1, 0.3f);
    if (s->norms & KEYS)
        a.k_norm = input_random(r, d, s->hs, 0.5f, 0.3f);
    a.x = s->in_place ? output_random(r, "y", d, size, 4) : input_random(r, d, size, 0.2f, 1);
    a.y = s->in_place ? (void *)a.x : output_poison(r, "y", d, size, 4);
    r->device->kernels->rotate_forward(compute(r), &a);
}

static void backward_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    struct RotateBackward a = {s->b, s->t, s->nh, s->nkv, s->hs, d, .eps = 1e-6f};
    a.grad_dtype = s->grad_fp32 ? F32 : d;
    a.accumulate = s->accumulate;
    a.table = angles(r, s->t, s->hs);
    a.dy = output_random(r, "dy", d, qkv_size(s), 8);
    if (s->norms)
        a.x = input_random(r, d, qkv_size(s), 0.2f, 1);
    double rows = (double)(s->b * s->t);
    if (s->norms & QUERIES) {
        a.q_norm = input_random(r, d, s->hs, 1, 0.3f);
        if (!s->no_weights)
            a.dq_norm = output_random(r, "dq_norm", a.grad_dtype, s->hs,
                                      8 + 4 * sqrt(rows * (double)s->nh));
    }
    if (s->norms & KEYS) {
        a.k_norm = input_random(r, d, s->hs, 0.5f, 0.3f);
        if (!s->no_weights)
            a.dk_norm = output_random(r, "dk_norm", a.grad_dtype, s->hs,
                                      8 + 4 * sqrt(rows * (double)s->nkv));
    }
    queue_backward(r, &a);
}

TEST(test_oracle) {
    static const struct Shape shapes[] = {
        {1, 1, 1, 1, 2, NONE, false, false, false, false},
        {2, 5, 3, 1, 2, BOTH, false, true, false, false},
        {1, 7, 4, 2, 6, NONE, true, false, false, false},
        {3, 17, 4, 2, 6, BOTH, false, false, true, false},
        {2, 17, 6, 2, 80, QUERIES, false, true, true, false},
        {2, 17, 6, 3, 80, KEYS, false, false, false, false},
        {2, 33, 3, 3, 80, NONE, true, false, false, false},
        {2, 65, 4, 1, 128, BOTH, false, true, false, false},
        {1, 67, 8, 2, 128, BOTH, false, false, true, true},
        {2, 33, 5, 5, 64, NONE, false, false, false, false},
        {1, 9, 2, 1, 256, BOTH, false, false, false, false}, // all lanes of a warp, on a GPU
        {1, 9, 2, 1, 250, BOTH, false, false, true, false},
        {1, 5, 24, 8, 128, BOTH, false, true, false, false}, // several warps a block, on a GPU
        {2, 3, 70, 3, 80, BOTH, false, false, true, false},
        {5, 211, 2, 1, 16, BOTH, false, true, false, false}, // many rows for each chunk of the sums
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        rig_check(*state, forward_body, &shapes[i], true);
        rig_check(*state, backward_body, &shapes[i], true);
    }
}

// rig_check knows one thread and two; with three, chunks and rows fall to them unevenly.
TEST(test_three_threads) {
    static const struct Shape shape = {3, 67, 4, 2, 80, BOTH, false, true, false, false};
    static const char *const results[] = {"dy", "dq_norm", "dk_norm"};
    struct Error e = {0};
    for (enum Dtype d = F32; d < NDTYPE; d++) {
        struct Device *device[2];
        struct Run run[2];
        for (int i = 0; i < 2; i++) {
            CHECK(device_open_cpu(&device[i], i ? 3 : 1, NULL, &e) == 0, "%s", e.text);
            run_init(&run[i], device[i], true);
            backward_body(&run[i], d, &shape);
            run_finish(&run[i]);
        }
        for (size_t k = 0; k < 3; k++) {
            size_t n = k ? shape.hs : qkv_size(&shape);
            if (memcmp(run_result(&run[0], results[k]), run_result(&run[1], results[k]),
                       n * dtype_size(d)) != 0)
                fail_msg("%s: %s has other bits with three threads", dtype_name(d), results[k]);
        }
        for (int i = 0; i < 2; i++) {
            run_close(&run[i]);
            device_close(device[i]);
        }
    }
}

// ---- PyTorch ----

enum { B = 2, T = 5, NH = 4, NKV = 2, HS = 10, SIZE = B * T * (NH + 2 * NKV) * HS };

static void torch_plain_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    struct RotateForward f = {B, T, NH, NKV, HS, d, .table = NULL};
    f.table = input_values(r, F32, T * HS, values_f32(v, "rotate_table", T * HS));
    f.x = input_values(r, d, SIZE, values_f32(v, "rotate_x", SIZE));
    f.y = output_poison(r, "y", d, SIZE, 0);
    r->device->kernels->rotate_forward(compute(r), &f);
    struct RotateBackward a = {B, T, NH, NKV, HS, d, d, .table = f.table};
    a.dy = output_values(r, "dx", d, SIZE, 0, values_f32(v, "rotate_dy", SIZE));
    queue_backward(r, &a);
    run_finish(r);
    run_expect(r, "y", "PyTorch", values_f32(v, "rotate_y", SIZE), d == F32 ? 2 : 1);
    run_expect(r, "dx", "PyTorch", values_f32(v, "rotate_dx", SIZE), d == F32 ? 2 : 1);
}

static void torch_normed_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    struct RotateForward f = {B, T, NH, NKV, HS, d, .eps = 1e-6f};
    f.table = input_values(r, F32, T * HS, values_f32(v, "rotate_table", T * HS));
    f.q_norm = input_values(r, d, HS, values_f32(v, "rotate_q_norm", HS));
    f.k_norm = input_values(r, d, HS, values_f32(v, "rotate_k_norm", HS));
    f.x = input_values(r, d, SIZE, values_f32(v, "rotate_x", SIZE));
    f.y = output_poison(r, "y", d, SIZE, 0);
    r->device->kernels->rotate_forward(compute(r), &f);
    struct RotateBackward a = {B,    T,       NH,  NKV,      HS,       d,           d,
                               NULL, f.table, f.x, f.q_norm, f.k_norm, .eps = f.eps};
    a.dy = output_values(r, "dx", d, SIZE, 0, values_f32(v, "rotate_dy", SIZE));
    a.dq_norm = output_poison(r, "dq_norm", d, HS, 0);
    a.dk_norm = output_poison(r, "dk_norm", d, HS, 0);
    queue_backward(r, &a);
    run_finish(r);
    run_expect(r, "y", "PyTorch", values_f32(v, "rotate_normed_y", SIZE), d == F32 ? 8 : 1);
    run_expect(r, "dx", "PyTorch", values_f32(v, "rotate_normed_dx", SIZE), d == F32 ? 8 : 1);
    run_expect(r, "dq_norm", "PyTorch", values_f32(v, "rotate_dq_norm", HS), d == F32 ? 8 : 1);
    run_expect(r, "dk_norm", "PyTorch", values_f32(v, "rotate_dk_norm", HS), d == F32 ? 8 : 1);
}

TEST(test_torch) {
    const struct Rig *rig = *state;
    rig_each(rig, torch_plain_body, rig->values);
    rig_each(rig, torch_normed_body, rig->values);
}

// ---- what a rotation must do ----

// By an angle of 0 nothing changes: the first row of every sequence, and here all of them.
static void still_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    size_t size = qkv_size(s);
    float *table = base_alloc(s->t * s->hs * sizeof *table);
    for (size_t i = 0; i < s->t * s->hs; i++)
        table[i] = i % 2 == 0;
    struct RotateForward f = {s->b, s->t, s->nh, s->nkv, s->hs, d, .table = NULL};
    f.table = input_values(r, F32, s->t * s->hs, table);
    free(table);
    f.x = input_random(r, d, size, 0, 1);
    f.y = output_poison(r, "y", d, size, 0);
    r->device->kernels->rotate_forward(compute(r), &f);
    struct RotateBackward a = {s->b, s->t, s->nh, s->nkv, s->hs, d, d, .table = f.table};
    a.dy = f.y;
    queue_backward(r, &a);
    run_finish(r);
    const char *x = r->operand[1].end + r->operand[1].at_bytes;
    if (memcmp(run_result(r, "y"), x, size * dtype_size(d)) != 0)
        fail_msg("%s %s: a rotation by 0 changes bits", r->device->kernels->name, dtype_name(d));
}

static double pair_norm(const void *x, enum Dtype d, size_t at, size_t half) {
    return hypot(dtype_load(x, d, at), dtype_load(x, d, at + half));
}

// Each pair keeps its length (but for the rounding of the table: cos^2 + sin^2 is 1 to 2^-23), and
// backward of forward is where it began; values keep their bits.
static void turned_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    size_t size = qkv_size(s), half = s->hs / 2, heads = s->nh + 2 * s->nkv;
    struct RotateForward f = {s->b, s->t, s->nh, s->nkv, s->hs, d, .table = angles(r, s->t, s->hs)};
    f.x = input_random(r, d, size, 0, 1);
    f.y = output_poison(r, "y", d, size, 0);
    void *again = output_poison(r, "again", d, size, 0);
    r->device->kernels->rotate_forward(compute(r), &f);
    device_copy(r->device, QUEUE_COMPUTE, again, f.y, size * dtype_size(d));
    struct RotateBackward a = {s->b, s->t, s->nh, s->nkv, s->hs, d, d, .table = f.table};
    a.dy = again;
    queue_backward(r, &a);
    run_finish(r);
    const void *x = r->operand[1].end + r->operand[1].at_bytes;
    for (size_t i = 0; i < size; i++) {
        size_t first = i / s->hs * s->hs + i % half;
        double before = pair_norm(x, d, first, half),
               limit = (d == F32 ? 8 : 3) * dtype_unit(d) * before;
        double got = dtype_load(run_result(r, "again"), d, i), want = dtype_load(x, d, i);
        if (i / s->hs % heads >= s->nh + s->nkv)
            limit = 0;
        else if (!(fabs(pair_norm(run_result(r, "y"), d, first, half) - before) <= limit))
            fail_msg("%s %s: the pair at %zu has another length", r->device->kernels->name,
                     dtype_name(d), first);
        if (!(fabs(got - want) <= limit))
            fail_msg("%s %s: element %zu turned there and back is %g, was %g",
                     r->device->kernels->name, dtype_name(d), i, got, want);
    }
}

TEST(test_rotations) {
    static const struct Shape shapes[] = {
        {.b = 2, .t = 17, .nh = 3, .nkv = 1, .hs = 6},
        {.b = 1, .t = 33, .nh = 2, .nkv = 2, .hs = 80},
        {.b = 2, .t = 9, .nh = 4, .nkv = 2, .hs = 128},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        rig_each(*state, still_body, &shapes[i]);
        rig_each(*state, turned_body, &shapes[i]);
    }
}

// ---- finite differences of the oracle; the loss is the sum of y * dy ----

enum { FB = 2, FT = 3, FNH = 2, FNKV = 1, FHS = 6, FSIZE = FB * FT * (FNH + 2 * FNKV) * FHS };
struct Layer {
    struct Device *oracle;
    bool normed;
    float table[FT * FHS], x[FSIZE], q_norm[FHS], k_norm[FHS], y[FSIZE], dy[FSIZE];
};

static double layer_loss(void *context) {
    struct Layer *l = context;
    struct RotateForward a = {FB, FT, FNH, FNKV, FHS, F32, .table = l->table, .eps = 1e-3f};
    a.x = l->x;
    a.y = l->y;
    a.q_norm = l->normed ? l->q_norm : NULL;
    a.k_norm = l->normed ? l->k_norm : NULL;
    l->oracle->kernels->rotate_forward(l->oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l->oracle, QUEUE_COMPUTE);
    return rig_dot(l->y, l->dy, FSIZE);
}

static void check_slopes(struct Layer *l) {
    float dx[FSIZE], dq_norm[FHS], dk_norm[FHS];
    memcpy(dx, l->dy, sizeof dx);
    struct RotateBackward a = {FB, FT, FNH, FNKV, FHS, F32, F32, .table = l->table, .eps = 1e-3f};
    a.x = l->x;
    a.dy = dx;
    if (l->normed) {
        a.q_norm = l->q_norm;
        a.k_norm = l->k_norm;
        a.dq_norm = dq_norm;
        a.dk_norm = dk_norm;
    }
    l->oracle->kernels->rotate_backward(l->oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l->oracle, QUEUE_COMPUTE);
    struct RigSlopes s = {layer_loss, l, 0x1p-6f, 3e-4, 1};
    rig_expect_slopes(&s, "dx", l->x, dx, FSIZE);
    if (l->normed) {
        rig_expect_slopes(&s, "dq_norm", l->q_norm, dq_norm, FHS);
        rig_expect_slopes(&s, "dk_norm", l->k_norm, dk_norm, FHS);
    }
}

TEST(test_finite_differences) {
    const struct Rig *rig = *state;
    struct Layer l = {.oracle = rig->device[0][0]};
    for (size_t i = 0; i < FSIZE; i++) {
        l.x[i] = rng_normal(1, i);
        l.dy[i] = rng_normal(2, i);
    }
    for (size_t i = 0; i < FHS; i++) {
        l.q_norm[i] = 1 + 0.3f * rng_normal(3, i);
        l.k_norm[i] = 1 + 0.3f * rng_normal(4, i);
    }
    for (size_t i = 0; i < FT * FHS; i++)
        l.table[i] = i % 2 ? sinf((float)(i / 2)) : cosf((float)(i / 2));
    for (int normed = 0; normed < 2; normed++) {
        l.normed = normed;
        check_slopes(&l);
    }
}

AROUND_ALL(rig_setup, rig_teardown);
