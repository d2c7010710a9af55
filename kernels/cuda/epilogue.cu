// The parts of a matrix product that cuBLASLt does not do: sums of A's rows (the bias gradient),
// bias and GELU' (matmul.c decides when).
//
// The bias gradient of a layer is the sum over all tokens of dy (tokens, m), a matrix that is read
// once: only the memory's speed counts. Step 1 cuts it into pieces of ROWS rows. A thread holds the
// sums of as many neighbouring columns as fit into 16 bytes, so a warp reads 512 bytes of a row at
// once, and each of the block's warps takes every eighth row. Step 2 adds the pieces. The division
// depends only on sizes, and so do the bits; and no piece is large, so the sum is nearly pairwise,
// and more exact than one long sum in fp32.
//
// Called by matmul.c. Read gelu.cu for the GELU itself.
#include "kernels/cuda/blas.h"
#include "kernels/cuda/gpu.cuh"

enum { WARPS = 8, ROWS = ROW_SUMS_PIECE, THREADS = WARP * WARPS };
// A thread's loads in flight together. nvcc moves a load to its use, which would leave one at a
// time: so those of rows are used a round later, and no condition precedes those of pieces.
enum { ROWS_AT_ONCE = 4, PIECES_AT_ONCE = 8 };

// ---- sums of rows ----

// Reads the pack at `column` of a row, which has one there.
template <Access ACCESS, class T>
static __device__ inline Pack<T> read_inside(const T *row, size_t column, size_t columns) {
    return ACCESS == WHOLE ? pack_load(row + column) : pack_read<SCALAR>(row, column, columns);
}

template <class T>
static __device__ inline void add_pack(float (&sum)[Pack<T>::N], const Pack<T> &x) {
#pragma unroll
    for (int i = 0; i < Pack<T>::N; i++)
        sum[i] += to_float(x.x[i]);
}

// x: (rows, columns) with stride ld. partial: (pieces, columns).
template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS)
    matmul_column_sums_kernel(const T *x, size_t rows, size_t columns, size_t ld, float *partial) {
    constexpr int N = Pack<T>::N;
    // Lanes write adjacent elements, and read N apart: a gap after each row separates their banks.
    __shared__ float shared[WARPS][N][WARP + WARP / N];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t column = (blockIdx.x * (size_t)WARP + lane) * N;
    for (size_t begin = blockIdx.y * (size_t)ROWS; begin < rows;
         begin += gridDim.y * (size_t)ROWS) {
        size_t row = begin + warp, end = begin + ROWS < rows ? begin + ROWS : rows;
        float sum[N] = {};
        if (column >= columns)
            row = end;
        uint4 v[ROWS_AT_ONCE] = {}, next[ROWS_AT_ONCE]; // those of the last round, and of this one
        for (; row + (ROWS_AT_ONCE - 1) * WARPS < end; row += ROWS_AT_ONCE * WARPS) {
#pragma unroll
            for (int u = 0; u < ROWS_AT_ONCE; u++)
                next[u] =
                    pack_bits(read_inside<ACCESS>(x + (row + u * WARPS) * ld, column, columns));
#pragma unroll
            for (int u = 0; u < ROWS_AT_ONCE; u++) {
                add_pack(sum, pack_of<T>(v[u]));
                v[u] = next[u];
            }
        }
#pragma unroll
        for (int u = 0; u < ROWS_AT_ONCE; u++)
            add_pack(sum, pack_of<T>(v[u]));
        for (; row < end; row += WARPS)
            add_pack(sum, read_inside<ACCESS>(x + row * ld, column, columns));
#pragma unroll
        for (int i = 0; i < N; i++)
            shared[warp][i][lane] = sum[i];
        __syncthreads();
        for (int j = threadIdx.x; j < WARP * N; j += THREADS) {
            size_t to = blockIdx.x * (size_t)WARP * N + j;
            if (to >= columns)
                continue;
            float total = 0;
            for (int w = 0; w < WARPS; w++)
                total += shared[w][j % N][j / N];
            partial[begin / ROWS * columns + to] = total;
        }
        __syncthreads(); // before the next piece's sums are written there
    }
}

// out[column] (+)= the sum of its pieces, one lane per column.
template <class T>
static __global__ void matmul_sum_pieces_kernel(const float *partial, size_t pieces, size_t columns,
                                                bool accumulate, T *out) {
    __shared__ float shared[WARPS][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t column = blockIdx.x * (size_t)WARP + lane;
    float sum = 0;
    size_t piece = column < columns ? warp : pieces;
    for (; piece + (PIECES_AT_ONCE - 1) * WARPS < pieces; piece += PIECES_AT_ONCE * WARPS) {
        float v[PIECES_AT_ONCE];
#pragma unroll
        for (int u = 0; u < PIECES_AT_ONCE; u++)
            v[u] = partial[(piece + u * WARPS) * columns + column];
#pragma unroll
        for (int u = 0; u < PIECES_AT_ONCE; u++)
            sum += v[u];
    }
    for (; piece < pieces; piece += WARPS)
        sum += partial[piece * columns + column];
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || column >= columns)
        return;
    float total = accumulate ? to_float(out[column]) : 0;
    for (int w = 0; w < WARPS; w++)
        total += shared[w][lane];
    out[column] = from_float<T>(total);
}

