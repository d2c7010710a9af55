// Dropout, in every table: against the oracle, with its bits; and what it promises. An element is
// dropped or not by its place in the whole tensor, so that a part of one drops what the whole does;
// the share that is dropped is p; what is kept is x times `scale`.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>

struct Shape {
    size_t rows, cols;
    float scale, p;
    uint64_t first;
    size_t stride;
    bool in_place;
};

static void queue(struct Run *r, const struct Dropout *a) {
    r->device->kernels->dropout(r->device->queue[QUEUE_COMPUTE], a);
}

static struct Dropout args_of(const struct Shape *s, enum Dtype d) {
    return (struct Dropout){.rows = s->rows,
                            .cols = s->cols,
                            .dtype = d,
                            .scale = s->scale,
                            .p = s->p,
                            .seed = 77,
                            .first = s->first,
                            .stride = s->stride ? s->stride : s->cols};
}

static void body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    struct Dropout a = args_of(s, d);
    size_t n = s->rows * s->cols;
    if (!s->in_place)
        a.x = input_random(r, d, n, 0, 2);
    a.y = s->in_place ? output_random(r, "y", d, n, 0) : output_poison(r, "y", d, n, 0);
    a.x = s->in_place ? a.y : a.x;
    queue(r, &a);
}

static const struct Shape shapes[] = {
    {1, 1, 2, 0.5f, 0, 0, false},         {3, 7, 1.25f, 0.2f, 5, 0, true},
    {17, 12, 2, 0, 0, 0, true}, // a plain scale, as of u and du
    {17, 12, 2, 0, 0, 0, false},          {34, 129, 1.0f / 3, 0.1f, 1ull << 40, 0, false},
    {34, 64, 3, 0.5f, 17, 200, false}, // columns of a wider tensor
    {5, 1003, 0.7f, 0.3f, 0, 5000, true}, {301, 264, 1, 0.9f, 3, 0, true},
    {2, 4099, 1.7f, 0, 0, 0, false},
};
enum { NSHAPE = sizeof shapes / sizeof shapes[0] };

TEST(every_table_agrees_with_the_oracle) {
    for (int i = 0; i < NSHAPE; i++)
        rig_check(*state, body, &shapes[i], true);
}

// The formula, element by element, rounded once to fp32 after each operation.
static void formula_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    struct Dropout a = args_of(s, d);
    size_t n = s->rows * s->cols;
    float *x = base_alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = rng_normal(1, i);
    a.y = s->in_place ? output_values(r, "y", d, n, 0, x) : output_poison(r, "y", d, n, 0);
    a.x = s->in_place ? a.y : input_values(r, d, n, x);
    queue(r, &a);
    run_finish(r);
    const void *y = run_result(r, "y");
    for (size_t i = 0; i < n; i++) {
        uint64_t at = s->first + i / s->cols * a.stride + i % s->cols;
        bool dropped = s->p > 0 && rng_uniform(77, at) < s->p;
        volatile float in = x[i]; // as it is stored
        if (d != F32)
            in = d == BF16 ? f32_from_bf16(bf16_from_f32(in)) : f32_from_f16(f16_from_f32(in));
        volatile float want = in * (dropped ? 0 : s->scale);
        if (dtype_bits(d, dtype_load(y, d, i)) != dtype_bits(d, want))
            fail_msg("%s %s: element %zu of %zu x %zu is %.9g, should be %.9g",
                     r->device->kernels->name, dtype_name(d), i, s->rows, s->cols,
                     (double)dtype_load(y, d, i), (double)want);
    }
    free(x);
}

TEST(elements_are_kept_times_scale_or_dropped) {
    for (int i = 0; i < NSHAPE; i++)
        rig_each(*state, formula_body, &shapes[i]);
}

// ---- parts ----

enum { ROWS = 48, COLS = 90 };

// Rows [row, row + rows) and columns [col, col + cols) of a tensor have what the whole has there.
struct Part {
    size_t row, rows, col, cols;
};

