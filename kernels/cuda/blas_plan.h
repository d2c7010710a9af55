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

enum Epilogue { EPILOGUE_NONE, EPILOGUE_BIAS, EPILOGUE_DGELU };

enum { MAX_ALIGN = 16 };

// What a choice depends on. Written to checkpoints, so without padding. Alignment is in bytes, at
// most MAX_ALIGN: where in memory a buffer happens to lie beyond that must not change an algorithm.
struct Key {
    uint64_t m, n, k, lda, ldb, ldc;
    uint32_t dtype, c_dtype, a_transposed, b_transposed;
    uint32_t a_align, b_align, c_align, epilogue;
};

struct Choice {
    struct Key key;
    cublasLtMatmulAlgo_t algo;
};

struct Plan {
    struct Choice choice;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
};

struct Blas {
    struct Lt lt;
    cublasLtHandle_t handle;
    bool autotune;
    struct Plan *plan; // a model has some twenty
    size_t nplan;
};

#define LT_CHECK(blas, call)                                                                       \
    do {                                                                                           \
        cublasStatus_t status_ = (blas)->lt.call;                                                  \
        CHECK(status_ == CUBLAS_STATUS_SUCCESS, "cuBLASLt says: %s",                               \
              (blas)->lt.GetStatusString(status_));                                                \
    } while (0)

// A description of the product `key`, without an algorithm yet.
struct Plan plan_open(struct Blas *b, const struct Key *key);
void plan_close(struct Blas *b, struct Plan *p);
struct Plan *plan_find(struct Blas *b, const struct Key *key); // NULL: there is none
struct Plan *plan_keep(struct Blas *b, const struct Plan *p);  // a copy

// Queues the product with that algorithm; C is `c`, whatever a->c says.
void plan_queue(struct Blas *b, cudaStream_t stream, struct Plan *p,
                const cublasLtMatmulAlgo_t *algo, const struct Matmul *a, void *c, void *workspace);

// Sets the plan's algorithm: blas_choose.c.
void plan_choose(struct Blas *b, cudaStream_t stream, struct Plan *p, const struct Matmul *a,
                 void *workspace);
// Whether an algorithm, with what cuBLASLt says of it, may be taken.
bool plan_may_take(struct Blas *b, const struct Key *key, const cublasLtMatmulHeuristicResult_t *r,
                   const cublasLtMatmulAlgo_t *algo);

#endif
