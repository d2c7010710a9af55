// Describes the choice for each matrix product: for people who ask why a run is slow, or what a
// library did not offer.
//
// Declared in kernels/device.h and blas_plan.h. Read next: blas_choose.c.
#include "kernels/cuda/blas_plan.h"

#include <stdio.h>

static const char *const epilogue_names[NEPILOGUE] = {[EPILOGUE_NONE] = "none",
                                                      [EPILOGUE_BIAS] = "bias",
                                                      [EPILOGUE_DGELU] = "dgelu",
                                                      [EPILOGUE_DBIAS] = "dbias"};

// A text that grows as it is printed to.
struct TextBuffer {
    char *text;
    size_t bytes;
    FILE *out;
};

static void text_open(struct TextBuffer *t) {
    t->out = open_memstream(&t->text, &t->bytes);
    if (!t->out)
        base_out_of_memory(BUFSIZ, "a text");
}

static char *text_close(struct TextBuffer *t) {
    if (fclose(t->out) != 0)
        base_out_of_memory(t->bytes, "a text");
    return t->text;
}

static const char *transpose_mark(uint32_t is_transposed) {
    return is_transposed ? "'" : "";
}

// Prints a product as its user knows it: C (m, n) = A B, with A' if A is transposed.
static void print_key(FILE *out, const struct BlasKey *key) {
    fprintf(out, "m %zu n %zu k %zu, C = A%s B%s, %s to %s, epilogue %s", (size_t)key->m,
            (size_t)key->n, (size_t)key->k, transpose_mark(key->a_transposed),
            transpose_mark(key->b_transposed), dtype_name((enum Dtype)key->dtype),
            dtype_name((enum Dtype)key->c_dtype), epilogue_names[key->epilogue]);
}

char *key_describe(const struct BlasKey *key) {
    struct TextBuffer t;
    text_open(&t);
    print_key(t.out, key);
    fprintf(t.out, ", rows of A, B, C %zu %zu %zu apart, aligned to %u %u %u bytes",
            (size_t)key->lda, (size_t)key->ldb, (size_t)key->ldc, key->a_align, key->b_align,
            key->c_align);
    return text_close(&t);
}

// Prints the algorithm's configuration, as far as cuBLASLt reports it.
static void print_algorithm(FILE *out, struct Blas *b, const struct BlasChoice *c) {
    static const struct {
        const char *name;
        cublasLtMatmulAlgoConfigAttributes_t attribute;
    } rows[] = {{"algorithm", CUBLASLT_ALGO_CONFIG_ID},
                {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID},
                {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID},
                {"split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
                {"reduction scheme", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t value;
        size_t written;
        if (b->lt.MatmulAlgoConfigGetAttribute(&c->algo, rows[i].attribute, &value, sizeof value,
                                               &written) == CUBLAS_STATUS_SUCCESS)
            fprintf(out, ", %s %d", rows[i].name, value);
    }
    fprintf(out, ", workspace %zu bytes", (size_t)c->workspace_bytes);
}

static void print_fallback(FILE *out, struct Blas *b, const struct BlasChoice *c) {
    fprintf(out,
            "%s: cuBLASLt has no algorithm for it (it says: %s; of %u proposals none may be taken)",
            blas_ways[c->way].fallback, b->lt.GetStatusString((cublasStatus_t)c->status),
            c->proposals);
}

static bool is_fallback(const struct BlasChoice *c) {
    return blas_ways[c->way].fallback != NULL;
}

static void print_choice(FILE *out, struct Blas *b, const struct BlasPlan *p) {
    const struct BlasChoice *c = &p->choice;
    bool library = blas_ways[c->way].library;
    print_key(out, &c->key);
    fprintf(out, ": by %s", library ? "cuBLASLt" : "our own kernels");
    if (library)
        print_algorithm(out, b, c);
    if (c->timed)
        fprintf(out, ", the quickest");
    if (is_fallback(c)) {
        fprintf(out, "; fallback: ");
        print_fallback(out, b, c);
    }
    fprintf(out, "; queued %llu times\n", (unsigned long long)p->uses);
}

char *device_describe_choices(struct Device *d) {
    struct Cuda *cuda = blas_cuda(d);
    struct TextBuffer t;
    text_open(&t);
    for (size_t i = 0; cuda && i < cuda->blas->nplan; i++)
        print_choice(t.out, cuda->blas, &cuda->blas->plan[i]);
    return text_close(&t);
}

char *device_describe_fallbacks(struct Device *d) {
    struct Cuda *cuda = blas_cuda(d);
    const struct BlasPlan *first = NULL;
    size_t count = 0;
    struct TextBuffer t;
    for (size_t i = 0; cuda && i < cuda->blas->nplan; i++) {
        const struct BlasPlan *p = &cuda->blas->plan[i];
        if (p->uses == 0 || !is_fallback(&p->choice))
            continue;
        first = first ? first : p;
        count++;
    }
    text_open(&t);
    if (first) {
        fprintf(t.out, "matrix products by a fallback: %zu of %zu; the first: ", count,
                cuda->blas->nplan);
        print_key(t.out, &first->choice.key);
        fprintf(t.out, ": ");
        print_fallback(t.out, cuda->blas, &first->choice);
    }
    return text_close(&t);
}
