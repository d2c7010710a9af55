// Initial values: normal and uniform random numbers that every table, GPUs too, makes to the same
// bits, from any index on, and in any columns of a matrix; and the functions that they are made of,
// against those of the math library.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

struct FillShape {
    size_t n, cut;
    uint64_t index;
    bool uniform;
};

static void fill_body(struct Run *r, enum Dtype d, const void *shape) {
    (void)d;
    const struct FillShape *s = shape;
    struct FillNormal a = {.n = s->n, .seed = 1234, .index = s->index, .mean = 0.5f, .std = 0.02f};
    a.uniform = s->uniform;
    a.dst = output_poison(r, "dst", F32, s->n, 4);
    r->device->kernels->fill_normal(compute(r), &a);
}

// A shard fills its elements with the bits that the whole would.
static void fill_shards_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct FillShape *s = shape;
    fill_body(r, d, shape);
    struct FillNormal a = {
        .n = s->cut, .seed = 1234, .index = s->index, .mean = 0.5f, .std = 0.02f};
    a.uniform = s->uniform;
    a.dst = output_poison(r, "shards", F32, s->n, 0);
    struct FillNormal b = a;
    b.n = s->n - s->cut;
    b.dst += s->cut;
    b.index += s->cut;
    r->device->kernels->fill_normal(compute(r), &a);
    r->device->kernels->fill_normal(compute(r), &b);
    run_finish(r);
    if (memcmp(run_result(r, "dst"), run_result(r, "shards"), s->n * sizeof(float)) != 0)
        fail_msg("%s: %zu initial values cut at %zu have other bits", r->device->kernels->name,
                 s->n, s->cut);
}

// A rank's columns of a matrix of `rows` rows, and what a shard has of them.
struct Columns {
    size_t rows, stride, column, run;
    size_t first, n;
    uint64_t index; // of the matrix' first element
};
struct ColumnsCase {
    const struct Columns *columns;
    bool uniform;
};

static float number(bool uniform, uint64_t index) {
    return uniform ? 2 * rng_uniform(1234, index) - 1 : rng_normal(1234, index);
}

static void columns_body(struct Run *r, enum Dtype d, const void *shape) {
    (void)d;
    const struct ColumnsCase *of = shape;
    const struct Columns *s = of->columns;
    struct FillNormal a = {.n = s->n, .seed = 1234, .mean = 0.5f, .std = 0.02f};
    a.dst = output_poison(r, "part", F32, s->n, 0);
    a.index = s->index + s->column;
    a.first = s->first;
    a.run = s->run;
    a.stride = s->stride;
    a.uniform = of->uniform;
    r->device->kernels->fill_normal(compute(r), &a);
    struct FillNormal whole = {.n = s->rows * s->stride, .seed = 1234, .mean = 0.5f, .std = 0.02f};
    whole.index = s->index;
    whole.uniform = of->uniform;
    whole.dst = output_poison(r, "whole", F32, whole.n, 0);
    r->device->kernels->fill_normal(compute(r), &whole);
    run_finish(r);
    const float *part = run_result(r, "part"), *all = run_result(r, "whole");
    for (size_t i = 0; i < s->n; i++) {
        size_t row = (s->first + i) / s->run, column = s->column + (s->first + i) % s->run;
        float want = 0.02f * number(of->uniform, s->index + row * s->stride + column) + 0.5f;
        if (f32_bits(part[i]) != f32_bits(want) ||
            f32_bits(part[i]) != f32_bits(all[row * s->stride + column]))
            fail_msg("%s: element %zu of columns %zu .. of %zu is %a, should be %a",
                     r->device->kernels->name, i, s->column, s->stride, part[i], want);
    }
}

TEST(test_columns) {
    static const struct Columns shapes[] = {
        {1, 1, 0, 1, 0, 1, 0},
        {7, 12, 0, 12, 5, 70, 3}, // all columns
        {7, 12, 4, 4, 0, 28, 1ull << 40},
        {7, 12, 9, 3, 4, 11, 17},          // from the middle of a run to the middle of another
        {50, 300, 100, 100, 99, 4802, 9},  // one element of the first run
        {3, 1000, 999, 1, 0, 3, 0},        // one column
        {64, 96, 32, 32, 64, 1984, 50257}, // whole runs
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int uniform = 0; uniform < 2; uniform++) {
            struct ColumnsCase of = {&shapes[i], uniform};
            rig_each(*state, columns_body, &of);
        }
}