// out[row] (+)= the sum of row `row` of x, one warp per row: for an A that is not transposed, which
// training never has.
template <class T, class C>
static __global__ void matmul_row_sums_kernel(const T *x, size_t rows, size_t columns, size_t ld,
                                              bool accumulate, C *out) {
    int lane = threadIdx.x % WARP;
    size_t row = blockIdx.x * (size_t)WARPS + threadIdx.x / WARP;
    float sum = 0;
    if (row < rows)
        for (size_t column = lane; column < columns; column += WARP)
            sum += to_float(x[row * ld + column]);
    sum = warp_sum(sum);
    if (lane == 0 && row < rows)
        out[row] = from_float<C>(sum + (accumulate ? to_float(out[row]) : 0));
}

template <class T>
static void launch_column_sums(struct Stream *s, const struct Matmul *a, float *partial) {
    constexpr size_t N = Pack<T>::N;
    const T *x = static_cast<const T *>(a->a.data);
    bool aligned = is_aligned(x, 16) && a->a.ld % N == 0 && a->m % N == 0;
    dim3 grid((unsigned)ceil_div(a->m, WARP * N),
              (unsigned)size_min(ceil_div(a->k, ROWS), PTX_MAX_GRID_Y));
    gpu_launch(s,
               aligned ? matmul_column_sums_kernel<T, WHOLE> : matmul_column_sums_kernel<T, SCALAR>,
               grid, dim3(THREADS), 0, x, a->k, a->m, a->a.ld, partial);
}

void cuda_row_sums(struct Stream *s, const struct Matmul *a, float *partial) {
    with_type(a->a.dtype, [&](auto *in) {
        using T = std::remove_pointer_t<decltype(in)>;
        if (a->a.transposed)
            launch_column_sums<T>(s, a, partial);
        with_type(a->c.dtype, [&](auto *to) {
            using C = std::remove_pointer_t<decltype(to)>;
            C *out = static_cast<C *>(a->dbias);
            if (a->a.transposed)
                gpu_launch(s, matmul_sum_pieces_kernel<C>, dim3((unsigned)ceil_div(a->m, WARP)),
                           dim3(THREADS), 0, partial, ceil_div(a->k, ROWS), a->m, a->accumulate,
                           out);
            else
                gpu_launch(s, matmul_row_sums_kernel<T, C>, dim3((unsigned)ceil_div(a->m, WARPS)),
                           dim3(THREADS), 0, static_cast<const T *>(a->a.data), a->m, a->k, a->a.ld,
                           a->accumulate, out);
        });
    });
}

template <class T>
static __global__ void matmul_add_row_sums_kernel(const T *sums, size_t n, T *out) {
    size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;
    if (i < n)
        out[i] = from_float<T>(to_float(out[i]) + to_float(sums[i]));
}

void cuda_add_row_sums(struct Stream *s, const struct Matmul *a, const void *sums) {
    with_type(a->c.dtype, [&](auto *to) {
        using T = std::remove_pointer_t<decltype(to)>;
        gpu_launch(s, matmul_add_row_sums_kernel<T>, dim3((unsigned)ceil_div(a->m, THREADS)),
                   dim3(THREADS), 0, static_cast<const T *>(sums), a->m,
                   static_cast<T *>(a->dbias));
    });
}

// ---- bias and GELU' ----

// The derivative of x h(x), h = 1 / (1 + e), e = exp(-2 u), u = sqrt(2/pi) (x + 0.044715 x^3), by
// the product rule: h + x * 2 h (1 - h) u', where 1 - h is e h. Beyond 10 it is 0 or 1 to fp32's
// last bit, and e would overflow.
static __device__ inline float gelu_slope(float x) {
    if (fabsf(x) > 10)
        return x > 0 ? 1 : 0;
    const float two_scale = 1.5957691216f, cubic = 0.044715f;
    float e = expf(-two_scale * x * fmaf(cubic, x * x, 1));
    float h = 1 / (1 + e), du = two_scale * fmaf(3 * cubic, x * x, 1);
    return fmaf(x * h, e * h * du, h);
}

template <class T, class B> static __global__ void matmul_finish_kernel(struct Finish f) {
    size_t j = blockIdx.x * (size_t)THREADS + threadIdx.x;
    if (j >= f.n)
        return;
    T *c = static_cast<T *>(f.c);
    float bias = f.bias ? to_float(static_cast<const B *>(f.bias)[j]) : 0;
    for (size_t i = blockIdx.y; i < f.rows; i += gridDim.y) {
        size_t at = i * f.ldc + j;
        float x = f.sum[i * f.ld_sum + j];
        if (f.accumulate)
            x += to_float(c[at]);
        if (f.bias)
            x += bias;
        if (f.dgelu)
            x *= gelu_slope(to_float(static_cast<const T *>(f.dgelu)[at]));
        c[at] = from_float<T>(x);
    }
}

void cuda_finish(struct Stream *s, const struct Finish *f) {
    dim3 grid((unsigned)ceil_div(f->n, THREADS), (unsigned)size_min(f->rows, PTX_MAX_GRID_Y));
    with_type(f->dtype, [&](auto *to) {
        with_type(f->bias_dtype, [&](auto *bias) {
            using T = std::remove_pointer_t<decltype(to)>;
            using B = std::remove_pointer_t<decltype(bias)>;
            gpu_launch(s, matmul_finish_kernel<T, B>, grid, dim3(THREADS), 0, *f);
        });
    });
}
