// cuBLASLt for the simulator: the functions that kernels/cuda/blas*.c use, with cublasLt.h's own
// prototypes. A product is an operation of its stream. It reports what it reads and writes, fills
// its workspace with poison, and computes with plain loops in fp32 (cublaslt_product.cc).
//
// The heuristic proposes four algorithms, two of which a caller that wants the same bits every time
// must pass over (blas_sim.h). One of these adds in another order at each call, as atomics would.
// The other two add in blocks of k of different length, so that it shows in the bits which was
// taken.
//
// What NVIDIA documents as a condition is checked here, and ends the run: alignments that were
// promised to the heuristic, strides of the GELU's input, formats of the epilogues.
#include "tests/cusim/cublaslt.h"

#include <string.h>

namespace cusim {

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
    if (p.epilogue == CUBLASLT_EPILOGUE_BIAS && (!p.bias || !is_aligned(p.bias, 16)))
        die("cuBLASLt: a bias at %p, which is not aligned to 16 bytes", p.bias);
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

static void propose(const Product &p, const Layout &a, const Layout &b, const Layout &c,
                    const Preference &wish, int id, cublasLtMatmulHeuristicResult_t *result) {
    static const uint32_t k_blocks[NBLAS] = {16, 64, 256, 48};
    Algorithm g = {};
    g.magic = MAGIC;
    g.id = (uint32_t)id;
    g.problem = problem_of(p, a, b, c);
    g.k_block = k_blocks[id];
    g.split_k = id == BLAS_SPLITS ? 4 : 1;
    g.scheme =
        id == BLAS_SPLITS ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    g.workspace_bytes = id == BLAS_GREEDY ? wish.workspace_bytes + 1 : wish.workspace_bytes / 2;
    memcpy(g.align, wish.align, sizeof g.align);
    *result = cublasLtMatmulHeuristicResult_t();
    memcpy(&result->algo, &g, sizeof g);
    result->workspaceSize = g.workspace_bytes;
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
            p->epilogue != CUBLASLT_EPILOGUE_DGELU)
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
    if (wish->schemes != CUBLASLT_REDUCTION_SCHEME_NONE)
        die("cuBLASLt: the heuristic was not asked for algorithms that do not split k");
    for (*count = 0; *count < wanted && *count < NBLAS; ++*count)
        propose(*p, *la, *lb, *lc, *wish, *count, &results[*count]);
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
    if (bytes != sizeof(int32_t) ||
        (name != CUBLASLT_ALGO_CONFIG_SPLITK_NUM && name != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME))
        die("cuBLASLt: %zu bytes for attribute %d of an algorithm", bytes, (int)name);
    memcpy(to, name == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? (void *)&g.split_k : &g.scheme, bytes);
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
    host_turn();
    enqueue(stream, "cublasLtMatmul", [call] { run(call); });
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"

#define EXPORT(name)                                                                               \
    { #name, reinterpret_cast < void *>(name) }
static Library library("libcublasLt.so",
                       {EXPORT(cublasLtCreate), EXPORT(cublasLtDestroy), EXPORT(cublasLtGetVersion),
                        EXPORT(cublasLtGetStatusString), EXPORT(cublasLtMatmulDescCreate),
                        EXPORT(cublasLtMatmulDescDestroy), EXPORT(cublasLtMatmulDescSetAttribute),
                        EXPORT(cublasLtMatrixLayoutCreate), EXPORT(cublasLtMatrixLayoutDestroy),
                        EXPORT(cublasLtMatmulPreferenceCreate),
                        EXPORT(cublasLtMatmulPreferenceDestroy),
                        EXPORT(cublasLtMatmulPreferenceSetAttribute),
                        EXPORT(cublasLtMatmulAlgoGetHeuristic), EXPORT(cublasLtMatmulAlgoCheck),
                        EXPORT(cublasLtMatmulAlgoConfigGetAttribute), EXPORT(cublasLtMatmul)});
