// gpu_smoke's matrix products: each form that training has, in each format, against a product in
// double, and twice with the same bits.
//
// Shapes are those of GPT-2 124M with fewer rows and a sixteenth of the vocabulary. What decides
// whether cuBLASLt has an algorithm is in them all: which operand is transposed, the epilogue, the
// formats, and sizes that are multiples of 8: but for one form, in which ODD is none.
#include "tests/cusim/sim.h"
#include "tests/bench/smoke.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHANNELS = 768, VOCABULARY = 3144, ODD = 301 };
// One element may be off by so many times the limit of the norm: normal values are up to five times
// their root mean square, and rounded as much more coarsely.
enum { LARGEST = 20 };

enum { BIAS = 1, GELU = 2, DGELU = 4, DBIAS = 8, ACCUMULATE = 16 };

// C (m, n) = A (m, k) B (k, n). A size is a number, or 0: the rows of a batch.
struct Form {
    const char *name;
    size_t m, n, k;
    bool a_transposed, b_transposed, c_fp32;
    int parts;
};

static const struct Form forms[] = {
    {"nt-bias", 0, 3 * CHANNELS, CHANNELS, false, true, false, BIAS},             // queries, keys
    {"nt-bias-gelu", 0, 4 * CHANNELS, CHANNELS, false, true, false, BIAS | GELU}, // the MLP's first
    {"nt", 0, VOCABULARY, CHANNELS, false, true, false, 0},                       // logits
    {"nn", 0, CHANNELS, 3 * CHANNELS, false, false, false, 0},                    // dx
    {"nn-dgelu", 0, 4 * CHANNELS, CHANNELS, false, false, false, DGELU}, // dx before a GELU
    {"tn", VOCABULARY, CHANNELS, 0, true, false, false, 0},              // dwte
    {"tn-accumulate-fp32", 3 * CHANNELS, CHANNELS, 0, true, false, true, ACCUMULATE | DBIAS},
    {"tn-dbias", 3 * CHANNELS, CHANNELS, 0, true, false, false, DBIAS}, // dW and dbias
    // Our own sums of columns, where cuBLASLt is not asked for dbias: those of odd width one value
    // at a time, the other's, which are added to a 16-bit gradient, 16 bytes at a time.
    {"tn-dbias-odd", ODD, CHANNELS, 0, true, false, false, DBIAS},
    {"tn-dbias-add", 3 * CHANNELS, CHANNELS, 0, true, false, false, ACCUMULATE | DBIAS},
};
enum { NFORMS = sizeof forms / sizeof forms[0] };

static const struct {
    const char *name;
    enum Dtype dtype;
} formats[] = {{"bf16", BF16}, {"fp16", F16}, {"fp32", F32}};
enum { NFORMATS = sizeof formats / sizeof formats[0] };

// A form with its operands on the host and what it should give.
struct Product {
    struct Form f; // with all sizes
    enum Dtype dtype, c_dtype;
    void *a, *b, *bias, *dgelu, *c_old, *dbias_old;
    double *c, *dbias;
};

static struct Product product_make(const struct Form *form, enum Dtype d, size_t rows) {
    struct Product p = {.f = *form, .dtype = d, .c_dtype = form->c_fp32 ? F32 : d};
    struct Form *f = &p.f;
    f->m = f->m ? f->m : rows;
    f->k = f->k ? f->k : rows;
    // As in training: fp16 has no room for sums of a thousand squares.
    p.a = smoke_normal(d, f->m * f->k, 1, 0.5f);
    p.b = smoke_normal(d, f->k * f->n, 2, 0.1f);
    p.bias = smoke_normal(d, f->n, 3, 1);
    if (f->parts & DGELU)
        p.dgelu = smoke_normal(p.c_dtype, f->m * f->n, 4, 1);
    p.c_old = smoke_normal(p.c_dtype, f->m * f->n, 5, 1);
    p.dbias_old = smoke_normal(p.c_dtype, f->m, 6, 1);
    p.c = base_alloc(f->m * f->n * sizeof *p.c);
    p.dbias = base_alloc(f->m * sizeof *p.dbias);
    return p;
}

