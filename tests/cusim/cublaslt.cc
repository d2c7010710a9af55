// cuBLASLt for the simulator: the functions that kernels/cuda/blas*.c use, with cublasLt.h's own
// prototypes. A product is an operation of its stream. It reports what it reads and writes, fills
// its workspace with poison, and computes with plain loops in fp32 (cublaslt_product.cc).
//
// The heuristic proposes six algorithms, of which a caller that wants the same bits every time, and
// partial sums that are not rounded, must pass over three (blas_sim.h), whatever it asked for: that
// it asks is checked apart. The others add in blocks of k of different length, so that it shows in
// the bits which was taken. A test may let it refuse (sim_blas_refuse).
//
// What NVIDIA documents as a condition is checked here, and ends the run: alignments that were
// promised to the heuristic, strides of the GELU's input, formats of the epilogues.
#include "tests/cusim/cublaslt.h"

#include <string>

#include <string.h>

namespace cusim {

static BlasRefusal refusal;

// ---- what is asked, and whether it may be ----

static Dtype dtype_of(cudaDataType_t type) {
    if (type != CUDA_R_32F && type != CUDA_R_16BF && type != CUDA_R_16F)
        die("cuBLASLt: data type %d is not simulated", (int)type);
    return type == CUDA_R_32F ? F32 : type == CUDA_R_16BF ? BF16 : F16;
}

static bool fits(const Product &p, const Layout &a, const Layout &b, const Layout &c) {
    uint64_t k = k_of(p, a);
    return (p.a_op == CUBLAS_OP_N ? a.rows : a.columns) == c.rows &&
           (p.b_op == CUBLAS_OP_N ? b.rows : b.columns) == k &&
           (p.b_op == CUBLAS_OP_N ? b.columns : b.rows) == c.columns && a.dtype == b.dtype &&
           (c.dtype == F32 || c.dtype == a.dtype) && c.rows && c.columns && k;
}

// FNV-1a over all that a product is described by.
static uint64_t problem_of(const Product &p, const Layout &a, const Layout &b, const Layout &c) {
    uint64_t hash = 0xcbf29ce484222325u;
    const uint64_t parts[] = {
        (uint64_t)p.a_op, (uint64_t)p.b_op, (uint64_t)p.epilogue, (uint64_t)a.dtype,
        a.rows,           a.columns,        (uint64_t)a.ld,       b.rows,
        b.columns,        (uint64_t)b.ld,   (uint64_t)c.dtype,    c.rows,
        c.columns,        (uint64_t)c.ld};
    for (uint64_t part : parts)
        hash = (hash ^ part) * 0x100000001b3u;
    return hash;
}

static void check_epilogue(const Call &c) {
    const Product &p = c.product;
    bool biased = p.epilogue == CUBLASLT_EPILOGUE_BIAS || p.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    if (biased && (!p.bias || !is_aligned(p.bias, 16)))
        die("cuBLASLt: a bias or its gradient at %p, which is not aligned to 16 bytes", p.bias);
    if (p.epilogue != CUBLASLT_EPILOGUE_DGELU)
        return;
    if (!p.aux || !is_aligned(p.aux, 16) || p.aux_ld % 8 || (uint64_t)p.aux_ld < c.c.rows)
        die("cuBLASLt: GELU's input at %p with stride %lld: it must be aligned to 16 bytes, and "
            "the "
            "stride a multiple of 8",
            p.aux, (long long)p.aux_ld);
    if (c.c.dtype == F32 || c.c.dtype != c.a.dtype || c.beta != 0)
        die("cuBLASLt: DGELU with this format, or added to an old C, is not known to work");
}

static void check_call(const Call &c) {
    const Algorithm &g = c.algorithm;
    const void *data[3] = {c.a_data, c.b_data, c.c_data};
    if (g.magic != MAGIC || g.problem != problem_of(c.product, c.a, c.b, c.c))
        die("cuBLASLt: the algorithm was proposed for another product");
    for (int i = 0; i < 3; i++)
        if (!is_aligned(data[i], g.align[i]))
            die("cuBLASLt: matrix %c at %p, but its alignment was said to be %u", "ABC"[i], data[i],
                g.align[i]);
    if (c.workspace_bytes < g.workspace_bytes || !is_aligned(c.workspace, 256))
        die("cuBLASLt: %zu bytes of workspace at %p, needed are %llu, aligned to 256",
            c.workspace_bytes, c.workspace, (unsigned long long)g.workspace_bytes);
    check_epilogue(c);
}

static const struct {
    int32_t split_k;
    uint32_t scheme, k_block;
} rows[NBLAS] = {
    {4, CUBLASLT_REDUCTION_SCHEME_INPLACE, 16}, {4, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 16},
    {1, CUBLASLT_REDUCTION_SCHEME_NONE, 64},    {4, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0},
    {1, CUBLASLT_REDUCTION_SCHEME_NONE, 256},   {1, CUBLASLT_REDUCTION_SCHEME_NONE, 48},
};

static uint64_t workspace_of(int id, const Layout &c, const Preference &wish) {
    switch (id) {
    case BLAS_GREEDY:
        return wish.workspace_bytes + 1;
    case BLAS_INPLACE:
    case BLAS_ROUNDS:
    case BLAS_SPLIT:
        return rows[id].split_k * c.rows * c.columns * sizeof(float);
    default:
        return id == BLAS_PLAIN ? wish.workspace_bytes / 2 : 0;
    }
}

// Whether there is such an algorithm for the product.
static bool propose(const Product &p, const Layout &a, const Layout &b, const Layout &c,
                    const Preference &wish, int id, cublasLtMatmulHeuristicResult_t *result) {
    uint64_t k = k_of(p, a);
    if (id == BLAS_SPLIT &&
        (k < BLAS_SPLIT_K || !(wish.schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)))
        return false;
    Algorithm g = {};
    g.magic = MAGIC;
    g.id = (uint32_t)id;
    g.problem = problem_of(p, a, b, c);
    g.k_block = id == BLAS_SPLIT ? (uint32_t)((k + rows[id].split_k - 1) / rows[id].split_k)
                                 : rows[id].k_block;
    g.split_k = rows[id].split_k;
    g.scheme = rows[id].scheme;
    g.workspace_bytes = workspace_of(id, c, wish);
    if (id == BLAS_SPLIT && g.workspace_bytes > wish.workspace_bytes)
        return false;
    if (refusal.workspace && g.workspace_bytes)
        return false;
    memcpy(g.align, wish.align, sizeof g.align);
    *result = cublasLtMatmulHeuristicResult_t();
    memcpy(&result->algo, &g, sizeof g);
    result->workspaceSize = g.workspace_bytes;
    return true;
}

// ---- what a test lets it refuse ----

static std::string form_of(const Product &p, const Layout &a) {
    switch (p.epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return "bias";
    case CUBLASLT_EPILOGUE_DGELU:
        return "dgelu";
    case CUBLASLT_EPILOGUE_BGRADB:
        return "bgradb";
    default: // the caller's A is B here
        return std::string(p.b_op == CUBLAS_OP_T ? "T" : "N") +
               (p.a_op == CUBLAS_OP_T ? "T " : "N ") + dtype_name(a.dtype);
    }
}

static bool refuses(const Product &p, const Layout &a, const Layout &c, const Preference &wish) {
    bool same_fp32 = p.epilogue != CUBLASLT_EPILOGUE_DEFAULT || refusal.fp32 == (c.dtype == F32);
    return refusal.everything || (refusal.splits && wish.schemes) ||
           (refusal.form && same_fp32 && form_of(p, a) == refusal.form);
}

template <class T, class Opaque> static T *opened(Opaque p) {
    if (!p)
        die("cuBLASLt: NULL where an object is expected");
    return reinterpret_cast<T *>(p);
}

template <class T> static void set(T *to, const void *from, size_t bytes) {
    if (bytes != sizeof *to)
        die("cuBLASLt: an attribute of %zu bytes, expected %zu", bytes, sizeof *to);
    memcpy(to, from, bytes);
}

static Algorithm algorithm_of(const cublasLtMatmulAlgo_t *algo) {
    Algorithm g;
    memcpy(&g, algo, sizeof g);
    return g;
}

} // namespace cusim

