// Opens cuBLASLt, and describes products to it.
//
// A product is described once, as a BlasPlan, which is kept with the algorithm chosen for it
// (blas_choose.c): sizes, formats, strides, alignment and epilogue are its key. If cuBLASLt has no
// algorithm for the key, the plan says so.
//
// cuBLASLt matrices are column-major. A row-major matrix is the transpose of a column-major one, so
// C = A B is requested as C' = B' A': our B is its "A", our n its "m".
//
// fp32 is computed in fp32, not in TF32: the compute type is CUBLAS_COMPUTE_32F without FAST.
//
// Source: NVIDIA, "cuBLAS Library", chapter "Using the cuBLASLt API". Called by matmul.c and
// device.c. Read next: blas_choose.c.
#include "kernels/cuda/blas_plan.h"
#include "kernels/library.h"

#include <stdlib.h>
#include <string.h>

static const char *const lt_symbols[] = {
#define X(name) "cublasLt" #name,
    LT_LIST(X)
#undef X
};
enum { LT_COUNT = sizeof lt_symbols / sizeof lt_symbols[0] };

// The library's version must be that of the headers: an older one may lack functions that they
// declare, and a newer one may need a newer driver.
#define FILE_NAME(version) FILE_NAME_OF(version)
#define FILE_NAME_OF(version) "libcublasLt.so." #version

int blas_open(struct Blas **out, struct Error *e) {
    void *function[LT_COUNT];
    int err = library_open(FILE_NAME(CUBLAS_VER_MAJOR), lt_symbols, function, LT_COUNT,
                           "the CUDA Toolkit's cuBLAS", e);
    if (err)
        return err;
    struct Blas *b = base_alloc_zeroed(sizeof *b);
    _Static_assert(sizeof b->lt == sizeof function, "one pointer for each name");
    memcpy(&b->lt, function, sizeof b->lt);
    LT_CHECK(b, NULL, Create, &b->handle);
    *out = b;
    return 0;
}

// ---- plans ----

// Returns the largest power of two, at most MAX_ALIGN, that divides the address.
static uint32_t alignment(const void *p) {
    uint32_t align = MAX_ALIGN;
    while ((uintptr_t)p % align)
        align /= 2;
    return align;
}

static struct BlasKey key_of(const struct Matmul *a, enum Epilogue epilogue) {
    return (struct BlasKey){.m = a->m,
                            .n = a->n,
                            .k = a->k,
                            .lda = a->a.ld,
                            .ldb = a->b.ld,
                            .ldc = a->c.ld,
                            .dtype = a->a.dtype,
                            .c_dtype = a->c.dtype,
                            .a_transposed = a->a.transposed,
                            .b_transposed = a->b.transposed,
                            .a_align = alignment(a->a.data),
                            .b_align = alignment(a->b.data),
                            .c_align = alignment(a->c.data),
                            .epilogue = epilogue};
}

