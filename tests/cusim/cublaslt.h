// Inside the simulated cuBLASLt: what a product is, as cublaslt.cc was told and as
// cublaslt_product.cc computes it. Matrices are counted by columns, as cuBLASLt does: element
// (i, j) at i + j * ld.
#ifndef TESTS_CUSIM_CUBLASLT_H
#define TESTS_CUSIM_CUBLASLT_H
#include "kernels/base.h"
#include "kernels/dtype.h"
#include "tests/cusim/blas_sim.h"
#include "tests/cusim/runtime.h"

#include <cublasLt.h>

namespace cusim {

enum { MAGIC = 0x626c6173, VERSION = 130000 };

struct Handle {
    uint64_t magic = MAGIC;
};

struct Product {
    cublasOperation_t a_op = CUBLAS_OP_N, b_op = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void *bias = nullptr, *aux = nullptr;
    int64_t aux_ld = 0;
};

struct Layout {
    Dtype dtype;
    uint64_t rows, columns;
    int64_t ld;
};

struct Preference {
    uint64_t workspace_bytes = 0;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t align[4] = {256, 256, 256, 256}; // of A, B, C, D
};

// What lies in a cublasLtMatmulAlgo_t, whose size is 64 bytes.
struct Algorithm {
    uint32_t magic, id;
    uint64_t workspace_bytes, problem; // problem: of which product it was proposed
    int32_t split_k;
    uint32_t scheme, k_block, align[4], unused[3];
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t), "they are copied as such");

struct Call {
    Product product;
    Layout a, b, c;
    const void *a_data, *b_data;
    void *c_data, *workspace;
    size_t workspace_bytes;
    float alpha, beta;
    Algorithm algorithm;
};

static inline uint64_t k_of(const Product &p, const Layout &a) {
    return p.a_op == CUBLAS_OP_N ? a.columns : a.rows;
}

void run(const Call &c); // cublaslt_product.cc, when the stream has come to it

} // namespace cusim
#endif