static void product_free(struct Product *p) {
    void *parts[] = {p->a, p->b, p->bias, p->dgelu, p->c_old, p->dbias_old, p->c, p->dbias};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x) {
    double th = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    double du = 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + th) + 0.5 * x * (1 - th * th) * du;
}

// B as (k, n) in double, so that the innermost loop runs along rows.
static double *straight(const struct Product *p) {
    const struct Form *f = &p->f;
    double *b = base_alloc(f->k * f->n * sizeof *b);
    for (size_t l = 0; l < f->k; l++)
        for (size_t j = 0; j < f->n; j++)
            b[l * f->n + j] =
                dtype_load(p->b, p->dtype, f->b_transposed ? j * f->k + l : l * f->n + j);
    return b;
}

// The result in double, from the operands as they are stored.
static void product_expect(struct Product *p) {
    const struct Form *f = &p->f;
    double *b = straight(p);
#pragma omp parallel for
    for (size_t i = 0; i < f->m; i++) {
        double *c = p->c + i * f->n, sum = 0;
        for (size_t j = 0; j < f->n; j++)
            c[j] = f->parts & ACCUMULATE ? dtype_load(p->c_old, p->c_dtype, i * f->n + j) : 0;
        for (size_t l = 0; l < f->k; l++) {
            double a = dtype_load(p->a, p->dtype, f->a_transposed ? l * f->m + i : i * f->k + l);
            sum += a;
            for (size_t j = 0; j < f->n; j++)
                c[j] += a * b[l * f->n + j];
        }
        for (size_t j = 0; j < f->n; j++) {
            if (f->parts & BIAS)
                c[j] += dtype_load(p->bias, p->dtype, j);
            if (f->parts & DGELU)
                c[j] *= gelu_slope(dtype_load(p->dgelu, p->c_dtype, i * f->n + j));
        }
        p->dbias[i] = sum + (f->parts & ACCUMULATE ? dtype_load(p->dbias_old, p->c_dtype, i) : 0);
    }
    free(b);
}

// What one run gave, on the host.
struct Result {
    size_t c_bytes, dbias_bytes;
    void *c, *gelu, *dbias;
};

static struct Result product_run(struct Device *d, const struct Product *p) {
    const struct Form *f = &p->f;
    size_t size = dtype_size(p->dtype), c_size = dtype_size(p->c_dtype);
    struct Result r = {.c_bytes = f->m * f->n * c_size, .dbias_bytes = f->m * c_size};
    struct Matmul a = {.m = f->m, .n = f->n, .k = f->k, .accumulate = f->parts & ACCUMULATE};
    a.a = (struct Mat){smoke_upload(d, p->a, f->m * f->k * size), p->dtype,
                       f->a_transposed ? f->m : f->k, f->a_transposed, NULL};
    a.b = (struct Mat){smoke_upload(d, p->b, f->k * f->n * size), p->dtype,
                       f->b_transposed ? f->k : f->n, f->b_transposed, NULL};
    a.c = (struct Mat){smoke_upload(d, p->c_old, r.c_bytes), p->c_dtype, f->n, false, NULL};
    a.bias = f->parts & BIAS ? smoke_upload(d, p->bias, f->n * size) : NULL;
    a.dgelu = f->parts & DGELU ? smoke_upload(d, p->dgelu, r.c_bytes) : NULL;
    a.gelu = f->parts & GELU ? smoke_upload(d, p->c_old, r.c_bytes) : NULL;
    a.dbias = f->parts & DBIAS ? smoke_upload(d, p->dbias_old, r.dbias_bytes) : NULL;
    a.work.bytes = d->kernels->matmul_work(d, &a);
    a.work.mem = d->ops->alloc(d, a.work.bytes);
    CHECK(a.work.mem, "no memory for %zu bytes", a.work.bytes);
    d->kernels->matmul(d->queue[QUEUE_COMPUTE], &a);
    r.c = base_alloc(r.c_bytes);
    smoke_download(d, r.c, a.c.data, r.c_bytes);
    if (a.gelu)
        smoke_download(d, r.gelu = base_alloc(r.c_bytes), a.gelu, r.c_bytes);
    if (a.dbias)
        smoke_download(d, r.dbias = base_alloc(r.dbias_bytes), a.dbias, r.dbias_bytes);
    return r; // the GPU's memory goes with the process
}

