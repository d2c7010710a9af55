// Chooses the way to compute a product, and the cuBLASLt algorithm for it.
//
// Only the machine shows which products cuBLASLt has an algorithm for: its heuristic may answer
// that something is not supported, or propose nothing that is allowed. So there is a chain of ways,
// `blas_ways` below, and the first that works is taken:
//   1. cuBLASLt does the product with its epilogue;
//   2. the same, but asking only for algorithms that do not split k: the documentation does not say
//      how its mask of reduction schemes treats those;
//   3. our own kernels do the epilogue and the rounding, around a product that asks less of the
//      library: in fp32, or without an epilogue.
// The same plain product with our own kernel is also taken for speed alone, if it is timed or
// expected to be faster: that is a way of its own (WAY_OWN_QUICKER), and not a fallback. An fp32
// product without an epilogue has nothing left after 2: then the run ends, with a line that
// describes the product. Every way may use the whole workspace: it exists in any case.
//
// The heuristic proposes algorithms, the fastest in its opinion first. The first one is taken that
// needs no more workspace than there is, and gives the same bits on every run. That depends on its
// method when it splits k, so that several parts of the GPU each make a partial sum of C:
//   COMPUTE_TYPE   they are kept in the workspace in fp32, and added in a separate step
//   OUTPUT_TYPE    the same in C's format: in 16 bits each partial sum would be rounded
//   INPLACE        they are added to C itself: counters give each a turn, but no order is promised
// So only COMPUTE_TYPE is allowed. (NVIDIA promises the same bits on every run of one library on
// one kind of GPU, for one stream; our products are all in the compute queue.)
//
// The expected gain: a weight gradient of GPT-2 124M has 36 to 144 tiles of 128 x 128, for 132
// multiprocessors of an H100, and k is 8k to 32k tokens: without a split the first leaves 73% of
// them idle and the last runs 12 tiles in a second wave. These products are a quarter of a step's
// FLOPs; at twice their speed that is some 5% of the step once the rest is fast. (On an H200
// cuBLASLt splits these products by 2 and by 5, and they run at 551 to 725 TFLOP/s; their time
// without a split was not measured.) Larger models have more tiles, and gain less. The partial
// sums, 2 to 32 MiB, are written and read once, mostly in the L2 cache.
//
// A bias gradient is the one epilogue that is not always asked for (is_bgradb_a_pass below): if
// cuBLASLt makes a separate pass for it and nothing is timed, the product is plain, and our own
// sums follow.
//
// With Device.autotune each remaining algorithm is timed on the product's first operands, and the
// fastest is taken; for a product with a bias gradient or GELU's derivative also the plain product
// followed by our own kernel, on every GPU. Clocks differ from run to run, and so may that choice:
// blas_choices.c saves it in checkpoints. Nothing is allocated for it. If the product overwrites C,
// the timed runs write to it. If it adds to C they need a second C, for which they use the rest of
// the scratch if that is large enough; else the choice is as without tuning. (In training few
// products begin by adding: the others use the choices of the first micro-batch and of the first
// rows of the head.)
//
// Called by blas_open.c.
#include "kernels/cuda/blas_plan.h"

#include <math.h>
#include <string.h>

enum { MAX_CANDIDATES = 16, WARM_RUNS = 2, TIMED_RUNS = 10 };

// Reduction schemes of a split k that add in one order, and round nothing before.
enum { SCHEMES_ALLOWED = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE };

const struct WayRow blas_ways[NWAY] = {
    [WAY_LIBRARY] = {NULL, true, SCHEMES_ALLOWED},
    [WAY_LIBRARY_UNSPLIT] = {"by an algorithm of cuBLASLt that does not split k", true,
                             CUBLASLT_REDUCTION_SCHEME_NONE},
    [WAY_OWN] = {"by our own kernels around a plainer product", false, 0},
    [WAY_OWN_QUICKER] = {NULL, false, 0},
};

bool way_fits(enum Way way, const struct BlasKey *key) {
    if (way == WAY_OWN_QUICKER)
        return key->epilogue == EPILOGUE_DBIAS || key->epilogue == EPILOGUE_DGELU;
    return way != WAY_OWN || key->epilogue != EPILOGUE_NONE || key->c_dtype != F32;
}

// True if an algorithm gives the same bits every time. The preference asks only for such ones; this
// does not rely on it. If cuBLASLt does not report a property, the algorithm is not taken.
static bool is_repeatable(struct Blas *b, const struct BlasKey *key,
                          const cublasLtMatmulAlgo_t *algo) {
    int32_t split_k = 0;
    uint32_t scheme = 0;
    size_t written;
    const struct {
        cublasLtMatmulAlgoConfigAttributes_t name;
        void *value;
    } asked[] = {{CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split_k},
                 {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme}};
    for (int i = 0; i < 2; i++) {
        cublasStatus_t status = b->lt.MatmulAlgoConfigGetAttribute(
            algo, asked[i].name, asked[i].value, sizeof split_k, &written);
        blas_check_refusal(b, "cublasLtMatmulAlgoConfigGetAttribute", status, key);
        if (status != CUBLAS_STATUS_SUCCESS)
            return false;
    }
    bool reduces = scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
    return (scheme & ~(uint32_t)SCHEMES_ALLOWED) == 0 && (reduces || split_k <= 1);
}

