// Every way to multiply (each instruction set's loops, and oneDNN for either dtype), at awkward
// sizes, in all transpositions, with gaps between rows and every combination of epilogues, against
// a triple loop in double. Nothing may be written between the rows of C or past the scratch that
// was asked for. And which way is taken if nobody says so.
#include "kernels/cpu/instructions.h"
#include "kernels/cpu/matmul.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>

enum { GUARD_BYTES = 64, GAP = 5 };
enum { ACCUMULATE = 1, BIAS = 2, DGELU = 4, GELU = 8, DBIAS = 16, EPILOGUES = 32 };

struct Case {
    size_t m, n, k;
    bool ta, tb;
    enum Dtype operands, result;
};

// The operands of a case, A · B in double, and the sum of the absolute products: what rounding is
// relative to.
struct Data {
    struct Case c;
    size_t lda, ldb, ldc;
    void *a, *b, *c_old, *bias, *pre; // pre: the pre-activation of dgelu
    void *dbias_old;
    double *product, *size, *row_sum, *row_size;
};

static void *random_array(enum Dtype d, size_t n, uint64_t seed) {
    void *p = base_alloc(n * dtype_size(d) + GUARD_BYTES);
    for (size_t i = 0; i < n; i++)
        dtype_store(p, d, i, 2 * rng_normal(seed, i));
    memset(dtype_at(p, d, n), 0xff, GUARD_BYTES); // NaN, if it is read
    return p;
}

// The elements that a gap hides are NaN.
static void *random_matrix(enum Dtype d, size_t rows, size_t cols, size_t ld, uint64_t seed) {
    void *p = random_array(d, rows * ld, seed);
    for (size_t i = 0; i < rows; i++)
        memset(dtype_at(p, d, i * ld + cols), 0xff, (ld - cols) * dtype_size(d));
    return p;
}

// Row i of A, or column j of B, in one order and format.
static void gather(double *to, const void *p, enum Dtype d, size_t start, size_t step, size_t k) {
    for (size_t l = 0; l < k; l++)
        to[l] = dtype_load(p, d, start + l * step);
}

static void multiply(struct Data *x) {
    const struct Case *c = &x->c;
    double *a = base_alloc(c->k * sizeof *a), *b = base_alloc(c->n * c->k * sizeof *b);
    for (size_t j = 0; j < c->n; j++)
        gather(b + j * c->k, x->b, c->operands, c->tb ? j * x->ldb : j, c->tb ? 1 : x->ldb, c->k);
    for (size_t i = 0; i < c->m; i++) {
        gather(a, x->a, c->operands, c->ta ? i : i * x->lda, c->ta ? x->lda : 1, c->k);
        for (size_t j = 0; j < c->n; j++) {
            double sum = 0, size = 0;
            for (size_t l = 0; l < c->k; l++) {
                double p = a[l] * b[j * c->k + l];
                sum += p;
                size += fabs(p);
            }
            x->product[i * c->n + j] = sum;
            x->size[i * c->n + j] = size;
        }
        for (size_t l = 0; l < c->k; l++) {
            x->row_sum[i] += a[l];
            x->row_size[i] += fabs(a[l]);
        }
    }
    free(a);
    free(b);
}

static struct Data data_make(const struct Case *c) {
    struct Data x = {.c = *c};
    x.lda = (c->ta ? c->m : c->k) + GAP;
    x.ldb = (c->tb ? c->k : c->n) + GAP;
    x.ldc = c->n + GAP;
    x.a = random_matrix(c->operands, c->ta ? c->k : c->m, x.lda - GAP, x.lda, 1);
    x.b = random_matrix(c->operands, c->tb ? c->n : c->k, x.ldb - GAP, x.ldb, 2);
    x.c_old = random_matrix(c->result, c->m, c->n, x.ldc, 3);
    x.pre = random_matrix(c->result, c->m, c->n, x.ldc, 4);
    x.bias = random_array(c->operands, c->n, 5);
    x.dbias_old = random_array(c->result, c->m, 6);
    x.product = base_alloc(c->m * c->n * sizeof(double));
    x.size = base_alloc(c->m * c->n * sizeof(double));
    x.row_sum = base_alloc_zeroed(c->m * sizeof(double));
    x.row_size = base_alloc_zeroed(c->m * sizeof(double));
    multiply(&x);
    return x;
}

