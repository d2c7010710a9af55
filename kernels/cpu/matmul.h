// Internals of the CPU's matmul: the ways to compute a product, and their interfaces.
//
// There are two. The blocked loops (matmul_loops.c) are ours, run on every CPU, read any dtype and
// compute in fp32; with AVX512_BF16 and AMX they multiply bf16 natively. oneDNN (matmul_dnnl2.c,
// matmul_dnnl3.c) does so for tables that do not use these units. matmul.c chooses by CPU and table
// and never by a timing, so that a repeated run is the same run.
//
//   matmul_run.c     per instruction set: the kernel itself; the work around a oneDNN product
//   matmul_loops.c   per instruction set: blocks and threads; inside: matmul_pack.c, matmul_tile.c
//   matmul.c         the choice, and the cache of prepared oneDNN products
#ifndef KERNELS_CPU_MATMUL_H
#define KERNELS_CPU_MATMUL_H
#include "kernels/cpu/cpu.h"

// The ways to compute products of one dtype.
enum MatmulPath { MATMUL_LOOPS, MATMUL_DNNL };

// Opened with a CPU device, for kernels of `threads` threads; loops_dot_bf16: the loops of the
// device's kernel table multiply bf16 natively. Never NULL.
struct MatmulCache *matmul_cache_open(int threads, bool loops_dot_bf16);
void matmul_cache_close(struct MatmulCache *cache);

// Returns the library of this build that multiplies where it is faster, with its version ("oneDNN
// 2.6.3"), or NULL if there is none.
const char *matmul_backend_name(void);

// True if this CPU multiplies bf16 natively (by AVX512_BF16, which every CPU with AMX has too).
bool matmul_cpu_has_bf16(void);

// True if oneDNN is in the build and multiplies such operands on this CPU: bf16 needs AVX-512.
bool matmul_dnnl_takes(enum Dtype operands);

// True if products of bf16 use special instructions of this CPU: by the table's loops
// (loops_dot_bf16) or by oneDNN.
bool matmul_uses_bf16(bool loops_dot_bf16);

enum MatmulPath matmul_cache_path(const struct MatmulCache *cache, enum Dtype operands);
// For tests and benchmarks: from now on computes products of these operands in this way. Fatal if
// oneDNN does not offer them.
void matmul_cache_force(struct MatmulCache *cache, enum Dtype operands, enum MatmulPath path);

// A product as oneDNN sees it: C = A · B + (accumulate ? C : 0) + (bias ? bias : 0). Zero the
// struct before filling it: it is compared as bytes.
struct ProductKey {
    size_t m, n, k, lda, ldb, ldc;
    enum Dtype operands, result;
    bool a_transposed, b_transposed, accumulate, bias;
};

struct ProductData {
    const void *a, *b, *bias;
    void *c, *work; // work: the bytes that matmul_cache_prepare returned, aligned to 64
};

// Finds or makes the prepared product and returns the scratch bytes that it needs. Any thread may
// call it.
size_t matmul_cache_prepare(struct MatmulCache *cache, const struct ProductKey *key);
// Runs it on the calling thread's OpenMP team. One thread at a time.
void matmul_cache_run(struct MatmulCache *cache, const struct ProductKey *key,
                      const struct ProductData *data);

// The oneDNN interface; one of matmul_dnnl2.c, matmul_dnnl3.c and matmul_nodnnl.c is in the build.
// The thread that calls open and run must have set OpenMP's team size to the device's threads.
struct DnnlEngine;
struct DnnlProduct;
const char *dnnl_library_name(void); // NULL: not in the build; then nothing below may be called
struct DnnlEngine *dnnl_engine_open(void);
void dnnl_engine_close(struct DnnlEngine *engine);
// NULL: oneDNN has no such product on this CPU.
struct DnnlProduct *dnnl_product_open(struct DnnlEngine *engine, const struct ProductKey *key,
                                      size_t *work_bytes);
void dnnl_product_run(struct DnnlProduct *product, const struct ProductData *data);
void dnnl_product_close(struct DnnlProduct *product);

#endif
