// Products by oneDNN (https://oneapi-src.github.io/oneDNN, C API): the code that versions 2 and 3
// share.
//
// oneDNN describes a product first (sizes, strides, formats, what follows it), compiles it to a
// primitive, and then runs the primitive on any data of that description. Scratch is ours ("user
// mode"), so that it comes from the device's accounted memory and not from a pool of the library.
//
// Called by matmul.c, which keeps the primitives. Read next: matmul_dnnl3.c.
#include "kernels/cpu/matmul_dnnl.h"
#include "kernels/cpu/instructions.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct DnnlEngine {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

#define TEXT_OF(x) TEXT(x)
#define TEXT(x) #x

const char *dnnl_library_name(void) {
    return "oneDNN " TEXT_OF(DNNL_VERSION_MAJOR) "." TEXT_OF(DNNL_VERSION_MINOR) "." TEXT_OF(
        DNNL_VERSION_PATCH);
}

// Applies the limit of ZERO_CPU to oneDNN; the lowest set that oneDNN knows is SSE4.1.
static void limit_instruction_set(void) {
    static const dnnl_cpu_isa_t most[NINSTRUCTIONS] = {
        [INSTRUCTIONS_BASE] = dnnl_cpu_isa_sse41,
        [INSTRUCTIONS_AVX2] = dnnl_cpu_isa_avx2,
        [INSTRUCTIONS_AVX512] = dnnl_cpu_isa_avx512_core,
        [INSTRUCTIONS_AVX512BF16] = dnnl_cpu_isa_avx512_core_bf16,
    };
    enum Instructions set = instructions_bound();
    if (set < INSTRUCTIONS_AMX)
        DNNL_CHECK(dnnl_set_max_cpu_isa(most[set]));
}

struct DnnlEngine *dnnl_engine_open(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT; // later calls are refused
    pthread_once(&once, limit_instruction_set);
    struct DnnlEngine *e = base_alloc_zeroed(sizeof *e);
    DNNL_CHECK(dnnl_engine_create(&e->engine, dnnl_cpu, 0));
    DNNL_CHECK(dnnl_stream_create(&e->stream, e->engine, dnnl_stream_default_flags));
    return e;
}

void dnnl_engine_close(struct DnnlEngine *e) {
    DNNL_CHECK(dnnl_stream_destroy(e->stream));
    DNNL_CHECK(dnnl_engine_destroy(e->engine));
    free(e);
}

static dnnl_data_type_t type_of(enum Dtype d) {
    CHECK(d != F16, "oneDNN was given fp16");
    return d == F32 ? dnnl_f32 : dnnl_bf16;
}

static struct DnnlMatrix matrix(size_t rows, size_t cols, size_t ld, bool transposed,
                                enum Dtype d) {
    struct DnnlMatrix m = {.size = {(dnnl_dim_t)rows, (dnnl_dim_t)cols}, .type = type_of(d)};
    m.stride[transposed] = (dnnl_dim_t)ld;
    m.stride[!transposed] = 1;
    return m;
}

struct DnnlProduct *dnnl_product_open(struct DnnlEngine *engine, const struct ProductKey *key,
                                      size_t *work_bytes) {
    struct DnnlMatrix a = matrix(key->m, key->k, key->lda, key->a_transposed, key->operands);
    struct DnnlMatrix b = matrix(key->k, key->n, key->ldb, key->b_transposed, key->operands);
    struct DnnlMatrix c = matrix(key->m, key->n, key->ldc, false, key->result);
    struct DnnlMatrix bias = matrix(1, key->n, key->n, false, key->operands);
    struct DnnlProduct *p = base_alloc_zeroed(sizeof *p);
    p->stream = engine->stream;
    if (dnnl_primitive_make(p, engine->engine, &a, &b, key->bias ? &bias : NULL, &c,
                            key->accumulate, work_bytes))
        return p;
    free(p);
    return NULL;
}

void dnnl_product_run(struct DnnlProduct *p, const struct ProductData *data) {
    static const int names[DNNL_NARG] = {[DNNL_A] = DNNL_ARG_SRC,
                                         [DNNL_B] = DNNL_ARG_WEIGHTS,
                                         [DNNL_BIAS] = DNNL_ARG_BIAS,
                                         [DNNL_C] = DNNL_ARG_DST,
                                         [DNNL_WORK] = DNNL_ARG_SCRATCHPAD};
    const void *mem[DNNL_NARG] = {[DNNL_A] = data->a,
                                  [DNNL_B] = data->b,
                                  [DNNL_BIAS] = data->bias,
                                  [DNNL_C] = data->c,
                                  [DNNL_WORK] = data->work};
    dnnl_exec_arg_t args[DNNL_NARG];
    int n = 0;
    for (int i = 0; i < DNNL_NARG; i++) {
        if (!p->memory[i])
            continue;
        DNNL_CHECK(dnnl_memory_set_data_handle(p->memory[i], (void *)mem[i]));
        args[n++] = (dnnl_exec_arg_t){names[i], p->memory[i]};
    }
    DNNL_CHECK(dnnl_primitive_execute(p->primitive, p->stream, n, args));
    DNNL_CHECK(dnnl_stream_wait(p->stream));
}

void dnnl_product_close(struct DnnlProduct *p) {
    DNNL_CHECK(dnnl_primitive_destroy(p->primitive));
    for (int i = 0; i < DNNL_NARG; i++)
        if (p->memory[i])
            DNNL_CHECK(dnnl_memory_destroy(p->memory[i]));
    free(p);
}