static void data_free(struct Data *x) {
    void *parts[] = {x->a,         x->b,       x->c_old, x->pre,     x->bias,
                     x->dbias_old, x->product, x->size,  x->row_sum, x->row_size};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x) {
    double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x), th = tanh(u);
    double du = 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + th) + 0.5 * x * (1 - th * th) * du;
}

// Fails unless `got` is `want` as dtype d can hold it, after fp32 arithmetic on terms of absolute
// sum `size`.
static void expect(const struct Data *x, int epilogue, const char *what, size_t i, size_t j,
                   double got, double want, double size) {
    const struct Case *c = &x->c;
    double slack = (4 + sqrt((double)c->k)) * 0x1p-24 * size + 4 * 0x1p-24 * fabs(want);
    if (c->result == BF16)
        slack = 1.01 * slack + 0x1p-8 * fabs(want) + 0x1p-130;
    if (c->result == F16)
        slack = 1.01 * slack + 0x1p-11 * fabs(want) + 0x1p-25;
    if (!(fabs(got - want) <= slack))
        fail_msg(
            "%s[%zu, %zu] = %.9g, expected %.9g +- %.2g (m %zu n %zu k %zu, ta %d tb %d, %s to "
            "%s, epilogue %d)",
            what, i, j, got, want, slack, c->m, c->n, c->k, c->ta, c->tb, dtype_name(c->operands),
            dtype_name(c->result), epilogue);
}

static void check_row(const struct Data *x, int epilogue, const struct Matmul *r, size_t i) {
    const struct Case *c = &x->c;
    for (size_t j = 0; j < c->n; j++) {
        size_t here = i * x->ldc + j;
        double want = x->product[i * c->n + j], size = x->size[i * c->n + j], addend = 0;
        if (epilogue & ACCUMULATE)
            addend = dtype_load(x->c_old, c->result, here), want += addend, size += fabs(addend);
        if (epilogue & BIAS)
            addend = dtype_load(x->bias, c->operands, j), want += addend, size += fabs(addend);
        if (epilogue & DGELU) { // the slope is good to 40 units of 2^-24 where s (1 - s) x is large
            size = 1.2 * size + 40 * fabs(want) / (4 + sqrt((double)c->k));
            want *= gelu_slope(dtype_load(x->pre, c->result, here));
        }
        double got = dtype_load(r->c.data, c->result, here);
        expect(x, epilogue, "c", i, j, got, want, size);
        if (epilogue & GELU) // of what was stored
            expect(x, epilogue, "gelu", i, j, dtype_load(r->gelu, c->result, here), gelu(got),
                   fabs(got));
    }
    for (size_t j = c->n; j < x->ldc; j++)
        assert_true(isnan(dtype_load(r->c.data, c->result, i * x->ldc + j)));
    if (!(epilogue & DBIAS))
        return;
    double old = epilogue & ACCUMULATE ? dtype_load(x->dbias_old, c->result, i) : 0;
    expect(x, epilogue, "dbias", i, 0, dtype_load(r->dbias, c->result, i), x->row_sum[i] + old,
           x->row_size[i] + fabs(old));
}

static void *copy_of(const void *p, size_t bytes) {
    return memcpy(base_alloc(bytes), p, bytes);
}

