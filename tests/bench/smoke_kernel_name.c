// gpu_smoke's dbias-kernel: which kernels cuBLASLt has behind a weight gradient in bf16, plain and
// with the sums for a bias gradient (BGRADB).
//
// Where the second is an old generation's, or has a pass of its own over dy, our own sums after the
// plain product are no slower (is_epilogue_slow in kernels/cuda/blas_choose.c). A name tells the
// generation: nvjet_* and sm90_* are Hopper's, cutlass_80_* Ampere's. It is had without a profiler:
// the product is captured into a CUDA graph, whose kernel nodes know their functions.
//
// The driver's functions are taken from libcuda itself, which the runtime has opened: so nothing of
// this is linked into the simulator, which has no graphs and says so. Source: NVIDIA, "CUDA Driver
// API", chapters "Graph Management" and "Module Management".
#include "kernels/cuda/blas_plan.h"
#include "kernels/library.h"
#include "tests/bench/smoke.h"
#include "tests/cusim/sim.h"

#include <cuda.h>
#include <stdio.h>

enum { CHANNELS = 768, WIDE = 4 * CHANNELS, MOST_NODES = 8, PROPOSALS = 16 };

// With the names that libcuda exports; the headers' macros stand for some of them.
static const char *const symbols[] = {
    "cuStreamBeginCapture_v2",       "cuStreamEndCapture", "cuGraphGetNodes", "cuGraphNodeGetType",
    "cuGraphKernelNodeGetParams_v2", "cuFuncGetName",      "cuKernelGetName"};
struct Driver {
    CUresult (*begin)(CUstream, CUstreamCaptureMode);
    CUresult (*end)(CUstream, CUgraph *);
    CUresult (*nodes)(CUgraph, CUgraphNode *, size_t *);
    CUresult (*type)(CUgraphNode, CUgraphNodeType *);
    CUresult (*kernel)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *);
    CUresult (*name_of_function)(const char **, CUfunction);
    CUresult (*name_of_kernel)(const char **, CUkernel);
};

static void expect(CUresult status, const char *call) {
    CHECK(status == CUDA_SUCCESS, "%s: status %d", call, (int)status);
}

static void print_name(const struct Driver *cu, const char *what, CUgraphNode node) {
    CUgraphNodeType type;
    CUDA_KERNEL_NODE_PARAMS params;
    const char *name = "a function without a name";
    expect(cu->type(node, &type), "cuGraphNodeGetType");
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) {
        printf("%s: a node of type %d\n", what, (int)type);
        return;
    }
    expect(cu->kernel(node, &params), "cuGraphKernelNodeGetParams");
    if (params.func)
        expect(cu->name_of_function(&name, params.func), "cuFuncGetName");
    else
        expect(cu->name_of_kernel(&name, params.kern), "cuKernelGetName");
    printf("%s: %s\n", what, name);
}

// What both products have in common.
struct Names {
    struct Device *device;
    struct Driver driver;
    struct Matmul a;
    void *workspace;
};

