// The matmul kernel of every table: against the oracle, PyTorch, and finite differences of the
// oracle. Odd sizes and all transpositions against a triple loop in double are in
// test_matmul_edges.c.
#include "kernels/cpu/matmul.h"
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>

struct Shape {
    size_t m, n, k;
    bool ta, tb, accumulate, bias, dgelu, gelu, dbias;
    bool c_fp32; // also with bf16 operands, as for gradients kept in fp32
    size_t gap;  // unused columns at the end of each row
    size_t k2;   // of a second pair; 0: none
    bool ta2, tb2;
};

static struct Mat operand(struct Run *r, enum Dtype d, size_t rows, size_t cols, bool transposed,
                          size_t gap) {
    size_t ld = (transposed ? rows : cols) + gap, count = transposed ? cols : rows;
    return (struct Mat){input_random(r, d, count * ld, 0, 1), d, ld, transposed, NULL};
}

// A rounded pre-activation that lands one step aside moves its GELU by as much, however small that
// is.
static double gelu_slack(enum Dtype d, double slack) {
    return d == F32 ? slack : slack + 2 * dtype_unit(d) / 0x1p-24;
}

// A GPU's second product is rounded to C's format before the first is added to it.
static double second_slack(const struct Run *r, enum Dtype d, const struct Shape *s) {
    bool rounds = s->k2 && d != F32 && strncmp(r->device->name, "cuda", 4) == 0;
    return rounds ? dtype_unit(d) / 0x1p-24 : 0;
}

static void matmul_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    enum Dtype cd = s->c_fp32 ? F32 : d;
    double slack = 4 * sqrt((double)(s->k + s->k2)) + second_slack(r, cd, s);
    size_t ld = s->n + s->gap, size = s->m * ld;
    struct Matmul a = {.m = s->m, .n = s->n, .k = s->k, .k2 = s->k2, .accumulate = s->accumulate};
    a.a = operand(r, d, s->m, s->k, s->ta, s->gap);
    a.b = operand(r, d, s->k, s->n, s->tb, s->gap);
    if (s->k2) {
        a.a2 = operand(r, d, s->m, s->k2, s->ta2, s->gap + s->k2); // as one of two adapters'
        a.b2 = operand(r, d, s->k2, s->n, s->tb2, s->gap);
    }
    a.c = (struct Mat){output_random(r, "c", cd, size, slack), cd, ld, false, NULL};
    a.bias = s->bias ? input_random(r, d, s->n, 0, 1) : NULL;
    a.dgelu = s->dgelu ? input_random(r, cd, size, 0, 1) : NULL;
    a.gelu = s->gelu ? output_poison(r, "gelu", cd, size, gelu_slack(cd, slack)) : NULL;
    a.dbias = s->dbias ? output_random(r, "dbias", cd, s->m, slack) : NULL;
    a.work = scratch(r, r->device->kernels->matmul_work(r->device, &a));
    r->device->kernels->matmul(r->device->queue[QUEUE_COMPUTE], &a);
}