// Runs the kernel once. The caller frees C, GELU and dbias.
static struct Matmul run(struct Device *d, const struct Data *x, int epilogue) {
    const struct Case *c = &x->c;
    size_t c_bytes = c->m * x->ldc * dtype_size(c->result) + GUARD_BYTES;
    struct Matmul r = {.m = c->m, .n = c->n, .k = c->k, .accumulate = epilogue & ACCUMULATE};
    r.a = (struct Mat){x->a, c->operands, x->lda, c->ta, NULL};
    r.b = (struct Mat){x->b, c->operands, x->ldb, c->tb, NULL};
    r.c = (struct Mat){copy_of(x->c_old, c_bytes), c->result, x->ldc, false, NULL};
    r.bias = epilogue & BIAS ? x->bias : NULL;
    r.dgelu = epilogue & DGELU ? x->pre : NULL;
    r.gelu = epilogue & GELU ? copy_of(x->c_old, c_bytes) : NULL;
    r.dbias =
        epilogue & DBIAS ? copy_of(x->dbias_old, c->m * dtype_size(c->result) + GUARD_BYTES) : NULL;
    r.work.bytes = d->kernels->matmul_work(d, &r);
    r.work.mem = d->ops->alloc(d, r.work.bytes + GUARD_BYTES); // poisoned
    d->kernels->matmul(d->queue[QUEUE_COMPUTE], &r);
    device_sync_queue(d, QUEUE_COMPUTE);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(((unsigned char *)r.work.mem)[r.work.bytes + i], 0xff);
    d->ops->free(d, r.work.mem, r.work.bytes + GUARD_BYTES);
    return r;
}

static void result_free(struct Matmul *r) {
    free(r->c.data);
    free(r->gelu);
    free(r->dbias);
}

static void check(struct Device *d, const struct Data *x, int epilogue) {
    struct Matmul r = run(d, x, epilogue);
    for (size_t i = 0; i < x->c.m; i++)
        check_row(x, epilogue, &r, i);
    result_free(&r);
}

// Each kernel table that this CPU runs, by its loops, then oneDNN's products.
struct Way {
    const char *table;
    bool dnnl;
};
static const struct Way ways[] = {{"base", false},       {"avx2", false}, {"avx512", false},
                                  {"avx512bf16", false}, {"amx", false},  {NULL, true}};
enum { NWAYS = sizeof ways / sizeof ways[0] };

// NULL where the way does not exist here: another CPU, or a build without oneDNN.
static struct Device *open_way(const struct Way *w, int threads) {
    struct Error e;
    struct Device *d;
    if ((w->dnnl && !matmul_backend_name()) || device_open_cpu(&d, threads, w->table, &e))
        return NULL;
    for (enum Dtype t = F32; t < NDTYPE; t++)
        if (!w->dnnl || matmul_dnnl_takes(t))
            matmul_cache_force(((struct Cpu *)d)->matmuls, t, w->dnnl ? MATMUL_DNNL : MATMUL_LOOPS);
    return d;
}

static bool takes(const struct Way *w, const struct Case *c) {
    return !w->dnnl || matmul_dnnl_takes(c->operands);
}

// All transpositions, dtypes and epilogues (or some), in the ways from `first` on.
static void sweep(const size_t (*sizes)[3], size_t count, int first, const int *epilogues,
                  int nepilogue) {
    struct Device *d[NWAYS];
    for (int w = first; w < NWAYS; w++)
        d[w] = open_way(&ways[w], 2);
    static const enum Dtype dtypes[][2] = {
        {F32, F32}, {BF16, BF16}, {BF16, F32}, {F16, F16}, {F16, F32}};
    for (size_t s = 0; s < count * 4 * 5; s++) {
        const size_t *z = sizes[s / 20];
        const enum Dtype *t = dtypes[s % 5];
        struct Case c = {z[0], z[1], z[2], s / 5 & 1, s / 5 % 4 >= 2, t[0], t[1]};
        struct Data x = data_make(&c);
        for (int w = first; w < NWAYS; w++)
            for (int e = 0; d[w] && takes(&ways[w], &c) && e < nepilogue; e++)
                check(d[w], &x, epilogues ? epilogues[e] : e);
        data_free(&x);
    }
    for (int w = first; w < NWAYS; w++)
        if (d[w])
            device_close(d[w]);
}

