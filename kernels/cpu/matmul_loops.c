// The blocked matmul: C in blocks, k in passes, operands packed, the work shared among threads.
//
//   for each block of C (block.rows x block.cols)
//     for each pass (block.depth steps of k)
//       all threads pack the pass's part of A and of B;  barrier
//       all threads compute tiles of the block, from L2;  barrier
//
// A pass's packed B is read panel by panel: one panel (depth x TILE_COLS) stays in the second-level cache
// while the tiles of a chunk of A's rows, which is sized to lie there too, go over it. Who computes
// which tile is a fixed division, and a tile's sum runs over k in one order, so the bits do not even depend
// on the number of threads. With more than one pass the sums between them lie in C itself if that is fp32,
// else in scratch, so that a bf16 C is rounded once.
//
// Read next: matmul_tile.c (the arithmetic), matmul_pack.c (the copies).
#include "kernels/cpu/matmul_loops.h"

#include <omp.h>

enum {
    // An A panel of this depth (24 KiB with AVX-512, 6 otherwise) stays in the first-level cache.
    DEPTH_MOST = VEC_LANES == 16 ? 768 : 384,
    ROWS_MOST = 2048, // of a block: what is packed at once, 6 MiB
    COLS_MOST = 1536,
    CHUNK_FLOATS = VEC_LANES == 16 ? 128 << 10 : 24 << 10, // of packed A: half of L2
};

struct Blocks {
    size_t rows, cols, depth; // of a block of C, and of a pass
    size_t a, b, sums;        // floats of scratch for packed A, packed B, and sums between passes
};

// Divides `size` into as few equal parts of at most `most` as can be; a part is a multiple of `unit`.
static size_t part_size(size_t size, size_t most, size_t unit) {
    return round_up(ceil_div(size, ceil_div(size, most)), unit);
}

static struct Blocks choose_blocks(const struct Matmul *m) {
    struct Blocks b;
    b.rows = part_size(m->m, ROWS_MOST, STRIP_ROWS);
    b.cols = part_size(m->n, COLS_MOST, STRIP_COLS);
    b.depth = m->k <= DEPTH_MOST ? m->k : part_size(m->k, DEPTH_MOST, 8);
    b.a = round_up(b.rows * b.depth, 16);
    b.b = round_up(b.cols * b.depth, 16);
    b.sums = m->c.dtype == F32 || b.depth == m->k ? 0 : b.rows * b.cols;
    return b;
}

// Everything that the threads of one call share.
struct Loops {
    const struct Matmul *args;
    struct Blocks blocks;
    float *a, *b, *sums, *row_sums;
    int threads;
};

// What one thread gets of `count` things: a contiguous range, the same on every run.
struct Range {
    size_t first, last;
};
static struct Range my_range(size_t count, int thread, int threads) {
    size_t t = (size_t)thread, n = (size_t)threads;
    return (struct Range){count * t / n, count * (t + 1) / n};
}

// dbias: adds packed A's rows over this pass, and stores them after the last one. The rows of a strip are
// always the same thread's. Four partial sums per row hide the latency of the additions.
static void sum_rows(const struct Loops *o, const struct PackSource *s, struct Range strips,
                     bool last) {
    const struct Matmul *m = o->args;
    size_t end = size_min(strips.last * STRIP_ROWS, s->rows);
    for (size_t row = strips.first * STRIP_ROWS; row < end; row += TILE_ROWS) {
        const float *panel = o->a + row * s->depth;
        float part[4][TILE_ROWS] = {{0}};
        for (size_t l = 0; l < s->depth; l++)
            for (size_t r = 0; r < TILE_ROWS; r++)
                part[l % 4][r] += panel[l * TILE_ROWS + r];
        for (size_t r = 0; r < TILE_ROWS; r++) {
            float *sum = &o->row_sums[row + r];
            float old = s->k ? *sum : 0.0f;
            *sum = old + ((part[0][r] + part[1][r]) + (part[2][r] + part[3][r]));
        }
    }
    for (size_t row = strips.first * STRIP_ROWS; last && row < end; row++) {
        float x = o->row_sums[row];
        if (m->accumulate)
            x += dtype_load(m->dbias, m->c.dtype, s->row + row);
        dtype_store(m->dbias, m->c.dtype, s->row + row, x);
    }
}