TEST(test_oracle) {
    static const struct Shape shapes[] = {
        {.m = 1, .n = 1, .k = 1},
        {.m = 17, .n = 36, .k = 29, .tb = true, .bias = true},
        {.m = 17, .n = 144, .k = 36, .tb = true, .bias = true, .gelu = true},
        {.m = 17, .n = 36, .k = 144, .tb = true, .bias = true, .gelu = true, .gap = 3},
        {.m = 34, .n = 36, .k = 108},
        {.m = 34, .n = 144, .k = 36, .dgelu = true},
        {.m = 34, .n = 144, .k = 36, .dgelu = true, .accumulate = true, .gap = 5},
        {.m = 108, .n = 36, .k = 34, .ta = true, .dbias = true},
        {.m = 108, .n = 36, .k = 34, .ta = true, .dbias = true, .accumulate = true},
        {.m = 108, .n = 36, .k = 34, .ta = true, .dbias = true, .accumulate = true, .c_fp32 = true},
        {.m = 65, .n = 33, .k = 257, .ta = true, .tb = true, .c_fp32 = true},
        {.m = 70, .n = 104, .k = 300, .tb = true, .bias = true, .gelu = true},
        {.m = 70, .n = 104, .k = 500, .tb = true, .bias = true, .gap = 1},
        {.m = 50, .n = 100, .k = 1100, .ta = true, .dbias = true, .accumulate = true},
        {.m = 50, .n = 100, .k = 1100, .ta = true, .accumulate = true, .c_fp32 = true},
        // The head of GPT-2 and its two gradients, with few channels.
        {.m = 3, .n = 50257, .k = 5, .tb = true, .gap = 47},
        {.m = 3, .n = 5, .k = 50304},
        {.m = 50304, .n = 5, .k = 3, .ta = true, .accumulate = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_check(*state, matmul_body, &shapes[i], false);
}

// As the products of a matrix with an adapter (model/adapter_ops.c) and more: k2 of a few steps,
// odd, of several passes, longer than k, and where k itself is divided.
TEST(test_second_pair) {
    static const struct Shape shapes[] = {
        {.m = 1, .n = 1, .k = 1, .k2 = 1},
        {.m = 17, .n = 36, .k = 29, .tb = true, .k2 = 4, .tb2 = true, .bias = true},
        {.m = 33, .n = 144, .k = 64, .tb = true, .k2 = 16, .tb2 = true, .bias = true, .gelu = true},
        {.m = 70, .n = 104, .k = 300, .tb = true, .k2 = 48, .tb2 = true, .gelu = true, .gap = 5},
        {.m = 70, .n = 104, .k = 300, .k2 = 16, .dgelu = true},
        {.m = 300, .n = 96, .k = 576, .k2 = 48, .dgelu = true, .gap = 8},
        {.m = 40, .n = 200, .k = 515, .k2 = 7, .c_fp32 = true, .dgelu = true, .gap = 3},
        {.m = 200, .n = 70, .k = 1100, .tb = true, .k2 = 13, .tb2 = true, .bias = true},
        {.m = 65, .n = 33, .k = 3, .ta = true, .k2 = 1700, .ta2 = true},
        {.m = 33, .n = 65, .k = 400, .k2 = 900, .tb2 = true, .bias = true, .gelu = true},
        {.m = 2, .n = 3, .k = 110000, .tb = true, .k2 = 16, .tb2 = true},
        {.m = 3, .n = 2, .k = 110000, .k2 = 3000, .bias = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_check(*state, matmul_body, &shapes[i], false);
}

// As the products of a tall matrix with an adapter's: few columns, and rows of A that AMX may read
// where they lie. Behind each is what is no number.
static void narrow_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    size_t ld = s->k + s->gap;
    struct Matmul a = {.m = s->m, .n = s->n, .k = s->k, .k2 = s->k2};
    float *x = base_alloc(s->m * ld * sizeof *x);
    for (size_t i = 0; i < s->m * ld; i++)
        x[i] = i % ld < s->k ? rng_normal(5, i) : NAN;
    a.a = (struct Mat){input_values(r, d, s->m * ld, x), d, ld, false, NULL};
    free(x);
    a.b = operand(r, d, s->k, s->n, s->tb, 0);
    double slack = 4 * sqrt((double)(s->k + s->k2)) + second_slack(r, d, s);
    if (s->k2) {
        a.a2 = operand(r, d, s->m, s->k2, false, 0);
        a.b2 = operand(r, d, s->k2, s->n, s->tb2, 0);
    }
    a.c = (struct Mat){output_poison(r, "c", d, s->m * s->n, slack), d, s->n, false, NULL};
    a.dbias = s->dbias ? output_poison(r, "dbias", d, s->m, slack) : NULL;
    a.work = scratch(r, r->device->kernels->matmul_work(r->device, &a));
    r->device->kernels->matmul(r->device->queue[QUEUE_COMPUTE], &a);
}

TEST(test_narrow) {
    static const struct Shape shapes[] = {
        {.m = 64, .n = 16, .k = 96, .gap = 32, .tb = true},
        {.m = 64, .n = 48, .k = 100, .gap = 28, .tb = true},
        {.m = 96, .n = 16, .k = 576, .gap = 64},
        {.m = 33, .n = 16, .k = 64, .gap = 64, .tb = true},
        {.m = 64, .n = 16, .k = 63, .gap = 2},
        {.m = 160, .n = 64, .k = 1600, .gap = 8},
        {.m = 64, .n = 16, .k = 96, .gap = 32, .dbias = true},
        {.m = 64, .n = 48, .k = 576, .gap = 32, .tb = true, .k2 = 16, .tb2 = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_check(*state, narrow_body, &shapes[i], false);
}

// The GELU that an epilogue stores has the bits of gelu_forward of the stored C: a forward pass
// that makes the GELU again in the backward pass depends on it.
static void gelu_bits_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    const struct Kernels *kernels = r->device->kernels;
    struct Stream *q = r->device->queue[QUEUE_COMPUTE];
    size_t size = s->m * s->n;
    struct Matmul a = {.m = s->m, .n = s->n, .k = s->k};
    a.a = operand(r, d, s->m, s->k, false, 0);
    a.b = operand(r, d, s->k, s->n, true, 0);
    a.c = (struct Mat){output_poison(r, "c", d, size, 0), d, s->n, false, NULL};
    a.bias = input_random(r, d, s->n, 0, 1);
    a.gelu = output_poison(r, "gelu", d, size, 0);
    a.work = scratch(r, kernels->matmul_work(r->device, &a));
    struct GeluForward g = {size, d, a.c.data, output_poison(r, "again", d, size, 0)};
    kernels->matmul(q, &a);
    kernels->gelu_forward(q, &g);
    run_finish(r);
    if (memcmp(run_result(r, "gelu"), run_result(r, "again"), size * dtype_size(d)) != 0)
        fail_msg("%s %s: an epilogue's GELU has other bits than gelu_forward", kernels->name,
                 dtype_name(d));
}

TEST(test_gelu_bits) {
    static const struct Shape shapes[] = {
        {.m = 17, .n = 37, .k = 5}, {.m = 64, .n = 256, .k = 3}, {.m = 130, .n = 515, .k = 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        rig_each(*state, gelu_bits_body, &shapes[i]);
}

// The layer of the values file: Y (17, 36) = X (17, 29) W^T + b, H = GELU(Y).
enum { R = 17, N = 36, K = 29 };

static struct Mat mat(void *data, enum Dtype d, size_t ld, bool transposed) {
    return (struct Mat){data, d, ld, transposed, NULL};
}

static void queue_matmul(struct Run *r, struct Matmul *a) {
    a->work = scratch(r, r->device->kernels->matmul_work(r->device, a));
    r->device->kernels->matmul(r->device->queue[QUEUE_COMPUTE], a);
}

static void torch_forward_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    struct Matmul a = {.m = R, .n = N, .k = K};
    a.a = mat(input_values(r, d, R * K, values_f32(v, "linear_x", R * K)), d, K, false);
    a.b = mat(input_values(r, d, N * K, values_f32(v, "linear_w", N * K)), d, K, true);
    a.bias = input_values(r, d, N, values_f32(v, "linear_b", N));
    a.c = mat(output_poison(r, "y", d, R * N, 0), d, N, false);
    a.gelu = output_poison(r, "h", d, R * N, 0);
    queue_matmul(r, &a);
    run_finish(r);
    run_expect(r, "y", "PyTorch", values_f32(v, "linear_y", R * N), d == F32 ? 8 : 1);
    run_expect(r, "h", "PyTorch", values_f32(v, "linear_h", R * N), d == F32 ? 8 : 2);
}

static void torch_backward_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    void *x = input_values(r, d, R * K, values_f32(v, "linear_x", R * K));
    void *w = input_values(r, d, N * K, values_f32(v, "linear_w", N * K));
    void *dy = input_values(r, d, R * N, values_f32(v, "linear2_dy", R * N));
    struct Matmul dx = {
        .m = R, .n = K, .k = N, .a = mat(dy, d, N, false), .b = mat(w, d, K, false)};
    dx.c = mat(output_poison(r, "dx", d, R * K, 0), d, K, false);
    queue_matmul(r, &dx);
    struct Matmul dw = {.m = N, .n = K, .k = R, .a = mat(dy, d, N, true), .b = mat(x, d, K, false)};
    dw.c = mat(output_poison(r, "dw", d, N * K, 0), d, K, false);
    dw.dbias = output_poison(r, "db", d, N, 0);
    queue_matmul(r, &dw);
    run_finish(r);
    run_expect(r, "dx", "PyTorch", values_f32(v, "linear2_dx", R * K), d == F32 ? 8 : 1);
    run_expect(r, "dw", "PyTorch", values_f32(v, "linear2_dw", N * K), d == F32 ? 8 : 1);
    run_expect(r, "db", "PyTorch", values_f32(v, "linear2_db", N), d == F32 ? 8 : 1);
}

// dY = dH times the GELU's slope at Y, where dH is the product of itself with the identity.
static void torch_dgelu_body(struct Run *r, enum Dtype d, const void *values) {
    const struct Values *v = values;
    float identity[N * N] = {0};
    for (size_t i = 0; i < N; i++)
        identity[i * N + i] = 1;
    struct Matmul a = {.m = R, .n = N, .k = N};
    a.a = mat(input_values(r, d, R * N, values_f32(v, "linear_dh", R * N)), d, N, false);
    a.b = mat(input_values(r, d, N * N, identity), d, N, false);
    a.dgelu = input_values(r, d, R * N, values_f32(v, "linear_y", R * N));
    a.c = mat(output_poison(r, "dy", d, R * N, 0), d, N, false);
    queue_matmul(r, &a);
    run_finish(r);
    run_expect(r, "dy", "PyTorch", values_f32(v, "linear_dy", R * N), d == F32 ? 8 : 2);
}

TEST(test_torch) {
    const struct Rig *rig = *state;
    rig_each(rig, torch_forward_body, rig->values);
    rig_each(rig, torch_backward_body, rig->values);
    rig_each(rig, torch_dgelu_body, rig->values);
}

// A layer on host arrays, for finite differences: its loss is the sum of H * r.
struct Layer {
    struct Device *oracle;
    float x[R * K], w[N * K], b[N], r[R * N], y[R * N], h[R * N];
};

static double layer_loss(void *context) {
    struct Layer *l = context;
    struct Matmul a = {.m = R, .n = N, .k = K, .bias = l->b, .gelu = l->h};
    a.a = mat(l->x, F32, K, false);
    a.b = mat(l->w, F32, K, true);
    a.c = mat(l->y, F32, N, false);
    l->oracle->kernels->matmul(l->oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l->oracle, QUEUE_COMPUTE);
    return rig_dot(l->h, l->r, R * N);
}

TEST(test_finite_differences) {
    const struct Rig *rig = *state;
    struct Layer l = {.oracle = rig->device[0][0]};
    for (size_t i = 0; i < R * N; i++) {
        l.x[i % (R * K)] = rng_normal(1, i);
        l.r[i] = rng_normal(2, i);
    }
    for (size_t i = 0; i < N * K; i++)
        l.w[i] = 0.2f * rng_normal(3, i);
    for (size_t i = 0; i < N; i++)
        l.b[i] = rng_normal(4, i);
    layer_loss(&l);
    float identity[N * N] = {0}, dy[R * N], dx[R * K], dw[N * K], db[N];
    for (size_t i = 0; i < N; i++)
        identity[i * N + i] = 1;
    struct Matmul back[3] = {
        {.m = R, .n = N, .k = N, .a = mat(l.r, F32, N, false), .b = mat(identity, F32, N, false)},
        {.m = R, .n = K, .k = N, .a = mat(dy, F32, N, false), .b = mat(l.w, F32, K, false)},
        {.m = N, .n = K, .k = R, .a = mat(dy, F32, N, true), .b = mat(l.x, F32, K, false)}};
    back[0].c = mat(dy, F32, N, false);
    back[1].c = mat(dx, F32, K, false);
    back[2].c = mat(dw, F32, K, false);
    back[0].dgelu = l.y;
    back[2].dbias = db;
    for (int i = 0; i < 3; i++)
        l.oracle->kernels->matmul(l.oracle->queue[QUEUE_COMPUTE], &back[i]);
    device_sync_queue(l.oracle, QUEUE_COMPUTE);
    struct RigSlopes all = {layer_loss, &l, 0x1p-5f, 1e-4, 1}, some = all;
    some.every = 7; // which divides no row: all columns have their turn
    rig_expect_slopes(&some, "dx", l.x, dx, R * K);
    rig_expect_slopes(&some, "dw", l.w, dw, N * K);
    rig_expect_slopes(&all, "db", l.b, db, N);
}

// One NaN in A makes its row of C NaN, and no other: a broken gradient must not pass for a number.
// A product with 1 keeps denormals and infinities, except where bf16 units or oneDNN's emulation of
// them compute it: there a denormal counts as 0, and in oneDNN an infinity may become NaN.
static bool is_dnnl(const struct Run *r, enum Dtype d) {
    const struct Cpu *cpu = (const struct Cpu *)r->device;
    return strcmp(r->device->name, "cpu") == 0 && d == BF16 &&
           matmul_cache_path(cpu->matmuls, d) == MATMUL_DNNL;
}

static bool drops_denormals(const struct Run *r, enum Dtype d) {
    return is_dnnl(r, d) || (d == BF16 && cpu_kernels_dot_bf16(r->device->kernels));
}

static void special_body(struct Run *r, enum Dtype d, const void *shape) {
    (void)shape;
    static const float columns[NDTYPE][6] = {
        [F32] = {1, NAN, INFINITY, -INFINITY, 0x1p-127f, -0x1.8p-130f},
        [BF16] = {1, NAN, INFINITY, -INFINITY, 0x1p-127f, -0x1.8p-130f},
        [F16] = {1, NAN, INFINITY, -INFINITY, 0x1p-15f, -0x1.8p-23f},
    };
    const float *column = columns[d];
    static const float ones[5] = {1, 1, 1, 1, 1};
    float want[30];
    for (size_t i = 0; i < 30; i++)
        want[i] = column[i / 5];
    struct Matmul a = {.m = 6, .n = 5, .k = 1};
    a.a = mat(input_values(r, d, 6, column), d, 1, false);
    a.b = mat(input_values(r, d, 5, ones), d, 5, false);
    a.c = mat(output_poison(r, "c", d, 30, 0), d, 5, false);
    queue_matmul(r, &a);
    run_finish(r);
    for (size_t i = 0; i < 30; i++) {
        float got = dtype_load(run_result(r, "c"), d, i);
        bool as_units = isinf(want[i]) ? is_dnnl(r, d) && !isfinite(got)
                                       : drops_denormals(r, d) && want[i] < 1 && got == 0;
        if (isnan(want[i]) ? !isnan(got) : f32_bits(got) != f32_bits(want[i]) && !as_units)
            fail_msg("%s %s: %a times 1 is %a", r->device->kernels->name, dtype_name(d), want[i],
                     got);
    }
}

TEST(test_special) {
    rig_each(*state, special_body, NULL);
}

// A rig whose tables send every product that oneDNN takes through it, even where our own loops are
// the faster way.
static int dnnl_setup(void **state) {
    if (rig_setup(state))
        return -1;
    const struct Rig *rig = *state;
    for (int t = 1; t < rig->ntable; t++) {
        for (int j = 0; j < 2 && strcmp(rig->device[t][j]->name, "cpu") == 0; j++) {
            struct Cpu *cpu = (struct Cpu *)rig->device[t][j];
            for (enum Dtype d = F32; d < NDTYPE; d++)
                if (matmul_dnnl_takes(d))
                    matmul_cache_force(cpu->matmuls, d, MATMUL_DNNL);
        }
    }
    return 0;
}

int main(void) {
    around_all = (struct Around){rig_setup, rig_teardown};
    int failed = run_all_tests();
    around_all.before = dnnl_setup;
    if (matmul_backend_name())
        failed += run_all_tests();
    else
        print_message("oneDNN is not in this build, so products through it are not tested\n");
    return failed;
}
