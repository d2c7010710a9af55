// Internals of blas*.c: the state of cuBLASLt, and of each product.
#ifndef KERNELS_CUDA_BLAS_PLAN_H
#define KERNELS_CUDA_BLAS_PLAN_H
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"

#include <cublasLt.h>

// The functions used from the library.
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

// The inputs of a choice. Written to checkpoints, so without padding. Alignment is in bytes, at
// most MAX_ALIGN: beyond that a buffer's address must not change an algorithm.
struct BlasKey {
    uint64_t m, n, k, lda, ldb, ldc;
    uint32_t dtype, c_dtype, a_transposed, b_transposed;
    uint32_t a_align, b_align, c_align, epilogue;
};

// The ways to compute a product, in the order in which they are tried; and the one that is taken
// for its speed alone: timed, or expected.
enum Way { WAY_LIBRARY, WAY_LIBRARY_UNSPLIT, WAY_OWN, WAY_OWN_QUICKER, NWAY };

struct WayRow {
    const char *fallback; // its report to the user; NULL: not a fallback
    bool library;         // cuBLASLt does the whole product; else our own kernels finish it
    uint32_t schemes;     // reduction schemes of a split k to ask cuBLASLt for
};
extern const struct WayRow blas_ways[NWAY]; // blas_choose.c

// Written to checkpoints, so without padding.
struct BlasChoice {
    struct BlasKey key;
    uint32_t way;       // enum Way
    uint32_t timed;     // it was the fastest by the clock
    uint32_t status;    // cuBLASLt's last status when an earlier way was tried
    uint32_t proposals; // that it made then, none of which is allowed
    uint64_t workspace_bytes;
    cublasLtMatmulAlgo_t algo; // zeros if the way is our own
};

struct BlasPlan {
    struct BlasChoice choice;
    cublasLtMatmulDesc_t product; // NULL, like the layouts: our own way
    cublasLtMatrixLayout_t a, b, c;
    uint64_t uses;
};

struct Blas {
    struct Lt lt;
    cublasLtHandle_t handle;
    struct BlasPlan *plan; // a model has some twenty
    size_t nplan;
};

// Returns the device as a Cuda, if it is an open GPU; else NULL.
struct Cuda *blas_cuda(struct Device *d);

// Describes a product. free() it.
char *key_describe(const struct BlasKey *key);

// Ends the process with a line about a failed call: fail.c.
void blas_fail(struct Blas *b, const char *call, cublasStatus_t status, const struct BlasKey *key)
    __attribute__((noreturn));

// For a call that asks whether cuBLASLt can do something: most statuses are no answer, as memory
// was out, or the GPU lost. Those end the process, since another algorithm would give other bits.
void blas_check_refusal(struct Blas *b, const char *call, cublasStatus_t status,
                        const struct BlasKey *key);

// A call that should not fail, about the product `key` (NULL: about none).
#define LT_CHECK(blas, key, name, ...)                                                             \
    do {                                                                                           \
        cublasStatus_t status_ = (blas)->lt.name(__VA_ARGS__);                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                      \
            blas_fail(blas, "cublasLt" #name, status_, key);                                       \
    } while (0)

// Returns a description of the product `key`, without an algorithm yet.
struct BlasPlan plan_open(struct Blas *b, const struct BlasKey *key);
void plan_close(struct Blas *b, struct BlasPlan *p);
struct BlasPlan *plan_find(struct Blas *b, const struct BlasKey *key); // NULL: there is none
struct BlasPlan *plan_keep(struct Blas *b, const struct BlasPlan *p);  // a copy

// Returns the product's plan, chosen at its first use. Valid until another plan is chosen.
struct BlasPlan *plan_get(struct Stream *s, const struct Matmul *a, enum Epilogue epilogue,
                          const struct MatmulBuffers *space);

// Queues the product with that algorithm; a status other than success: nothing is queued.
cublasStatus_t plan_queue(struct Blas *b, cudaStream_t stream, struct BlasPlan *p,
                          const cublasLtMatmulAlgo_t *algo, const struct Matmul *a,
                          void *workspace);

// Sets the plan's way and algorithm: blas_choose.c.
void plan_choose(struct Stream *s, struct BlasPlan *p, const struct Matmul *a,
                 const struct MatmulBuffers *space);
// True if an algorithm is allowed, given cuBLASLt's result for it.
bool plan_allows_algorithm(struct Blas *b, const struct BlasKey *key,
                           const cublasLtMatmulHeuristicResult_t *r,
                           const cublasLtMatmulAlgo_t *algo);
// True if a way is possible for a product.
bool way_fits(enum Way way, const struct BlasKey *key);

#endif
