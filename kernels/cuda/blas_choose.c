// Which of cuBLASLt's algorithms is taken for a product.
//
// cuBLASLt's heuristic proposes algorithms, the quickest in its opinion first. Taken is the first
// one that
//   - needs no more workspace than blas_workspace_bytes allows, and
//   - does not split k: partial sums of a split are added in an order that is the algorithm's
//     affair, by some with atomics, and a result must have the same bits on every run.
// With device_autotune each of those that are left is timed on the product's first operands, and
// the quickest is taken. Clocks differ from run to run, and so may that choice: blas_choices.c
// hands them to checkpoints.
//
// Called by blas.c.
#include "kernels/cuda/blas_plan.h"

enum { MAX_CANDIDATES = 16, WARM_RUNS = 2, TIMED_RUNS = 10 };

// Whether the algorithm adds each element's products in one place. The preference asks for such
// only; this does not rely on it.
static bool splits(struct Blas *b, const cublasLtMatmulAlgo_t *algo) {
    int32_t split_k = 1;
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t written;
    LT_CHECK(b, MatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split_k,
                                             sizeof split_k, &written));
    LT_CHECK(b, MatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                             sizeof scheme, &written));
    return split_k > 1 || scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
}

bool plan_may_take(struct Blas *b, const struct Key *key, const cublasLtMatmulHeuristicResult_t *r,
                   const cublasLtMatmulAlgo_t *algo) {
    return r->state == CUBLAS_STATUS_SUCCESS &&
           r->workspaceSize <= blas_workspace_bytes(key->m, key->n) && !splits(b, algo);
}

static cublasLtMatmulPreference_t preference_open(struct Blas *b, const struct Key *key) {
    cublasLtMatmulPreference_t preference;
    uint64_t workspace_bytes = blas_workspace_bytes(key->m, key->n);
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } set[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->b_align, sizeof key->b_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->a_align, sizeof key->a_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->c_align, sizeof key->c_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->c_align, sizeof key->c_align},
    };
    LT_CHECK(b, MatmulPreferenceCreate(&preference));
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++)
        LT_CHECK(b,
                 MatmulPreferenceSetAttribute(preference, set[i].name, set[i].value, set[i].bytes));
    return preference;
}

// The algorithms that may be taken, in the heuristic's order. At least one.
static int find_candidates(struct Blas *b, const struct Plan *p,
                           cublasLtMatmulAlgo_t algo[MAX_CANDIDATES]) {
    const struct Key *key = &p->choice.key;
    cublasLtMatmulHeuristicResult_t found[MAX_CANDIDATES];
    int nfound = 0, n = 0;
    cublasLtMatmulPreference_t preference = preference_open(b, key);
    LT_CHECK(b, MatmulAlgoGetHeuristic(b->handle, p->product, p->b, p->a, p->c, p->c, preference,
                                       MAX_CANDIDATES, found, &nfound));
    LT_CHECK(b, MatmulPreferenceDestroy(preference));
    for (int i = 0; i < nfound; i++)
        if (plan_may_take(b, key, &found[i], &found[i].algo))
            algo[n++] = found[i].algo;
    CHECK(n > 0,
          "cuBLASLt has no algorithm for m %zu, n %zu, k %zu, %s to %s, epilogue %u, alignment %u "
          "%u %u that needs at most %zu bytes and does not split k (of %d)",
          (size_t)key->m, (size_t)key->n, (size_t)key->k, dtype_name((enum Dtype)key->dtype),
          dtype_name((enum Dtype)key->c_dtype), key->epilogue, key->a_align, key->b_align,
          key->c_align, blas_workspace_bytes(key->m, key->n), nfound);
    return n;
}

static double time_algo(struct Blas *b, cudaStream_t stream, struct Plan *p,
                        const cublasLtMatmulAlgo_t *algo, const struct Matmul *a, void *c,
                        void *workspace) {
    double begin = 0;
    for (int i = -WARM_RUNS; i < TIMED_RUNS; i++) {
        if (i == 0) {
            CUDA_CHECK(cudaStreamSynchronize(stream));
            begin = base_seconds();
        }
        plan_queue(b, stream, p, algo, a, c, workspace);
    }
    CUDA_CHECK(cudaStreamSynchronize(stream));
    return base_seconds() - begin;
}

// The quickest of n. What is timed writes to memory of its own: the operands are the run's, and C
// may be a sum that is added to.
static int time_candidates(struct Blas *b, cudaStream_t stream, struct Plan *p,
                           const cublasLtMatmulAlgo_t *algo, int n, const struct Matmul *a,
                           void *workspace) {
    void *c;
    size_t bytes = a->m * a->c.ld * dtype_size(a->c.dtype);
    CUDA_CHECK(cudaMalloc(&c, bytes));
    CUDA_CHECK(cudaMemsetAsync(c, 0, bytes, stream));
    int best = 0;
    double best_s = 0;
    for (int i = 0; i < n; i++) {
        double s = time_algo(b, stream, p, &algo[i], a, c, workspace);
        if (i == 0 || s < best_s) {
            best = i;
            best_s = s;
        }
    }
    CUDA_CHECK(cudaFree(c));
    return best;
}

void plan_choose(struct Blas *b, cudaStream_t stream, struct Plan *p, const struct Matmul *a,
                 void *workspace) {
    cublasLtMatmulAlgo_t algo[MAX_CANDIDATES];
    int n = find_candidates(b, p, algo);
    int best = b->autotune ? time_candidates(b, stream, p, algo, n, a, workspace) : 0;
    p->choice.algo = algo[best];
}