static void result_free(struct Result *r) {
    free(r->c);
    free(r->gelu);
    free(r->dbias);
}

static bool is_right(const struct Product *p, const struct Result *r) {
    const struct Form *f = &p->f;
    double limit = smoke_limit[p->c_dtype];
    // How exact the slope of cuBLASLt's GELU is, is not documented: a GPU's tanh has 11 bits.
    if (f->parts & DGELU && p->dtype != F32 && sim_is_real())
        limit += 0x1p-10;
    // cuBLASLt rounds a product before it adds it to a 16-bit C (seen on an H200).
    double c_limit = f->parts & ACCUMULATE && p->c_dtype != F32 ? sqrt(2) * limit : limit;
    bool right =
        smoke_is_near("C", r->c, p->c_dtype, p->c, f->m * f->n, c_limit, LARGEST * c_limit);
    if (f->parts & DBIAS)
        right &=
            smoke_is_near("dbias", r->dbias, p->c_dtype, p->dbias, f->m, limit, LARGEST * limit);
    if (!(f->parts & GELU))
        return right;
    for (size_t i = 0; i < f->m * f->n; i++) // of what was stored
        p->c[i] = gelu(dtype_load(r->c, p->c_dtype, i));
    return right &
           smoke_is_near("GELU", r->gelu, p->c_dtype, p->c, f->m * f->n, limit, LARGEST * limit);
}

static bool has_same_bits(const struct Result *x, const struct Result *y) {
    bool same = memcmp(x->c, y->c, x->c_bytes) == 0 &&
                (!x->gelu || memcmp(x->gelu, y->gelu, x->c_bytes) == 0) &&
                (!x->dbias || memcmp(x->dbias, y->dbias, x->dbias_bytes) == 0);
    printf("%s\n", same ? "twice: the same bits" : "WRONG: other bits the second time");
    return same;
}

static int check(const struct Form *form, enum Dtype dtype, size_t rows) {
    struct Device *d = smoke_open();
    struct Product p = product_make(form, dtype, rows);
    printf("m %zu, n %zu, k %zu\n", p.f.m, p.f.n, p.f.k);
    struct Result first = product_run(d, &p), second = product_run(d, &p);
    product_expect(&p);
    bool right = is_right(&p, &first) & has_same_bits(&first, &second);
    result_free(&first);
    result_free(&second);
    product_free(&p);
    return !right;
}

static void name_of(char text[80], const struct Form *form, size_t format) {
    snprintf(text, 80, "matmul-%s-%s", form->name, formats[format].name);
}

void smoke_print_products(void) {
    char text[80];
    for (size_t i = 0; i < NFORMS * NFORMATS; i++) {
        name_of(text, &forms[i / NFORMATS], i % NFORMATS);
        puts(text);
    }
}

int smoke_product(const char *name, size_t rows) {
    char text[80];
    for (size_t i = 0; i < NFORMS * NFORMATS; i++) {
        name_of(text, &forms[i / NFORMATS], i % NFORMATS);
        if (!strcmp(name, text))
            return check(&forms[i / NFORMATS], formats[i % NFORMATS].dtype, rows);
    }
    return 2;
}
