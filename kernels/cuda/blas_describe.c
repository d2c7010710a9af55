// Describes the choice for each matrix product: for people who ask why a run is slow, or what a
// library did not offer.
//
// Declared in kernels/device.h and blas_plan.h. Read next: blas_choose.c.
#include "kernels/cuda/blas_plan.h"

static const char *const epilogue_names[NEPILOGUE] = {[EPILOGUE_NONE] = "none",
                                                      [EPILOGUE_BIAS] = "bias",
                                                      [EPILOGUE_DGELU] = "dgelu",
                                                      [EPILOGUE_DBIAS] = "dbias"};

static const char *transpose_mark(uint32_t is_transposed) {
    return is_transposed ? "'" : "";
}

// Appends a product as its user knows it: C (m, n) = A B, with A' if A is transposed.
static void add_key(char **text, const struct BlasKey *key) {
    base_append(text, "m %zu n %zu k %zu, C = A%s B%s, %s to %s, epilogue %s", (size_t)key->m,
                (size_t)key->n, (size_t)key->k, transpose_mark(key->a_transposed),
                transpose_mark(key->b_transposed), dtype_name((enum Dtype)key->dtype),
                dtype_name((enum Dtype)key->c_dtype), epilogue_names[key->epilogue]);
}

char *key_describe(const struct BlasKey *key) {
    char *text = base_format("%s", "");
    add_key(&text, key);
    base_append(&text, ", rows of A, B, C %zu %zu %zu apart, aligned to %u %u %u bytes",
                (size_t)key->lda, (size_t)key->ldb, (size_t)key->ldc, key->a_align, key->b_align,
                key->c_align);
    return text;
}

// Appends the algorithm's configuration, as far as cuBLASLt reports it.
static void add_algorithm(char **text, struct Blas *b, const struct BlasChoice *c) {
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
            base_append(text, ", %s %d", rows[i].name, value);
    }
    base_append(text, ", workspace %zu bytes", (size_t)c->workspace_bytes);
}

static void add_fallback(char **text, struct Blas *b, const struct BlasChoice *c) {
    base_append(
        text,
        "%s: cuBLASLt has no algorithm for it (it says: %s; of %u proposals none may be taken)",
        blas_ways[c->way].fallback, b->lt.GetStatusString((cublasStatus_t)c->status), c->proposals);
}

static bool is_fallback(const struct BlasChoice *c) {
    return blas_ways[c->way].fallback != NULL;
}

static void add_choice(char **text, struct Blas *b, const struct BlasPlan *p) {
    const struct BlasChoice *c = &p->choice;
    bool library = blas_ways[c->way].library;
    add_key(text, &c->key);
    base_append(text, ": by %s", library ? "cuBLASLt" : "our own kernels");
    if (library)
        add_algorithm(text, b, c);
    if (c->timed)
        base_append(text, ", the quickest");
    if (is_fallback(c)) {
        base_append(text, "; fallback: ");
        add_fallback(text, b, c);
    }
    base_append(text, "; queued %llu times\n", (unsigned long long)p->uses);
}

char *device_describe_choices(struct Device *d) {
    struct Cuda *cuda = blas_cuda(d);
    char *text = base_format("%s", "");
    for (size_t i = 0; cuda && i < cuda->blas->nplan; i++)
        add_choice(&text, cuda->blas, &cuda->blas->plan[i]);
    return text;
}

char *device_describe_fallbacks(struct Device *d) {
    struct Cuda *cuda = blas_cuda(d);
    const struct BlasPlan *first = NULL;
    size_t count = 0;
    char *text = base_format("%s", "");
    for (size_t i = 0; cuda && i < cuda->blas->nplan; i++) {
        const struct BlasPlan *p = &cuda->blas->plan[i];
        if (p->uses == 0 || !is_fallback(&p->choice))
            continue;
        first = first ? first : p;
        count++;
    }
    if (first) {
        base_append(&text, "matrix products by a fallback: %zu of %zu; the first: ", count,
                    cuda->blas->nplan);
        add_key(&text, &first->choice.key);
        base_append(&text, ": ");
        add_fallback(&text, cuda->blas, &first->choice);
    }
    return text;
}
