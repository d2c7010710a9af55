// Inside blas*.c: what is kept of cuBLASLt, and of each product that was asked of it.
#ifndef KERNELS_CUDA_BLAS_PLAN_H
#define KERNELS_CUDA_BLAS_PLAN_H
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"

#include <cublasLt.h>

// The functions that are taken from the library.
#define LT_LIST(X)                                                                                 \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(GetVersion)                                                                                  \
    X(GetStatusString)                                                                             \
    X(GetStatusName)                                                                               \
    X(MatmulDescCreate)                                                                            \
    X(MatmulDescDestroy)                                                                           \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatrixLayoutCreate)                                                                          \
    X(MatrixLayoutDestroy)                                                                         \
    X(MatmulPreferenceCreate)                                                                      \
    X(MatmulPreferenceDestroy)                                                                     \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatmulAlgoGetHeuristic)                                                                      \
    X(MatmulAlgoCheck)                                                                             \
    X(MatmulAlgoConfigGetAttribute)                                                                \
    X(Matmul)

struct Lt {
#define X(name) __typeof__(&cublasLt##name) name;
    LT_LIST(X)
#undef X
};

enum { MAX_ALIGN = 16 };

// What a choice depends on. Written to checkpoints, so without padding. Alignment is in bytes, at
// most MAX_ALIGN: where in memory a buffer happens to be beyond that must not change an algorithm.
struct BlasKey {
    uint64_t m, n, k, lda, ldb, ldc;
    uint32_t dtype, c_dtype, a_transposed, b_transposed;
    uint32_t a_align, b_align, c_align, epilogue;
};

// The ways to have a product, in the order in which they are tried; and the one that is taken for
// its speed alone: timed, or expected.
enum Way { WAY_LIBRARY, WAY_LIBRARY_UNSPLIT, WAY_OWN, WAY_OWN_QUICKER, NWAY };

struct WayRow {
    const char *fallback; // what people are told; NULL: it is none
    bool library;         // cuBLASLt does the whole product; else our own kernels finish it
    uint32_t schemes;     // of reducing a split k, that cuBLASLt is asked for
};
extern const struct WayRow blas_ways[NWAY]; // blas_choose.c

// Written to checkpoints, so without padding.
struct BlasChoice {
    struct BlasKey key;
    uint32_t way;       // enum Way
    uint32_t timed;     // it was the quickest by the clock
    uint32_t status;    // what cuBLASLt said last when a way before this one was tried
    uint32_t proposals; // that it made then, of which none might be taken
    uint64_t workspace_bytes;
    cublasLtMatmulAlgo_t algo; // zeros where the way is our own
};

struct BlasPlan {
    struct BlasChoice choice;
    cublasLtMatmulDesc_t product; // NULL, as the layouts: our own way
    cublasLtMatrixLayout_t a, b, c;
    uint64_t uses;
};

struct Blas {
    struct Lt lt;
    cublasLtHandle_t handle;
    bool autotune;
    struct BlasPlan *plan; // a model has some twenty
    size_t nplan;
};

// The device's, if it is a GPU that is open; else NULL.
struct Cuda *blas_cuda(struct Device *d);

// A product in words. free() it.
char *key_describe(const struct BlasKey *key);

// Ends the process with a line about a call that has failed: fail.c.
void blas_fail(struct Blas *b, const char *call, cublasStatus_t status, const struct BlasKey *key)
    __attribute__((noreturn));

// Where a call asks whether cuBLASLt can do something, most statuses are no answer: memory was out,
// or the GPU lost. Those end the process, as another algorithm would bring other bits.
void blas_check_refusal(struct Blas *b, const char *call, cublasStatus_t status,
                        const struct BlasKey *key);

// A call that has no reason to fail, about the product `key` (NULL: about none).
#define LT_CHECK(blas, key, name, ...)                                                             \
    do {                                                                                           \
        cublasStatus_t status_ = (blas)->lt.name(__VA_ARGS__);                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                      \
            blas_fail(blas, "cublasLt" #name, status_, key);                                       \
    } while (0)

// A description of the product `key`, without an algorithm yet.
struct BlasPlan plan_open(struct Blas *b, const struct BlasKey *key);
void plan_close(struct Blas *b, struct BlasPlan *p);
struct BlasPlan *plan_find(struct Blas *b, const struct BlasKey *key); // NULL: there is none
struct BlasPlan *plan_keep(struct Blas *b, const struct BlasPlan *p);  // a copy

// The product's plan, which is chosen if this is its first use. Valid until another is chosen.
struct BlasPlan *plan_for(struct Stream *s, const struct Matmul *a, enum Epilogue epilogue,
                          const struct Capacity *room);

// Queues the product with that algorithm; a status other than success: nothing is queued.
cublasStatus_t plan_queue(struct Blas *b, cudaStream_t stream, struct BlasPlan *p,
                          const cublasLtMatmulAlgo_t *algo, const struct Matmul *a,
                          void *workspace);

// Sets the plan's way and algorithm: blas_choose.c.
void plan_choose(struct Stream *s, struct BlasPlan *p, const struct Matmul *a,
                 const struct Capacity *room);
// Whether an algorithm, with what cuBLASLt says of it, may be taken.
bool plan_may_take(struct Blas *b, const struct BlasKey *key,
                   const cublasLtMatmulHeuristicResult_t *r, const cublasLtMatmulAlgo_t *algo);
// Whether a way is open to a product.
bool way_fits(enum Way way, const struct BlasKey *key);

#endif
