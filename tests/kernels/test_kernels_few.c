// Products with few rows (kernels.h: few_rows): every table against the oracle, and their promise
// that a row has the same bits whatever rows are computed with it and on however many threads.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

struct Shape {
    size_t m, n, k, gap; // gap: unused columns at the end of each row
    bool bias, gelu, accumulate;
    bool c_fp32; // also of operands in 16 bits
    size_t k2;   // of a second pair; 0: none
};

static struct Matmul product(const struct Shape *s, enum Dtype d) {
    struct Matmul a = {.m = s->m, .n = s->n, .k = s->k, .k2 = s->k2, .few_rows = true};
    a.accumulate = s->accumulate;
    a.a = (struct Mat){.dtype = d, .ld = s->k + s->gap};
    a.b = (struct Mat){.dtype = d, .ld = s->k + s->gap, .transposed = true};
    a.a2 = (struct Mat){.dtype = d, .ld = s->k2 + s->gap};
    a.b2 = (struct Mat){.dtype = d, .ld = s->k2 + s->gap, .transposed = true};
    a.c = (struct Mat){.dtype = s->c_fp32 ? F32 : d, .ld = s->n + s->gap};
    return a;
}

static void oracle_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct Shape *s = shape;
    struct Matmul a = product(s, d);
    double slack = 4 * sqrt((double)(s->k + s->k2));
    if (s->k2 && d != F32 && strcmp(r->device->name, "cpu") != 0)
        slack += dtype_unit(d) / 0x1p-24; // a GPU rounds the second product
    double steps = a.c.dtype == F32 ? 0 : 2 * dtype_unit(d) / 0x1p-24; // GELU of one step aside
    size_t size = s->m * a.c.ld;
    a.a.data = input_random(r, d, s->m * a.a.ld, 0, 1);
    a.b.data = input_random(r, d, s->n * a.b.ld, 0, 1);
    a.a2.data = s->k2 ? input_random(r, d, s->m * a.a2.ld, 0, 1) : NULL;
    a.b2.data = s->k2 ? input_random(r, d, s->n * a.b2.ld, 0, 1) : NULL;
    a.c.data = output_random(r, "c", a.c.dtype, size, slack);
    a.bias = s->bias ? input_random(r, d, s->n, 0, 1) : NULL;
    a.gelu = s->gelu ? output_poison(r, "gelu", a.c.dtype, size, slack + steps) : NULL;
    a.work = scratch(r, r->device->kernels->matmul_work(r->device, &a));
    r->device->kernels->matmul(r->device->queue[QUEUE_COMPUTE], &a);
}

TEST(the_oracle_has_the_same) {
    static const struct Shape shapes[] = {
        {.n = 1, .k = 1},
        {.n = 37, .k = 29, .gap = 3, .bias = true},
        {.n = 70, .k = 64, .gelu = true, .bias = true},
        {.n = 33, .k = 97, .gap = 1, .accumulate = true, .gelu = true},
        {.n = 101, .k = 515, .gap = 5, .accumulate = true, .bias = true, .c_fp32 = true},
        {.n = 70, .k = 64, .k2 = 16, .gap = 3, .bias = true, .gelu = true},
        {.n = 101, .k = 130, .k2 = 5, .gap = 1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t m = 1; m <= MATMUL_FEW_ROWS; m++) {
            struct Shape s = shapes[i];
            s.m = m;
            rig_check(*state, oracle_body, &s, true);
        }
    // The parts of the memory that threads and blocks of columns take.
    static const struct Shape wide[] = {{.m = 1, .n = 3001, .k = 40}, {.m = 7, .n = 999, .k = 130}};
    for (size_t i = 0; i < 2; i++)
        rig_check(*state, oracle_body, &wide[i], true);
}

// ---- bits ----

enum { GAP = 3 };

// Random rows whose gaps are NaN.
static void *rows_of(enum Dtype d, size_t rows, size_t cols, uint64_t seed) {
    size_t ld = cols + GAP;
    void *p = base_alloc(rows * ld * dtype_size(d));
    for (size_t i = 0; i < rows * ld; i++)
        dtype_store(p, d, i, i % ld < cols ? rng_normal(seed, i) : NAN);
    return p;
}

struct Bits {
    struct Shape s;
    void *a, *b, *a2, *b2, *bias;
};

// Rows first .. first + m of the product, on the device; the caller frees them.
static char *run_rows(struct Device *d, enum Dtype t, const struct Bits *x, size_t first,
                      size_t m) {
    struct Shape s = x->s;
    s.m = m;
    struct Matmul a = product(&s, t);
    a.a.data = dtype_at(x->a, t, first * a.a.ld);
    a.b.data = x->b;
    a.a2.data = dtype_at(x->a2, t, first * a.a2.ld);
    a.b2.data = x->b2;
    a.bias = x->bias;
    a.c.data = base_alloc_zeroed(m * a.c.ld * dtype_size(t));
    a.work.bytes = d->kernels->matmul_work(d, &a);
    a.work.mem = d->ops->alloc(d, a.work.bytes + 1);
    d->kernels->matmul(d->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(d, QUEUE_COMPUTE);
    d->ops->free(d, a.work.mem, a.work.bytes + 1);
    return a.c.data;
}

static void expect_alone(struct Device *d, enum Dtype t, const struct Bits *x, const char *all) {
    size_t row = (x->s.n + GAP) * dtype_size(t);
    static const size_t together[] = {1, 2, 3, 5, 8, 11, 16};
    for (size_t i = 0; i < sizeof together / sizeof together[0]; i++)
        for (size_t m = together[i], first = 0; first + m <= MATMUL_FEW_ROWS; first += m) {
            char *some = run_rows(d, t, x, first, m);
            if (memcmp(some, all + first * row, m * row) != 0)
                fail_msg("%s, %s, %zu x %zu, %d threads: rows %zu to %zu alone have other bits",
                         d->kernels->name, dtype_name(t), x->s.n, x->s.k, d->threads, first,
                         first + m);
            free(some);
        }
}

static void expect_bits(const char *table, enum Dtype t, const struct Shape *s) {
    struct Bits x = {*s,
                     rows_of(t, MATMUL_FEW_ROWS, s->k, 1),
                     rows_of(t, s->n, s->k, 2),
                     rows_of(t, MATMUL_FEW_ROWS, s->k2, 3),
                     rows_of(t, s->n, s->k2, 4),
                     rows_of(t, 1, s->n, 5)};
    char *all = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        struct Error e;
        struct Device *d;
        if (device_open_cpu(&d, threads, table, &e))
            break; // another CPU
        if (!all)
            all = run_rows(d, t, &x, 0, MATMUL_FEW_ROWS);
        for (size_t i = 0; i < MATMUL_FEW_ROWS * (s->n + GAP); i++)
            assert_true(isfinite(dtype_load(all, t, i)));
        expect_alone(d, t, &x, all);
        device_close(d);
    }
    free(all);
    free(x.a);
    free(x.b);
    free(x.a2);
    free(x.b2);
    free(x.bias);
}

TEST(a_row_has_the_same_bits_alone) {
    static const char *const tables[] = {"base", "avx2", "avx512", "avx512bf16", "amx"};
    static const struct Shape shapes[] = {{.n = 203, .k = 517, .gap = GAP},
                                          {.n = 1000, .k = 96, .gap = GAP},
                                          {.n = 203, .k = 96, .k2 = 9, .gap = GAP}};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (enum Dtype t = F32; t < NDTYPE; t++)
            for (size_t s = 0; s < 3; s++)
                expect_bits(tables[i], t, &shapes[s]);
}

AROUND_ALL(rig_setup, rig_teardown);