// This thread's share of packing. The bias gradient is made along the way, for the first block of columns.
static void pack_pass(const struct Loops *o, const struct PackSource *a, const struct PackSource *b,
                      int thread) {
    struct Range mine = my_range(ceil_div(a->rows, STRIP_ROWS), thread, o->threads);
    CPU_NAME(matmul_pack_a)(o->a, a, mine.first, mine.last);
    if (o->args->dbias && b->row == 0)
        sum_rows(o, a, mine, a->k + a->depth == o->args->k);
    mine = my_range(ceil_div(b->rows, STRIP_COLS), thread, o->threads);
    CPU_NAME(matmul_pack_b)(o->b, b, mine.first, mine.last);
}

// This thread's share of the tiles: a range of (chunk of A's rows, panel of B), chunk by chunk.
static void compute_pass(const struct Loops *o, const struct TilePass *pass,
                         const struct PackSource *a, const struct PackSource *b, int thread) {
    size_t most = size_max(CHUNK_FLOATS / a->depth, TILE_ROWS);
    size_t chunk = part_size(a->rows, most, TILE_ROWS), panels = ceil_div(b->rows, TILE_COLS);
    struct Range mine = my_range(ceil_div(a->rows, chunk) * panels, thread, o->threads);
    for (size_t t = mine.first; t < mine.last; t++) {
        size_t col = t % panels * TILE_COLS, row = t / panels * chunk;
        size_t end = size_min(row + chunk, a->rows);
        for (; row < end; row += TILE_ROWS)
            CPU_NAME(matmul_tile)
            (pass, o->a + row * a->depth, o->b + col * b->depth, a->depth, a->row + row,
             b->row + col);
    }
}

// One block of C.
static void run_block(const struct Loops *o, size_t row, size_t col, int thread) {
    const struct Matmul *m = o->args;
    const struct Blocks *size = &o->blocks;
    struct PackSource a = {.mat = &m->a, .along_k = !m->a.transposed, .row = row};
    struct PackSource b = {.mat = &m->b, .along_k = m->b.transposed, .row = col};
    a.rows = size_min(size->rows, m->m - row);
    b.rows = size_min(size->cols, m->n - col);
    for (size_t k = 0; k < m->k; k += size->depth) {
        a.k = b.k = k;
        a.depth = b.depth = size_min(size->depth, m->k - k);
        struct TilePass pass = {m, o->sums, size->cols, row, col, k == 0, k + a.depth == m->k};
        pack_pass(o, &a, &b, thread);
#pragma omp barrier
        compute_pass(o, &pass, &a, &b, thread);
#pragma omp barrier
    }
}

void CPU_NAME(matmul_loops)(const struct Matmul *args, int threads) {
    struct Loops o = {.args = args, .blocks = choose_blocks(args)};
    o.a = args->work.mem;
    o.b = o.a + o.blocks.a;
    o.row_sums = o.b + o.blocks.b;
    o.sums = o.blocks.sums ? o.row_sums + o.blocks.rows : NULL;
#pragma omp parallel num_threads(threads)
    {
        struct Loops mine = o;
        mine.threads = omp_get_num_threads();
        for (size_t col = 0; col < args->n; col += o.blocks.cols)
            for (size_t row = 0; row < args->m; row += o.blocks.rows)
                run_block(&mine, row, col, omp_get_thread_num());
    }
}

size_t CPU_NAME(matmul_loops_work)(const struct Matmul *args) {
    struct Blocks b = choose_blocks(args);
    return (b.a + b.b + b.rows + b.sums) * sizeof(float);
}