using namespace cusim;

// ---- the library's functions ----

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    *out = reinterpret_cast<cublasLtHandle_t>(new Handle);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete opened<Handle>(handle);
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) {
    return VERSION;
}
const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "the simulator refuses it";
}
const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "a status of the simulator";
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        die("cuBLASLt: compute type %d, expected fp32 without TF32", (int)compute);
    *out = reinterpret_cast<cublasLtMatmulDesc_t>(new Product);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t p) {
    delete opened<Product>(p);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name, const void *from,
                                              size_t bytes) {
    Product *p = opened<Product>(desc);
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        set(&p->a_op, from, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        set(&p->b_op, from, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        set(&p->epilogue, from, bytes);
        if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT && p->epilogue != CUBLASLT_EPILOGUE_BIAS &&
            p->epilogue != CUBLASLT_EPILOGUE_DGELU && p->epilogue != CUBLASLT_EPILOGUE_BGRADB)
            die("cuBLASLt: epilogue %d is not simulated", (int)p->epilogue);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        set(&p->bias, from, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        set(&p->aux, from, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        set(&p->aux_ld, from, bytes);
        break;
    default:
        die("cuBLASLt: attribute %d of a product is not simulated", (int)name);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
    if (ld < (int64_t)rows)
        die("cuBLASLt: stride %lld of columns of %llu", (long long)ld, (unsigned long long)rows);
    *out = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{dtype_of(type), rows, columns, ld});
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    delete opened<Layout>(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    *out = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    delete opened<Preference>(p);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *from, size_t bytes) {
    Preference *p = opened<Preference>(preference);
    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        set(&p->workspace_bytes, from, bytes);
        break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        set(&p->schemes, from, bytes);
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        set(&p->align[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], from, bytes);
        break;
    default:
        die("cuBLASLt: preference %d is not simulated", (int)name);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *count) {
    const Preference *wish = opened<Preference>(preference);
    const Product *p = opened<Product>(product);
    const Layout *la = opened<Layout>(a), *lb = opened<Layout>(b), *lc = opened<Layout>(c);
    if (!fits(*p, *la, *lb, *lc))
        die("cuBLASLt: sizes or formats of the matrices do not fit");
    if (wish->schemes & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        die("cuBLASLt: the heuristic was asked for algorithms that add in any order, or round "
            "partial sums");
    *count = 0;
    if (refuses(*p, *la, *lc, *wish))
        return refusal.empty ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    for (int id = 0; id < NBLAS && *count < wanted; id++)
        *count += propose(*p, *la, *lb, *lc, *wish, id, &results[*count]);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result) {
    Algorithm g = algorithm_of(algo);
    if (g.magic != MAGIC || g.id >= NBLAS ||
        g.problem != problem_of(*opened<Product>(product), *opened<Layout>(a), *opened<Layout>(b),
                                *opened<Layout>(c)))
        return CUBLAS_STATUS_INVALID_VALUE;
    result->workspaceSize = g.workspace_bytes;
    result->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t name,
                                                    void *to, size_t bytes, size_t *written) {
    Algorithm g = algorithm_of(algo);
    int32_t value;
    switch (name) {
    case CUBLASLT_ALGO_CONFIG_ID:
        value = (int32_t)g.id;
        break;
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
        value = 1;
        break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        value = g.split_k;
        break;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        value = (int32_t)g.scheme;
        break;
    default:
        die("cuBLASLt: attribute %d of an algorithm is not simulated", (int)name);
    }
    if (bytes != sizeof value)
        die("cuBLASLt: %zu bytes for attribute %d of an algorithm", bytes, (int)name);
    memcpy(to, &value, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void *alpha,
                              const void *a_data, cublasLtMatrixLayout_t a, const void *b_data,
                              cublasLtMatrixLayout_t b, const void *beta, const void *c_data,
                              cublasLtMatrixLayout_t c, void *d_data, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    if (c_data != d_data || c != d)
        die("cuBLASLt: a C apart from D is not simulated");
    Call call = {*opened<Product>(product),
                 *opened<Layout>(a),
                 *opened<Layout>(b),
                 *opened<Layout>(c),
                 a_data,
                 b_data,
                 d_data,
                 workspace,
                 workspace_bytes,
                 *static_cast<const float *>(alpha),
                 *static_cast<const float *>(beta),
                 algorithm_of(algo)};
    check_call(call);
    if (refusal.launch && call.algorithm.id == (uint32_t)refusal.launch)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    host_turn();
    load_kernel(form_of(*opened<Product>(product), *opened<Layout>(a)) +
                dtype_name(opened<Layout>(c)->dtype));
    enqueue(stream, "cublasLtMatmul", [call] { run(call); });
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"

#define EXPORT(name)                                                                               \
    { #name, reinterpret_cast < void *>(name) }
// A call that faults.cc may let fail.
#define FALLIBLE(name)                                                                             \
    {                                                                                              \
#name, reinterpret_cast < void *>(static_cast <decltype(&name)>([](auto... a) {            \
                   long refused = fault_of(#name);                                                 \
                   return refused ? (cublasStatus_t)refused : name(a...);                          \
               }))                                                                                 \
    }
static Library library(
    "libcublasLt.so",
    {FALLIBLE(cublasLtCreate), FALLIBLE(cublasLtDestroy), EXPORT(cublasLtGetVersion),
     EXPORT(cublasLtGetStatusString), EXPORT(cublasLtGetStatusName),
     FALLIBLE(cublasLtMatmulDescCreate), FALLIBLE(cublasLtMatmulDescDestroy),
     FALLIBLE(cublasLtMatmulDescSetAttribute), FALLIBLE(cublasLtMatrixLayoutCreate),
     FALLIBLE(cublasLtMatrixLayoutDestroy), FALLIBLE(cublasLtMatmulPreferenceCreate),
     FALLIBLE(cublasLtMatmulPreferenceDestroy), FALLIBLE(cublasLtMatmulPreferenceSetAttribute),
     FALLIBLE(cublasLtMatmulAlgoGetHeuristic), FALLIBLE(cublasLtMatmulAlgoCheck),
     FALLIBLE(cublasLtMatmulAlgoConfigGetAttribute), FALLIBLE(cublasLtMatmul)});

void sim_blas_refuse(struct BlasRefusal r) {
    cusim::refusal = r;
}