TEST(test_small_sizes) {
    static const size_t edge[] = {1, 17, 36};
    size_t sizes[27][3];
    for (size_t i = 0; i < 27; i++)
        memcpy(sizes[i], (size_t[3]){edge[i / 9], edge[i / 3 % 3], edge[i % 3]}, sizeof sizes[i]);
    static const int epilogues[] = {0,     ACCUMULATE,  BIAS | GELU, ACCUMULATE | DBIAS,
                                    DGELU, DBIAS | GELU};
    sweep(sizes, 27, 0, epilogues, 6);
}

// Every combination, where k is one pass of the loops and where it is several, and where C is more
// than one strip, tile and chunk each way.
TEST(test_epilogues) {
    static const size_t sizes[][3] = {{17, 36, 36}, {1, 1, 769}, {53, 101, 775}};
    sweep(sizes, 3, 0, NULL, EPILOGUES);
}

// GPT-2's vocabulary as each of the sizes: several blocks of C, many passes, and for the result of
// a product with an activation's gradient, several pieces of scratch.
TEST(test_vocabulary) {
    static const size_t sizes[][3] = {
        {50257, 3, 2}, {3, 50257, 2}, {2, 3, 50257}, {3, 2, 50257}, {140, 9001, 1}};
    static const int epilogues[] = {BIAS | GELU, ACCUMULATE | DGELU | DBIAS};
    sweep(sizes, 4, 0, epilogues, 2);
    sweep(sizes + 4, 1, NWAYS - 1, epilogues + 1, 1);
}

// A product that is blocked in every direction, checked at some of its elements. Data without
// references.
TEST(test_blocks) {
    static const struct Case shape = {2100, 2060, 790, true, false, BF16, BF16};
    enum { SAMPLES = 3000, EPILOGUE = ACCUMULATE | BIAS | DBIAS };
    struct Data x = {.c = shape, .lda = 2100 + GAP, .ldb = 2060 + GAP, .ldc = 2060 + GAP};
    x.a = random_matrix(BF16, shape.k, shape.m, x.lda, 1);
    x.b = random_matrix(BF16, shape.k, shape.n, x.ldb, 2);
    x.c_old = random_matrix(BF16, shape.m, shape.n, x.ldc, 3);
    x.bias = random_array(BF16, shape.n, 4);
    x.dbias_old = random_array(BF16, shape.m, 5);
    for (int w = 0; w < NWAYS - 1; w++) {
        struct Device *d = open_way(&ways[w], 2);
        if (!d)
            continue;
        struct Matmul r = run(d, &x, EPILOGUE);
        for (size_t s = 0; s < SAMPLES; s++) {
            size_t i = rng_bits(7, s) % shape.m, j = rng_bits(8, s) % shape.n, at = i * x.ldc + j;
            double old = dtype_load(x.c_old, BF16, at), bias = dtype_load(x.bias, BF16, j);
            double sum = old + bias, size = fabs(old) + fabs(bias);
            double row = dtype_load(x.dbias_old, BF16, i), row_size = fabs(row);
            for (size_t l = 0; l < shape.k; l++) {
                double p = dtype_load(x.a, BF16, l * x.lda + i);
                double q = dtype_load(x.b, BF16, l * x.ldb + j);
                sum += p * q, size += fabs(p * q);
                row += p, row_size += fabs(p);
            }
            expect(&x, EPILOGUE, "c", i, j, dtype_load(r.c.data, BF16, at), sum, size);
            expect(&x, EPILOGUE, "dbias", i, 0, dtype_load(r.dbias, BF16, i), row, row_size);
        }
        result_free(&r);
        device_close(d);
    }
    data_free(&x);
}

static void assert_same_bits(struct Device *d1, struct Device *d2, const struct Case *c) {
    struct Data x = data_make(c);
    for (int epilogue = 0; epilogue < EPILOGUES; epilogue++) {
        struct Matmul r1 = run(d1, &x, epilogue), r2 = run(d2, &x, epilogue);
        assert_memory_equal(r1.c.data, r2.c.data, c->m * x.ldc * dtype_size(c->result));
        if (r1.dbias)
            assert_memory_equal(r1.dbias, r2.dbias, c->m * dtype_size(c->result));
        result_free(&r1);
        result_free(&r2);
    }
    data_free(&x);
}