static void part_body(struct Run *r, enum Dtype d, const void *part) {
    const struct Part *s = part;
    struct Shape all = {ROWS, COLS, 2, 0.4f, 1000, COLS, false};
    struct Dropout whole = args_of(&all, d), a = whole;
    float x[ROWS * COLS], some[ROWS * COLS];
    for (size_t i = 0; i < ROWS * COLS; i++)
        x[i] = rng_normal(3, i);
    for (size_t i = 0; i < s->rows * s->cols; i++)
        some[i] = x[(s->row + i / s->cols) * COLS + s->col + i % s->cols];
    whole.x = input_values(r, d, ROWS * COLS, x);
    whole.y = output_poison(r, "whole", d, ROWS * COLS, 0);
    a.rows = s->rows;
    a.cols = s->cols;
    a.first += s->row * COLS + s->col;
    a.x = input_values(r, d, s->rows * s->cols, some);
    a.y = output_poison(r, "part", d, s->rows * s->cols, 0);
    queue(r, &whole);
    queue(r, &a);
    run_finish(r);
    const void *y = run_result(r, "whole"), *mine = run_result(r, "part");
    for (size_t i = 0; i < s->rows * s->cols; i++) {
        size_t at = (s->row + i / s->cols) * COLS + s->col + i % s->cols;
        if (dtype_bits(d, dtype_load(mine, d, i)) != dtype_bits(d, dtype_load(y, d, at)))
            fail_msg("%s: element %zu of the part is %g, of the whole %g", r->device->kernels->name,
                     i, (double)dtype_load(mine, d, i), (double)dtype_load(y, d, at));
    }
}

TEST(a_part_drops_what_the_whole_drops) {
    static const struct Part parts[] = {
        {0, ROWS, 0, COLS}, {0, 24, 0, COLS}, {24, 24, 0, COLS}, {0, ROWS, 0, 45},
        {0, ROWS, 45, 45},  {7, 30, 30, 30},  {47, 1, 89, 1},    {13, 3, 1, 77},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        rig_each(*state, part_body, &parts[i]);
}

// ---- the share ----

// Of ones: the share that is dropped is p, within 4 standard errors, in each quarter too; another
// seed drops others.
static void share_body(struct Run *r, enum Dtype d, const void *share) {
    enum { N = 1 << 16, QUARTERS = 4 };
    float p = *(const float *)share;
    struct Shape s = {256, N / 256, 1, p, 0, 0, false};
    struct Dropout a = args_of(&s, d), other = args_of(&s, d);
    static float ones[N];
    for (size_t i = 0; i < N; i++)
        ones[i] = 1;
    other.x = a.x = input_values(r, d, N, ones);
    a.y = output_poison(r, "y", d, N, 0);
    other.y = output_poison(r, "other", d, N, 0);
    other.seed++;
    queue(r, &a);
    queue(r, &other);
    run_finish(r);
    size_t dropped[QUARTERS] = {0}, both = 0;
    for (size_t i = 0; i < N; i++) {
        float y = dtype_load(run_result(r, "y"), d, i);
        assert_true(y == 0 || y == 1);
        dropped[i / (N / QUARTERS)] += y == 0;
        both += y == 0 && dtype_load(run_result(r, "other"), d, i) == 0;
    }
    double n = N / QUARTERS, p2 = (double)p * p;
    for (int i = 0; i < QUARTERS; i++)
        if (!(fabs((double)dropped[i] - n * p) <= 4 * sqrt(n * p * (1 - p))))
            fail_msg("%s: of %g elements %zu are dropped, p is %g", r->device->kernels->name, n,
                     dropped[i], (double)p);
    assert_true(fabs((double)both - N * p2) <= 4 * sqrt(N * p2 * (1 - p2)));
}

TEST(the_share_that_is_dropped_is_p) {
    static const float shares[] = {0.05f, 0.1f, 0.5f, 0.9f};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        rig_each(*state, share_body, &shares[i]);
}

AROUND_ALL(rig_setup, rig_teardown);