static void fill_values_body(struct Run *r, enum Dtype d, const void *values) {
    (void)d;
    enum { KNOWN = 1000, N = 200000 };
    struct FillNormal a = {.n = N, .seed = 1234, .mean = 0, .std = 1};
    a.dst = output_poison(r, "dst", F32, N, 0);
    r->device->kernels->fill_normal(compute(r), &a);
    run_finish(r);
    const float *x = run_result(r, "dst"), *want = values_f32(values, "normal_values", KNOWN);
    for (size_t i = 0; i < KNOWN; i++)
        if (!(fabsf(x[i] - want[i]) <= 3e-6f))
            fail_msg("%s: normal value %zu is %.9g, should be %.9g", r->device->kernels->name, i,
                     x[i], want[i]);
    double sum = 0, square = 0, product = 0; // of N(0, 1): within 4 standard errors
    size_t far = 0;                          // beyond 3, where 0.27% are
    for (size_t i = 0; i < N; i++) {
        if (f32_bits(x[i]) != f32_bits(rng_normal(1234, i)))
            fail_msg("%s: normal value %zu is %a, the host says %a", r->device->kernels->name, i,
                     x[i], rng_normal(1234, i));
        far += fabsf(x[i]) > 3;
        sum += x[i];
        square += (double)x[i] * x[i];
        product += (double)x[i] * x[(i + 1) % N];
    }
    double error = 4 / sqrt(N);
    assert_true(fabs(sum / N) < error && fabs(product / N) < error);
    assert_true(fabs(square / N - 1) < error * sqrt(2));
    assert_true(fabs((double)far - 0.0026998 * N) < 4 * sqrt(0.0027 * N));
}

// Uniform in [-1, 1), times std: A of an adapter begins so.
static void uniform_values_body(struct Run *r, enum Dtype d, const void *shape) {
    (void)d;
    (void)shape;
    enum { N = 200000, TENTHS = 20 };
    struct FillNormal a = {.n = N, .seed = 4321, .std = 0.5f, .uniform = true};
    a.dst = output_poison(r, "dst", F32, N, 0);
    r->device->kernels->fill_normal(compute(r), &a);
    run_finish(r);
    const float *x = run_result(r, "dst");
    double sum = 0, square = 0, product = 0; // of U(-1, 1): within 4 standard errors
    size_t count[TENTHS] = {0};
    for (size_t i = 0; i < N; i++) {
        double u = x[i] / 0.5, next = x[(i + 1) % N] / 0.5;
        if (!(u >= -1 && u < 1))
            fail_msg("%s: value %zu is %.9g, not in [-0.5, 0.5)", r->device->kernels->name, i,
                     x[i]);
        count[(size_t)((u + 1) * TENTHS / 2)]++;
        sum += u;
        square += u * u;
        product += u * next;
    }
    assert_true(fabs(sum / N) < 4 * sqrt(1.0 / 3 / N));
    assert_true(fabs(square / N - 1.0 / 3) < 4 * sqrt(4.0 / 45 / N));
    assert_true(fabs(product / N) < 4 * 1.0 / 3 / sqrt(N));
    for (int i = 0; i < TENTHS; i++)
        assert_true(fabs((double)count[i] - N / TENTHS) < 4 * sqrt(N / TENTHS * 0.95));
}

// The parts of rng_normal, which uses no math library, against those of one: in fp64 far beyond the
// fp32 that they are rounded to, for all 2^24 arguments but those between the steps.
TEST(test_normal_parts) {
    for (uint32_t k = 1; k <= 1u << 24; k += k < 70000 || k > (1u << 24) - 70000 ? 1 : 13) {
        double want = log(k * 0x1p-24), got = rng_log(k);
        if (!(fabs(got - want) <= 1e-10 * fabs(want)))
            fail_msg("log(%u / 2^24) is %.17g, should be %.17g", k, got, want);
    }
    for (uint32_t k = 0; k < 1u << 24; k += 7) {
        double want = cos(6.2831853071795865 * 0x1p-24 * k), got = rng_cos(k);
        if (!(fabs(got - want) <= 1e-12))
            fail_msg("cos of %u / 2^24 turns is %.17g, should be %.17g", k, got, want);
    }
    assert_true(rng_log(1u << 24) == 0 && rng_cos(0) == 1 && rng_cos(1u << 23) == -1);
    assert_true(rng_cos(1u << 22) == 0 && rng_cos(3u << 22) == 0);
}

TEST(test_fill) {
    static const struct FillShape shapes[] = {
        {1, 0, 3, false}, {1003, 333, 0, false}, {70001, 64, 1ull << 40, false},
        {1, 0, 3, true},  {1003, 333, 0, true},  {70001, 64, 1ull << 40, true}};
    const struct Rig *rig = *state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        rig_check(rig, fill_body, &shapes[i], true);
        rig_each(rig, fill_shards_body, &shapes[i]);
    }
    rig_each(rig, fill_values_body, rig->values);
    rig_each(rig, uniform_values_body, NULL);
}

AROUND_ALL(rig_setup, rig_teardown);