static cudaDataType_t data_type(uint32_t dtype) {
    return dtype == F32 ? CUDA_R_32F : dtype == BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

// Describes a row-major matrix (rows, columns) to cuBLASLt: as (columns, rows).
static cublasLtMatrixLayout_t layout_open(struct Blas *b, const struct BlasKey *key, uint32_t dtype,
                                          uint64_t rows, uint64_t columns, uint64_t ld) {
    cublasLtMatrixLayout_t layout;
    LT_CHECK(b, key, MatrixLayoutCreate, &layout, data_type(dtype), columns, rows, (int64_t)ld);
    return layout;
}

static void set_attribute(struct Blas *b, struct BlasPlan *p, cublasLtMatmulDescAttributes_t name,
                          const void *value, size_t bytes) {
    LT_CHECK(b, &p->choice.key, MatmulDescSetAttribute, p->product, name, value, bytes);
}

// Sets an attribute whose value is the address `value` itself.
static void set_pointer_attribute(struct Blas *b, struct BlasPlan *p,
                                  cublasLtMatmulDescAttributes_t name, const void *value) {
    set_attribute(b, p, name, &value, sizeof value);
}

static void set_epilogue(struct Blas *b, struct BlasPlan *p) {
    const struct BlasKey *key = &p->choice.key;
    static const cublasLtEpilogue_t epilogues[NEPILOGUE] = {
        [EPILOGUE_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
        [EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [EPILOGUE_DGELU] = CUBLASLT_EPILOGUE_DGELU,
        // of its B, which is our A: one for each column of its C, a row of ours
        [EPILOGUE_DBIAS] = CUBLASLT_EPILOGUE_BGRADB};
    cublasLtEpilogue_t epilogue = epilogues[key->epilogue];
    set_attribute(b, p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    // The heuristic reads only the alignment of these addresses.
    const void *aligned = (const void *)(uintptr_t)MAX_ALIGN;
    if (key->epilogue == EPILOGUE_BIAS || key->epilogue == EPILOGUE_DBIAS)
        set_pointer_attribute(b, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned);
    if (key->epilogue != EPILOGUE_DGELU)
        return;
    int64_t ld = (int64_t)key->ldc;
    set_attribute(b, p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
    set_pointer_attribute(b, p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned);
}

struct BlasPlan plan_open(struct Blas *b, const struct BlasKey *key) {
    struct BlasPlan p = {.choice.key = *key};
    cublasOperation_t a_op = key->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b_op = key->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_CHECK(b, key, MatmulDescCreate, &p.product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set_attribute(b, &p, CUBLASLT_MATMUL_DESC_TRANSA, &b_op, sizeof b_op);
    set_attribute(b, &p, CUBLASLT_MATMUL_DESC_TRANSB, &a_op, sizeof a_op);
    set_epilogue(b, &p);
    p.a = layout_open(b, key, key->dtype, key->a_transposed ? key->k : key->m,
                      key->a_transposed ? key->m : key->k, key->lda);
    p.b = layout_open(b, key, key->dtype, key->b_transposed ? key->n : key->k,
                      key->b_transposed ? key->k : key->n, key->ldb);
    p.c = layout_open(b, key, key->c_dtype, key->m, key->n, key->ldc);
    return p;
}

void plan_close(struct Blas *b, struct BlasPlan *p) {
    const cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->c};
    for (int i = 0; i < 3 && p->product; i++)
        LT_CHECK(b, &p->choice.key, MatrixLayoutDestroy, layouts[i]);
    if (p->product)
        LT_CHECK(b, &p->choice.key, MatmulDescDestroy, p->product);
    p->product = NULL;
}

struct BlasPlan *plan_keep(struct Blas *b, const struct BlasPlan *p) {
    b->plan = base_realloc(b->plan, (b->nplan + 1) * sizeof *b->plan, "plans of matrix products");
    b->plan[b->nplan] = *p;
    return &b->plan[b->nplan++];
}

struct BlasPlan *plan_find(struct Blas *b, const struct BlasKey *key) {
    for (size_t i = 0; i < b->nplan; i++)
        if (memcmp(&b->plan[i].choice.key, key, sizeof *key) == 0)
            return &b->plan[i];
    return NULL;
}

void blas_close(struct Blas *b) {
    if (!b)
        return;
    for (size_t i = 0; i < b->nplan; i++)
        plan_close(b, &b->plan[i]);
    LT_CHECK(b, NULL, Destroy, b->handle);
    free(b->plan);
    free(b);
}

// ---- products ----

cublasStatus_t plan_queue(struct Blas *b, cudaStream_t stream, struct BlasPlan *p,
                          const cublasLtMatmulAlgo_t *algo, const struct Matmul *a,
                          void *workspace) {
    float alpha = 1, beta = a->accumulate ? 1 : 0;
    uint32_t epilogue = p->choice.key.epilogue;
    if (epilogue == EPILOGUE_BIAS)
        set_pointer_attribute(b, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, a->bias);
    if (epilogue == EPILOGUE_DGELU)
        set_pointer_attribute(b, p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, a->dgelu);
    if (epilogue == EPILOGUE_DBIAS)
        set_pointer_attribute(b, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, a->dbias);
    return b->lt.Matmul(b->handle, p->product, &alpha, a->b.data, p->b, a->a.data, p->a, &beta,
                        a->c.data, p->c, a->c.data, p->c, algo, workspace,
                        blas_workspace_bytes(a->m, a->n), stream);
}

struct BlasPlan *plan_get(struct Stream *s, const struct Matmul *a, enum Epilogue epilogue,
                          const struct MatmulBuffers *space) {
    struct Blas *b = s->cuda->blas;
    struct BlasKey key = key_of(a, epilogue);
    struct BlasPlan *p = plan_find(b, &key);
    if (p)
        return p;
    struct BlasPlan made = plan_open(b, &key);
    plan_choose(s, &made, a, space);
    return plan_keep(b, &made);
}

bool blas_is_own_quicker(struct Stream *s, const struct Matmul *a, enum Epilogue epilogue,
                         const struct MatmulBuffers *space) {
    return plan_get(s, a, epilogue, space)->choice.way == WAY_OWN_QUICKER;
}

bool blas_matmul(struct Stream *s, const struct Matmul *a, enum Epilogue epilogue,
                 const struct MatmulBuffers *space) {
    struct Blas *b = s->cuda->blas;
    struct BlasPlan *p = plan_get(s, a, epilogue, space);
    p->uses++;
    if (!blas_ways[p->choice.way].library)
        return false;
    cublasStatus_t status = plan_queue(b, s->stream, p, &p->choice.algo, a, space->workspace);
    if (status != CUBLAS_STATUS_SUCCESS)
        blas_fail(b, "cublasLtMatmul", status, &p->choice.key);
    s->launches++;
    return true;
}
