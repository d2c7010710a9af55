// Products with few rows, as generation makes them: C (m, n) = A (m, k) W (n, k)', m at most
// MATMUL_FEW_ROWS.
//
// Each weight is used m times only, so what counts is that the weights are read from memory once,
// as fast as it can be read, and never copied (matmul_loops.c packs them, for hundreds of rows).
// Each thread has a contiguous range of W's rows, and takes W_ROWS of them at a time: vectors run
// along k, and each element of C has one vector of sums, whose lanes are added at the end.
//
//   for each W_ROWS rows of W                       from memory, the next ones prefetched
//     for each A_ROWS rows of A, and then each row that is left     W: from the first-level cache
//       for each vector along k: W_ROWS * A_ROWS multiply-adds of W_ROWS + A_ROWS loads
//
// A second pair of operands (k2) is multiplied likewise, and added for each element.
//
// So an element's sum has one order, whatever m, the other rows and the number of threads are: what
// a sequence's tokens are does not depend on those that are generated beside it.
//
// docs/cpu.md compares it with a loop that only reads, and says what prefetching is for.
//
// Called by matmul_run.c; matmul_tile.c has the epilogue.
#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/vec_array.h"
#include "kernels/cpu/vec_tiles.h"

#include <omp.h>

enum {
    W_ROWS = 4,
    A_ROWS = VEC_LANES == 16 ? 4 : 2, // 16 sums of 32 registers, or 8 of 16
    COLS = 8 * W_ROWS,                // of C that are finished together
    SOLO_WORK = 1 << 16,              // multiply-adds: below, waking the other threads takes longer
};

// Returns VEC_LANES items (vec_pair.h) of a row from element i on: elements or pairs. The first n
// elements exist, the others are 0.
VEC_INLINE Vec load_items(const char *row, enum Dtype d, size_t i, size_t n) {
    const uint16_t *pairs = (const uint16_t *)row + i;
    if (item_elements(d) == 1)
        return n == VEC_LANES ? vec_load(row, d, i) : vec_load_part(row, d, i, n);
    return n == 2 * VEC_LANES ? vec_load_f32((const float *)pairs) : vec_load_pairs(pairs, n);
}

// Rows of W and of A that are multiplied with each other; of A one or A_ROWS.
struct FewRows {
    const char *w[W_ROWS], *a[A_ROWS];
};

// Adds the products of n elements from i on to the sums. `rows` of A is a constant.
VEC_INLINE void add_products(Vec sum[W_ROWS][A_ROWS], size_t rows, const struct FewRows *p,
                             enum Dtype d, size_t i, size_t n) {
    Vec x[A_ROWS];
    UNROLL_WHOLE
    for (size_t r = 0; r < rows; r++)
        x[r] = load_items(p->a[r], d, i, n);
    UNROLL_WHOLE
    for (size_t q = 0; q < W_ROWS; q++) {
        Vec y = load_items(p->w[q], d, i, n);
        UNROLL_WHOLE
        for (size_t r = 0; r < rows; r++)
            sum[q][r] = item_elements(d) == 2 ? vec_dot_bf16(x[r], y, sum[q][r])
                                              : vec_fma(x[r], y, sum[q][r]);
    }
}

// Sets out[r][q] to the product of row r of A and row q of W. Prefetches what lies `ahead` bytes
// behind; 0: nothing.
VEC_INLINE void sum_products(float (*out)[COLS], size_t rows, const struct FewRows *p, size_t k,
                             size_t ahead, enum Dtype d) {
    Vec sum[W_ROWS][A_ROWS];
    UNROLL_WHOLE
    for (size_t q = 0; q < W_ROWS; q++)
        UNROLL_WHOLE
    for (size_t r = 0; r < rows; r++)
        sum[q][r] = vec_set(0.0f);
    size_t step = VEC_LANES * item_elements(d), i = 0;
    for (; i + step <= k; i += step) {
        UNROLL_WHOLE
        for (size_t q = 0; q < W_ROWS && ahead; q++)
            __builtin_prefetch(p->w[q] + ahead + i * dtype_size(d));
        add_products(sum, rows, p, d, i, step);
    }
    if (i < k)
        add_products(sum, rows, p, d, i, k - i);
    UNROLL_WHOLE
    for (size_t r = 0; r < rows; r++)
        UNROLL_WHOLE
    for (size_t q = 0; q < W_ROWS; q++)
        out[r][q] = vec_sum(sum[q][r]);
}

// Makes W_ROWS columns of the product from `col` on; of those behind `last`, the last one again.
VEC_INLINE void multiply(float (*out)[COLS], const struct Matmul *m, size_t col, size_t last,
                         enum Dtype d) {
    size_t ahead = W_ROWS * m->b.ld * dtype_size(d);
    struct FewRows p;
    for (size_t q = 0; q < W_ROWS; q++)
        p.w[q] = dtype_at(m->b.data, d, size_min(col + q, last) * m->b.ld);
    for (size_t row = 0, rows; row < m->m; row += rows, ahead = 0) {
        rows = m->m - row < A_ROWS ? 1 : A_ROWS;
        for (size_t r = 0; r < rows; r++)
            p.a[r] = dtype_at(m->a.data, d, (row + r) * m->a.ld);
        if (rows == A_ROWS)
            sum_products(out + row, A_ROWS, &p, m->k, ahead, d);
        else
            sum_products(out + row, 1, &p, m->k, ahead, d);
    }
}