// The first proposal that may be taken, as without tuning; false: there is none.
static bool first_proposal(struct Blas *b, struct BlasPlan *p, cublasLtMatmulAlgo_t *out) {
    const struct BlasKey *key = &p->choice.key;
    cublasLtMatmulHeuristicResult_t found[PROPOSALS];
    cublasLtMatmulPreference_t preference;
    uint64_t bytes = blas_workspace_bytes(key->m, key->n);
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int n = 0;
    LT_CHECK(b, key, MatmulPreferenceCreate, &preference);
    LT_CHECK(b, key, MatmulPreferenceSetAttribute, preference,
             CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    LT_CHECK(b, key, MatmulPreferenceSetAttribute, preference,
             CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    cublasStatus_t status = b->lt.MatmulAlgoGetHeuristic(b->handle, p->product, p->b, p->a, p->c,
                                                         p->c, preference, PROPOSALS, found, &n);
    LT_CHECK(b, key, MatmulPreferenceDestroy, preference);
    for (int i = 0; i < n && status == CUBLAS_STATUS_SUCCESS; i++)
        if (plan_allows_algorithm(b, key, &found[i], &found[i].algo)) {
            *out = found[i].algo;
            return true;
        }
    return false;
}

static void queue_product(const struct Names *n, struct BlasPlan *p,
                          const cublasLtMatmulAlgo_t *algo) {
    struct Cuda *cuda = blas_cuda(n->device);
    cudaStream_t stream = n->device->ops->native_stream(n->device->queue[QUEUE_COMPUTE]);
    cublasStatus_t status = plan_queue(cuda->blas, stream, p, algo, &n->a, n->workspace);
    CHECK(status == CUBLAS_STATUS_SUCCESS, "cublasLtMatmul: status %d", (int)status);
}

// Queues it into a graph, which is never run.
static void print_captured(const struct Names *n, const char *what, struct BlasPlan *p,
                           const cublasLtMatmulAlgo_t *algo) {
    CUstream stream = n->device->ops->native_stream(n->device->queue[QUEUE_COMPUTE]);
    CUgraph graph;
    CUgraphNode node[MOST_NODES];
    size_t count = MOST_NODES;
    expect(n->driver.begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    queue_product(n, p, algo);
    expect(n->driver.end(stream, &graph), "cuStreamEndCapture");
    expect(n->driver.nodes(graph, node, &count), "cuGraphGetNodes");
    for (size_t i = 0; i < count; i++)
        print_name(&n->driver, what, node[i]);
}

static void print_product(const struct Names *n, const char *what, enum Epilogue epilogue) {
    struct Blas *b = blas_cuda(n->device)->blas;
    const struct Matmul *a = &n->a;
    struct BlasKey key = {.m = a->m,
                          .n = a->n,
                          .k = a->k,
                          .lda = a->a.ld,
                          .ldb = a->b.ld,
                          .ldc = a->c.ld,
                          .dtype = BF16,
                          .c_dtype = BF16,
                          .a_transposed = true,
                          .a_align = MAX_ALIGN,
                          .b_align = MAX_ALIGN,
                          .c_align = MAX_ALIGN,
                          .epilogue = epilogue};
    struct BlasPlan p = plan_open(b, &key);
    cublasLtMatmulAlgo_t algo;
    if (!first_proposal(b, &p, &algo))
        printf("%s: cuBLASLt has no algorithm for it\n", what);
    else if (sim_is_real())
        print_captured(n, what, &p, &algo);
    else {
        queue_product(n, &p, &algo);
        printf("%s: simulated, a kernel without a name\n", what);
    }
    plan_close(b, &p);
}

static void *memory(struct Device *d, size_t bytes) {
    void *mem = d->ops->alloc(d, bytes);
    CHECK(mem, "no memory for %zu bytes", bytes);
    device_zero(d, QUEUE_COMPUTE, mem, bytes);
    return mem; // goes with the process
}

int smoke_kernel_name(size_t rows) {
    enum { COUNT = sizeof symbols / sizeof symbols[0] };
    void *function[COUNT];
    struct Error e;
    struct Device *d = smoke_open();
    struct Names n = {.device = d, .a = {.m = WIDE, .n = CHANNELS, .k = rows}};
    _Static_assert(sizeof n.driver == sizeof function, "one pointer for each name");
    if (sim_is_real() &&
        library_open("libcuda.so.1", symbols, function, COUNT, "NVIDIA's driver", &e)) {
        printf("%s\n", e.text);
        return 1;
    }
    if (sim_is_real())
        memcpy(&n.driver, function, sizeof n.driver);
    n.a.a = (struct Mat){memory(d, rows * WIDE * 2), BF16, WIDE, true, NULL};
    n.a.b = (struct Mat){memory(d, rows * CHANNELS * 2), BF16, CHANNELS, false, NULL};
    n.a.c = (struct Mat){memory(d, WIDE * CHANNELS * 2), BF16, CHANNELS, false, NULL};
    n.a.dbias = memory(d, WIDE * 2);
    n.workspace = memory(d, blas_workspace_bytes(WIDE, CHANNELS));
    print_product(&n, "plain", EPILOGUE_NONE);
    print_product(&n, "with BGRADB", EPILOGUE_DBIAS);
    device_sync_queue(d, QUEUE_COMPUTE);
    return 0;
}