// Every way gives the same bits again; our loops also with another number of threads.
TEST(test_same_bits) {
    for (int w = 0; w < NWAYS; w++) {
        struct Device *d1 = open_way(&ways[w], 2), *d2 = open_way(&ways[w], ways[w].dnnl ? 2 : 3);
        for (enum Dtype t = F32; d1 && t < NDTYPE; t++) {
            struct Case forward = {130, 150, 800, false, true, t, t};
            struct Case weights = {150, 130, 800, true, false, t, F32};
            if (!takes(&ways[w], &forward))
                continue;
            assert_same_bits(d1, d2, &forward);
            assert_same_bits(d1, d2, &weights);
        }
        if (d1) {
            device_close(d1);
            device_close(d2);
        }
    }
}

// Pairs of bf16 are summed in an order that k alone decides about: a row has the same bits whatever
// rows are computed with it. The larger product takes k in several spans, the smaller in one.
static void check_rows_alone(struct Device *d) {
    enum { FEW = 40, EPILOGUE = ACCUMULATE | BIAS | DBIAS };
    struct Case c = {1030, 1030, 3201, false, true, BF16, BF16};
    struct Data x = {.c = c, .lda = c.k + GAP, .ldb = c.k + GAP, .ldc = c.n + GAP};
    x.a = random_matrix(BF16, c.m, c.k, x.lda, 1);
    x.b = random_matrix(BF16, c.n, c.k, x.ldb, 2);
    x.c_old = random_matrix(BF16, c.m, c.n, x.ldc, 3);
    x.bias = random_array(BF16, c.n, 4);
    x.dbias_old = random_array(BF16, c.m, 5);
    struct Matmul all = run(d, &x, EPILOGUE);
    x.c.m = FEW;
    struct Matmul few = run(d, &x, EPILOGUE);
    assert_memory_equal(all.c.data, few.c.data, FEW * x.ldc * dtype_size(BF16));
    assert_memory_equal(all.dbias, few.dbias, FEW * dtype_size(BF16));
    result_free(&all);
    result_free(&few);
    data_free(&x);
}

TEST(test_rows_alone) {
    int tables = 0;
    for (int w = 0; w < NWAYS - 1; w++) {
        struct Device *d = open_way(&ways[w], 2);
        if (d && cpu_kernels_dot_bf16(d->kernels)) {
            check_rows_alone(d);
            tables++;
        }
        if (d)
            device_close(d);
    }
    if (!tables)
        skip();
}

// oneDNN says what it multiplies: fp32 on any CPU, bf16 on every one with AVX-512, never fp16.
TEST(test_dnnl_takes) {
    bool dnnl = matmul_backend_name() != NULL;
    assert_int_equal(matmul_dnnl_takes(F32), dnnl);
    if (instructions_usable(INSTRUCTIONS_AVX512))
        assert_int_equal(matmul_dnnl_takes(BF16), dnnl);
    assert_false(matmul_dnnl_takes(F16));
}

// Who multiplies bf16 if nobody says otherwise: oneDNN where the table leaves units idle.
TEST(test_choice) {
    for (int w = 0; w < NWAYS - 1; w++) {
        struct Error e;
        struct Device *d;
        if (device_open_cpu(&d, 1, ways[w].table, &e))
            continue;
        bool tile = cpu_kernels_dot_bf16(d->kernels);
        bool idle = instructions_usable(INSTRUCTIONS_AVX512BF16) && !tile;
        enum MatmulPath want = matmul_backend_name() && idle ? MATMUL_DNNL : MATMUL_LOOPS;
        const struct MatmulCache *cache = ((struct Cpu *)d)->matmuls;
        assert_int_equal(matmul_cache_path(cache, BF16), want);
        assert_int_equal(matmul_cache_path(cache, F32), MATMUL_LOOPS);
        assert_int_equal(matmul_cache_path(cache, F16), MATMUL_LOOPS);
        device_close(d);
    }
}