// Adds the second pair's product to n columns from `col` on.
VEC_INLINE void add_second(float (*product)[COLS], const struct Matmul *m, size_t col, size_t n,
                           enum Dtype d) {
    const struct Matmul second = {.m = m->m, .n = m->n, .k = m->k2, .a = m->a2, .b = m->b2};
    float sum[MATMUL_FEW_ROWS][COLS];
    for (size_t c = 0; c < n; c += W_ROWS)
        multiply((float(*)[COLS])(sum[0] + c), &second, col + c, col + n - 1, d);
    for (size_t i = 0; i < m->m; i++)
        for (size_t j = 0; j < n; j++)
            product[i][j] += sum[i][j];
}

// Makes columns first .. end - 1 of C, COLS at a time.
VEC_INLINE void make_columns(const struct Matmul *m, size_t first, size_t end, enum Dtype d) {
    float product[MATMUL_FEW_ROWS][COLS];
    for (size_t col = first; col < end; col += COLS) {
        size_t n = size_min(COLS, end - col);
        for (size_t c = 0; c < n; c += W_ROWS)
            multiply((float(*)[COLS])(product[0] + c), m, col + c, end - 1, d);
        if (m->k2)
            add_second(product, m, col, n, d);
        for (size_t i = 0; i < m->m; i++)
            CPU_NAME(matmul_finish_row)(m, product[i], i, col, n);
    }
}

// ---- AMX ----

// AMX multiplies 16 rows with 16 in the time of one: so all rows of A cost what one does. W's rows
// are its left operand, as they lie in memory; A is packed as the right one, once for all threads.
enum { TILES_K = 2 * TILES_SIDE, TILES_X = TILES_SIDE * TILES_SIDE };

static bool takes_tiles(const struct Matmul *m) {
    return VEC_TILES && m->a.dtype == BF16 && m->k % TILES_K == 0 && m->n >= COLS;
}

size_t CPU_NAME(matmul_few_work)(const struct Matmul *m) {
    return takes_tiles(m) ? m->k / TILES_K * TILES_X * sizeof(float) : 0;
}

// Packs the pairs of block `block` of k: (pair, row of A), with zeros for rows that there are not.
static void pack_pairs(const struct Matmul *m, size_t block) {
    float *x = (float *)m->work.mem + block * TILES_X;
    memset(x, 0, TILES_X * sizeof *x);
    for (size_t row = 0; row < m->m; row++) {
        const char *from = dtype_at(m->a.data, BF16, row * m->a.ld + block * TILES_K);
        for (size_t pair = 0; pair < TILES_SIDE; pair++)
            memcpy(x + pair * TILES_SIDE + row, from + pair * sizeof *x, sizeof *x);
    }
}

// Makes columns first .. end - 1 of C by AMX, COLS at a time, from W's rows as they lie. If fewer
// are left, it reads the last COLS rows of W, never past them, and skips columns that were made.
static void make_columns_by_amx(const struct Matmul *m, size_t first, size_t end) {
    float sums[COLS * TILES_SIDE] __attribute__((aligned(64))), product[MATMUL_FEW_ROWS][COLS];
    size_t ld = m->b.ld * dtype_size(BF16), k_blocks = m->k / TILES_K;
    tiles_open(false);
    for (size_t col = first; col < end; col += COLS) {
        size_t n = size_min(COLS, end - col), tile_col = size_min(col, m->n - COLS);
        tiles_stream(sums, dtype_at(m->b.data, BF16, tile_col * m->b.ld), ld, m->work.mem, k_blocks,
                     tile_col + 2 * COLS <= m->n);
        for (size_t i = 0; i < m->m; i++)
            for (size_t j = 0; j < n; j++)
                product[i][j] = sums[(col - tile_col + j) * TILES_SIDE + i];
        if (m->k2)
            add_second(product, m, col, n, BF16);
        for (size_t i = 0; i < m->m; i++)
            CPU_NAME(matmul_finish_row)(m, product[i], i, col, n);
    }
    tiles_close();
}

void CPU_NAME(matmul_few)(const struct Matmul *m, int threads) {
    bool solo = m->m * m->n * m->k < SOLO_WORK, tiles = takes_tiles(m);
#pragma omp parallel num_threads(solo ? 1 : threads)
    {
        size_t t = (size_t)omp_get_thread_num(), all = (size_t)omp_get_num_threads();
        size_t unit = tiles ? COLS : W_ROWS, groups = ceil_div(m->n, unit);
        size_t first = groups * t / all * unit, end = size_min(groups * (t + 1) / all * unit, m->n);
        if (tiles) {
#pragma omp for schedule(static)
            for (size_t block = 0; block < m->k / TILES_K; block++)
                pack_pairs(m, block);
            make_columns_by_amx(m, first, end);
        } else {
            WITH_DTYPE(m->a.dtype, make_columns(m, first, end, D));
        }
    }
}
