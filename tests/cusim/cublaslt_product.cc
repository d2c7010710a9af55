// A product of the simulated cuBLASLt: what it accesses, and plain loops in fp32. See cublaslt.cc.
#include "tests/cusim/cublaslt.h"

#include <algorithm>

#include <math.h>
#include <unistd.h>

namespace cusim {

static unsigned long counts[NBLAS], fused[NBLAS_FUSED];
static unsigned delays_us[NBLAS], backward_delay_us;

static void report(const Layout &l, const void *data, Use use) {
    size_t column_bytes = l.rows * dtype_size(l.dtype);
    if ((uint64_t)l.ld == l.rows)
        return access(data, column_bytes * l.columns, use);
    for (uint64_t j = 0; j < l.columns; j++)
        access(dtype_at(data, l.dtype, j * l.ld), column_bytes, use);
}

// The matrix in fp32, or its transposed: element (i, j) at i + j * lines.
static std::vector<float> unpack(const Layout &l, const void *data, bool transposed) {
    std::vector<float> to(l.rows * l.columns);
    for (uint64_t j = 0; j < l.columns; j++)
        for (uint64_t i = 0; i < l.rows; i++)
            to[transposed ? j + i * l.columns : i + j * l.rows] =
                dtype_load(data, l.dtype, i + j * l.ld);
    return to;
}

// sum[i] += a[i, l] * b[l] for l from begin on. a: (m, k) by columns.
static void multiply_block(float *sum, const float *a, const float *b, size_t m, size_t begin,
                           size_t end) {
    for (size_t l = begin; l < end; l++) {
        const float *column = a + l * m;
        float x = b[l];
        for (size_t i = 0; i < m; i++)
            sum[i] += column[i] * x;
    }
}

// One column of A B. Blocks of k are added apart, and then to each other: where a split adds in
// place, beginning with another block each time.
static void multiply_column(const Algorithm &algorithm, std::vector<float> *sum, const float *a,
                            const float *b, size_t m, size_t k) {
    std::vector<float> part(m);
    size_t blocks = (k + algorithm.k_block - 1) / algorithm.k_block;
    size_t first = algorithm.id == BLAS_INPLACE ? counts[BLAS_INPLACE] % blocks : 0;
    sum->assign(m, 0);
    for (size_t n = 0; n < blocks; n++) {
        size_t begin = (first + n) % blocks * algorithm.k_block;
        size_t end = begin + algorithm.k_block < k ? begin + algorithm.k_block : k;
        part.assign(m, 0);
        multiply_block(part.data(), a, b, m, begin, end);
        for (size_t i = 0; i < m; i++)
            (*sum)[i] += part[i];
    }
}

// All of A B in parts of k, each in the workspace: (parts, n, m). They are added in a step of its
// own (add_parts), in their order.
static void multiply_parts(const Call &c, const float *a, const float *b, size_t k) {
    size_t m = c.c.rows, n = c.c.columns, part = c.algorithm.k_block;
    float *parts = static_cast<float *>(c.workspace);
    access(parts, c.algorithm.workspace_bytes, Use::WRITE);
    for (size_t begin = 0; begin < k; begin += part)
        for (size_t j = 0; j < n; j++) {
            float *sum = parts + (begin / part * n + j) * m;
            std::fill(sum, sum + m, 0.0f);
            multiply_block(sum, a, b + j * k, m, begin, begin + part < k ? begin + part : k);
        }
}

static void add_parts(const Call &c, std::vector<float> *sum, size_t j, size_t k) {
    size_t m = c.c.rows, n = c.c.columns,
           count = (k + c.algorithm.k_block - 1) / c.algorithm.k_block;
    const float *parts = static_cast<const float *>(c.workspace);
    sum->assign(m, 0);
    for (size_t p = 0; p < count; p++)
        for (size_t i = 0; i < m; i++)
            (*sum)[i] += parts[(p * n + j) * m + i];
}

// The derivative of the tanh form of GELU.
static double gelu_slope(double x) {
    double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x), t = tanh(u);
    double du = 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du;
}