bool plan_allows_algorithm(struct Blas *b, const struct BlasKey *key,
                           const cublasLtMatmulHeuristicResult_t *r,
                           const cublasLtMatmulAlgo_t *algo) {
    return r->state == CUBLAS_STATUS_SUCCESS &&
           r->workspaceSize <= blas_workspace_bytes(key->m, key->n) && is_repeatable(b, key, algo);
}

// True if cuBLASLt makes a bias gradient in a separate pass. On 9.0 in bf16 an H200 ran the plain
// product's kernel (nvjet_sm90_*), and then one that reads dy once more, like our own sums, whose
// order is known (cuBLASLt of CUDA 13.0).
static bool is_bgradb_a_pass(const struct Stream *s, const struct BlasKey *key) {
    return key->epilogue == EPILOGUE_DBIAS && s->cuda->variants.capability == 90 &&
           key->dtype == BF16;
}

static cublasLtMatmulPreference_t preference_open(struct Blas *b, const struct BlasKey *key,
                                                  uint32_t schemes) {
    cublasLtMatmulPreference_t preference;
    uint64_t workspace_bytes = blas_workspace_bytes(key->m, key->n);
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } set[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->b_align, sizeof key->b_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->a_align, sizeof key->a_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->c_align, sizeof key->c_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->c_align, sizeof key->c_align},
    };
    LT_CHECK(b, key, MatmulPreferenceCreate, &preference);
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++)
        LT_CHECK(b, key, MatmulPreferenceSetAttribute, preference, set[i].name, set[i].value,
                 set[i].bytes);
    return preference;
}

struct Candidates {
    int n;
    struct BlasCandidate {
        cublasLtMatmulAlgo_t algo;
        size_t workspace_bytes;
    } one[MAX_CANDIDATES];
};

// Finds the allowed algorithms, in the heuristic's order. It answers with a status, not with an
// empty list, if it knows none.
static void find_candidates(struct Blas *b, struct BlasPlan *p, uint32_t schemes,
                            struct Candidates *c) {
    const struct BlasKey *key = &p->choice.key;
    cublasLtMatmulHeuristicResult_t found[MAX_CANDIDATES];
    int nfound = 0;
    cublasLtMatmulPreference_t preference = preference_open(b, key, schemes);
    cublasStatus_t status = b->lt.MatmulAlgoGetHeuristic(
        b->handle, p->product, p->b, p->a, p->c, p->c, preference, MAX_CANDIDATES, found, &nfound);
    blas_check_refusal(b, "cublasLtMatmulAlgoGetHeuristic", status, key);
    LT_CHECK(b, key, MatmulPreferenceDestroy, preference);
    c->n = 0;
    for (int i = 0; i < nfound && status == CUBLAS_STATUS_SUCCESS; i++)
        if (plan_allows_algorithm(b, key, &found[i], &found[i].algo))
            c->one[c->n++] = (struct BlasCandidate){found[i].algo, found[i].workspaceSize};
    if (c->n == 0) {
        p->choice.status = status;
        p->choice.proposals = status == CUBLAS_STATUS_SUCCESS ? (uint32_t)nfound : 0;
    }
}

// The work to time: a product and, if it is our way, our own kernels after it.
struct Trial {
    struct Stream *s;
    struct BlasPlan *p;
    struct Matmul a; // its C and its dbias may be written over
    const struct MatmulBuffers *space;
    enum Epilogue own; // NONE: the library's way
};

// Returns the seconds of TIMED_RUNS runs; INFINITY if cuBLASLt does not launch it.
static double time_trial(const struct Trial *t, const cublasLtMatmulAlgo_t *algo) {
    struct Stream *s = t->s;
    double begin = 0;
    bool checked = s->cuda->device.check_launches; // it would wait only after our own kernels
    s->cuda->device.check_launches = false;
    bool launched = true;
    for (int i = -WARM_RUNS; i < TIMED_RUNS && launched; i++) {
        if (i == 0) {
            CUDA_CHECK(cudaStreamSynchronize(s->stream));
            begin = base_seconds();
        }
        cublasStatus_t status =
            plan_queue(s->cuda->blas, s->stream, t->p, algo, &t->a, t->space->workspace);
        blas_check_refusal(s->cuda->blas, "cublasLtMatmul", status, &t->p->choice.key);
        launched = status == CUBLAS_STATUS_SUCCESS;
        if (launched && t->own == EPILOGUE_DBIAS)
            cuda_row_sums(s, &t->a, t->space->own_scratch);
        if (launched && t->own == EPILOGUE_DGELU)
            cuda_gelu_slope(s, &t->a);
    }
    CUDA_CHECK(cudaStreamSynchronize(s->stream));
    s->cuda->device.check_launches = checked;
    return launched ? base_seconds() - begin : INFINITY;
}