static void store_column(const Call &c, uint64_t j, const std::vector<float> &sum) {
    Dtype d = c.c.dtype;
    for (uint64_t i = 0; i < c.c.rows; i++) {
        uint64_t at = i + j * c.c.ld;
        float x = c.alpha * sum[i];
        if (c.beta != 0)
            x += c.beta * dtype_load(c.c_data, d, at);
        if (c.product.epilogue == CUBLASLT_EPILOGUE_BIAS)
            x += dtype_load(c.product.bias, d, i);
        if (c.product.epilogue == CUBLASLT_EPILOGUE_DGELU)
            x = (float)(x * gelu_slope(dtype_load(c.product.aux, d, i + j * c.product.aux_ld)));
        dtype_store(c.c_data, d, at, x);
    }
}

// BGRADB: for each column of C the sum of B's over k, in C's format, overwritten. b: (k, n).
static void store_row_sums(const Call &c, const float *b, size_t k) {
    for (uint64_t j = 0; j < c.c.columns; j++) {
        float sum = 0;
        for (size_t l = 0; l < k; l++)
            sum += b[j * k + l];
        dtype_store(const_cast<void *>(c.product.bias), c.c.dtype, j, sum);
    }
}

void run(const Call &c) {
    report(c.a, c.a_data, Use::READ);
    report(c.b, c.b_data, Use::READ);
    if (c.beta != 0)
        report(c.c, c.c_data, Use::READ);
    if (c.product.epilogue == CUBLASLT_EPILOGUE_BIAS)
        access(c.product.bias, c.c.rows * dtype_size(c.c.dtype), Use::READ);
    if (c.product.epilogue == CUBLASLT_EPILOGUE_DGELU)
        report({c.c.dtype, c.c.rows, c.c.columns, c.product.aux_ld}, c.product.aux, Use::READ);
    report(c.c, c.c_data, Use::WRITE);
    if (c.product.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        access(c.product.bias, c.c.columns * dtype_size(c.c.dtype), Use::WRITE);
    // The workspace is large; its beginning is enough to tell whether somebody else uses it too.
    access(c.workspace, 1, Use::WRITE);
    poison(c.workspace, c.workspace_bytes < 4096 ? c.workspace_bytes : 4096);
    std::vector<float> a = unpack(c.a, c.a_data, c.product.a_op == CUBLAS_OP_T);
    std::vector<float> b = unpack(c.b, c.b_data, c.product.b_op == CUBLAS_OP_T), sum;
    uint64_t k = k_of(c.product, c.a);
    bool parts = c.algorithm.id == BLAS_SPLIT;
    if (parts)
        multiply_parts(c, a.data(), b.data(), k);
    for (uint64_t j = 0; j < c.c.columns; j++) {
        if (parts)
            add_parts(c, &sum, j, k);
        else
            multiply_column(c.algorithm, &sum, a.data(), b.data() + j * k, c.c.rows, k);
        store_column(c, j, sum);
    }
    if (c.product.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        store_row_sums(c, b.data(), k);
    counts[c.algorithm.id]++;
    fused[BLAS_BIAS] += c.product.epilogue == CUBLASLT_EPILOGUE_BIAS;
    fused[BLAS_DGELU] += c.product.epilogue == CUBLASLT_EPILOGUE_DGELU;
    unsigned delay_us = delays_us[c.algorithm.id];
    if (c.product.epilogue == CUBLASLT_EPILOGUE_BGRADB ||
        c.product.epilogue == CUBLASLT_EPILOGUE_DGELU)
        delay_us += backward_delay_us;
    if (delay_us)
        usleep(delay_us);
}

} // namespace cusim

unsigned long sim_blas_count(int algorithm) {
    return cusim::counts[algorithm];
}
unsigned long sim_blas_fused(int epilogue) {
    return cusim::fused[epilogue];
}
void sim_blas_delay(int algorithm, unsigned delay_us) {
    cusim::delays_us[algorithm] = delay_us;
}
void sim_blas_delay_backward(unsigned delay_us) {
    cusim::backward_delay_us = delay_us;
}