static size_t c_bytes(const struct Matmul *a) {
    return a->m * a->c.ld * dtype_size(a->c.dtype);
}

// Returns where timed runs may put their C; NULL: nothing is timed. That is C itself, if the
// product overwrites it and does not read GELU's input there; else the rest of the scratch, if
// large enough.
static void *find_c_for_timing(struct Stream *s, const struct Matmul *a,
                               const struct MatmulBuffers *space) {
    if (!s->cuda->device.autotune)
        return NULL;
    if (!a->accumulate && a->dgelu != a->c.data)
        return a->c.data;
    return c_bytes(a) > space->timing_c_bytes ? NULL : space->timing_c;
}

// Returns the fastest; *seconds: the time of its TIMED_RUNS runs. NULL: none can be launched.
static const struct BlasCandidate *time_candidates(const struct Trial *t,
                                                   const struct Candidates *c, double *seconds) {
    const struct BlasCandidate *best = NULL;
    *seconds = INFINITY;
    for (int i = 0; i < c->n; i++) {
        double one = time_trial(t, &c->one[i].algo);
        if (one < *seconds) {
            best = &c->one[i];
            *seconds = one;
        }
    }
    return best;
}

// True if the plain product and our own kernel take less than `seconds`, the library's best time.
static bool is_own_quicker(const struct Trial *library, double seconds) {
    struct Trial own = *library;
    own.own = (enum Epilogue)library->p->choice.key.epilogue;
    own.p = plan_get(own.s, &own.a, EPILOGUE_NONE, own.space);
    cublasLtMatmulAlgo_t algo = own.p->choice.algo;
    return blas_ways[own.p->choice.way].library && time_trial(&own, &algo) < seconds;
}

// True if cuBLASLt has an algorithm; then the plan has the best one, or WAY_OWN_QUICKER as its way.
static bool choose_library(struct Stream *s, struct BlasPlan *p, enum Way way,
                           const struct Matmul *a, const struct MatmulBuffers *space) {
    struct Candidates c;
    find_candidates(s->cuda->blas, p, blas_ways[way].schemes, &c);
    if (c.n == 0)
        return false;
    struct Trial trial = {s, p, *a, space, EPILOGUE_NONE};
    const struct BlasCandidate *best = NULL;
    double seconds = INFINITY;
    trial.a.c.data = find_c_for_timing(s, a, space);
    if (trial.a.c.data == space->timing_c && space->timing_c)
        CUDA_CHECK(cudaMemsetAsync(space->timing_c, 0, c_bytes(a), s->stream));
    trial.a.dbias = space->dbias;
    if (trial.a.c.data) {
        best = time_candidates(&trial, &c, &seconds);
        if (!best) { // it launches none of its own proposals
            p->choice.status = CUBLAS_STATUS_NOT_SUPPORTED;
            p->choice.proposals = (uint32_t)c.n;
            return false;
        }
    }
    p->choice.way = way;
    p->choice.timed = best != NULL;
    best = best ? best : &c.one[0];
    p->choice.algo = best->algo;
    p->choice.workspace_bytes = best->workspace_bytes;
    if (p->choice.timed && way_fits(WAY_OWN_QUICKER, &p->choice.key) &&
        is_own_quicker(&trial, seconds))
        p->choice.way = WAY_OWN_QUICKER;
    return true;
}

// Makes the plan use our own kernels.
static void choose_own(struct Blas *b, struct BlasPlan *p, enum Way way) {
    p->choice.way = way;
    p->choice.workspace_bytes = 0;
    memset(&p->choice.algo, 0, sizeof p->choice.algo);
    plan_close(b, p);
}

void plan_choose(struct Stream *s, struct BlasPlan *p, const struct Matmul *a,
                 const struct MatmulBuffers *space) {
    struct Blas *b = s->cuda->blas;
    const struct BlasKey *key = &p->choice.key;
    if (is_bgradb_a_pass(s, key) && !find_c_for_timing(s, a, space)) {
        choose_own(b, p, WAY_OWN_QUICKER);
        return;
    }
    for (enum Way way = 0; way <= WAY_OWN; way++) {
        bool library = blas_ways[way].library;
        if (!way_fits(way, key) || (library && !choose_library(s, p, way, a, space)))
            continue;
        way = library ? (enum Way)p->choice.way : way;
        if (!blas_ways[way].library)
            choose_own(b, p, way);
        return;
    }
    char *call = base_format("cublasLtMatmulAlgoGetHeuristic has no algorithm that may be taken, "
                             "among %u proposals, for a product that every other way needs",
                             p->choice.proposals);
    blas_fail(b, call, (cublasStatus_t)p->choice.status, key);
}
