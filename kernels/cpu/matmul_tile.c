// The inside of the blocked matmul: one tile of C, summed in registers, and the epilogue.
//
// Per step of k the tile needs TILE_VECS loads of B, TILE_ROWS broadcasts of A and TILE_ROWS *
// TILE_VECS fused multiply-adds; with 8 x 3 there are more than two of these per load, so the
// multipliers limit it, not the loads (Goto, van de Geijn, "Anatomy of high-performance matrix
// multiplication", ACM TOMS 2008; Van Zee, van de Geijn, "BLIS", ACM TOMS 2015). The loops over the
// tile have constant bounds and are fully unrolled: only then does the compiler keep the sums in
// registers.
//
// With pairs of bf16 (vec_pair.h) the same tile makes twice as many multiply-adds from items of the
// same 32 bits. A Zen 4 core starts one vdpbf16ps of 512 bits a cycle, 64 operations: 234 GFLOP/s
// at 3.65 GHz. Per tile and 24 cycles 224 bytes come from the second-level cache, so we expect 0.9
// of that, as in fp32. oneDNN 2.6 reaches 0.75 to 0.85 in GPT-2, where GELU, its derivative and the
// bias gradient are then separate passes, the derivative from an fp32 matrix in scratch. So the
// products of a step should take 0.9 of their time, and less where a pass disappears.
//
// Called by matmul_loops.c. The epilogue is also called by matmul_run.c, after a product by oneDNN.
#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/vec_math.h"

// Both panels are read in order, B's from the second-level cache or beyond; prefetching so many
// steps of k ahead hides the latency.
enum { PREFETCH_A = 16, PREFETCH_B = 8, LINE_FLOATS = 16 };

// Adds the product of a panel of A and one of B, `steps` steps, to the sums. `vecs` <= TILE_VECS:
// the used vectors of the tile, a constant. (128 columns are two whole tiles and two thirds of
// one.)
VEC_INLINE void multiply(Vec sum[SUM_ROWS][TILE_VECS], size_t vecs, bool pairs, const float *a,
                         const float *b, size_t steps) {
    for (size_t l = 0; l < steps; l++, a += SUM_ROWS, b += TILE_COLS) {
        UNROLL_WHOLE
        for (int v = 0; v < TILE_COLS; v += LINE_FLOATS)
            __builtin_prefetch(b + PREFETCH_B * TILE_COLS + v);
        __builtin_prefetch(a + PREFETCH_A * SUM_ROWS);
        Vec row[TILE_VECS];
        UNROLL_WHOLE
        for (size_t v = 0; v < vecs; v++)
            row[v] = vec_load_f32(b + v * VEC_LANES);
        UNROLL_WHOLE
        for (size_t r = 0; r < SUM_ROWS; r++) {
            Vec x = vec_set(a[r]);
            UNROLL_WHOLE
            for (size_t v = 0; v < vecs; v++)
                sum[r][v] =
                    pairs ? vec_dot_bf16(x, row[v], sum[r][v]) : vec_fma(x, row[v], sum[r][v]);
        }
    }
}

// Load and store the n <= VEC_LANES elements of array p from element i on.
VEC_INLINE Vec load_first(const void *p, enum Dtype d, size_t i, size_t n) {
    return n == VEC_LANES ? vec_load(p, d, i) : vec_load_part(p, d, i, n);
}
VEC_INLINE void store_first(void *p, enum Dtype d, size_t i, size_t n, Vec x) {
    if (n == VEC_LANES)
        vec_store(p, d, i, x);
    else
        vec_store_part(p, d, i, n, x);
}

// The epilogue for n <= VEC_LANES elements of C at (i, j). GELU reads C back rounded, as a later
// recomputation will.
VEC_INLINE void finish(const struct Matmul *m, Vec x, size_t i, size_t j, size_t n) {
    size_t at = i * m->c.ld + j;
    enum Dtype d = m->c.dtype;
    if (m->bias)
        x += load_first(m->bias, m->b.dtype, j, n);
    if (m->dgelu)
        x *= vec_gelu_derivative(load_first(m->dgelu, d, at, n), d);
    store_first(m->c.data, d, at, n, x);
    if (m->gelu)
        store_first(m->gelu, d, at, n, vec_gelu(load_first(m->c.data, d, at, n), d));
}

// Adds the sums of earlier passes and, at the proper time, the old C; then keeps or finishes.
VEC_INLINE void store_sum(const struct TilePass *p, Vec x, size_t i, size_t j, size_t n) {
    const struct Matmul *m = p->args;
    size_t at = i * m->c.ld + j;
    if (!p->sums) { // C is its own accumulator
        if (!p->first || m->accumulate)
            x = load_first(m->c.data, m->c.dtype, at, n) + x;
        if (p->last)
            finish(m, x, i, j, n);
        else
            store_first(m->c.data, m->c.dtype, at, n, x);
        return;
    }
    float *sums = p->sums + (i - p->sums_row) * p->sums_ld + (j - p->sums_col);
    if (!p->first)
        x = vec_load_f32(sums) + x; // sums are padded: whole vectors always exist
    if (!p->last) {
        vec_store_f32(sums, x);
        return;
    }
    if (m->accumulate)
        x = load_first(m->c.data, m->c.dtype, at, n) + x;
    finish(m, x, i, j, n);
}

// Adds the elements of p from `at` on, in rows `ld` apart (0: one row, for all), to a whole tile's
// sums, which stay in registers.
VEC_INLINE void add_matrix(Vec sum[SUM_ROWS][TILE_VECS], size_t vecs, const void *p, enum Dtype d,
                           size_t at, size_t ld) {
    UNROLL_WHOLE
    for (size_t r = 0; r < SUM_ROWS; r++)
        UNROLL_WHOLE
    for (size_t v = 0; v < vecs; v++)
        sum[r][v] = vec_load(p, d, at + r * ld + v * VEC_LANES) + sum[r][v];
}

VEC_INLINE void store_matrix(Vec sum[SUM_ROWS][TILE_VECS], size_t vecs, void *p, enum Dtype d,
                             size_t at, size_t ld) {
    UNROLL_WHOLE
    for (size_t r = 0; r < SUM_ROWS; r++)
        UNROLL_WHOLE
    for (size_t v = 0; v < vecs; v++)
        vec_store(p, d, at + r * ld + v * VEC_LANES, sum[r][v]);
}

// Rounds to dtype d and back.
VEC_INLINE Vec round_to_dtype(Vec a, enum Dtype d) {
    return d == F32 ? a : vec_widen(vec_narrow(a, d), d);
}

// Applies the GELU epilogues to a whole tile, whose sums are otherwise complete. They go through
// memory, so that the loop over vectors is short: e^x has a latency of a hundred cycles, and
// several overlap only if they fit into the core's window.
VEC_INLINE void finish_gelu(const struct Matmul *m, Vec sum[SUM_ROWS][TILE_VECS], size_t vecs,
                            size_t i, size_t j, enum Dtype d) {
    float tile[SUM_ROWS * TILE_COLS] __attribute__((aligned(64)));
    store_matrix(sum, vecs, tile, F32, 0, TILE_COLS);
    for (size_t r = 0; r < SUM_ROWS; r++)
        for (size_t v = 0; v < vecs; v++) {
            size_t at = (i + r) * m->c.ld + j + v * VEC_LANES;
            Vec x = vec_load_f32(&tile[r * TILE_COLS + v * VEC_LANES]);
            if (m->dgelu)
                x *= vec_gelu_derivative(vec_load(m->dgelu, d, at), d);
            vec_store(m->c.data, d, at, x);
            if (m->gelu)
                vec_store(m->gelu, d, at, vec_gelu(round_to_dtype(x, d), d));
        }
}

// Adds to a whole tile's sums what belongs to them, and keeps them for the next pass or finishes
// them. `d` is C's dtype, a constant; i, j: the tile's indices in C.
VEC_INLINE void store_whole(const struct TilePass *p, Vec sum[SUM_ROWS][TILE_VECS], size_t vecs,
                            size_t i, size_t j, enum Dtype d) {
    const struct Matmul *m = p->args;
    size_t at = i * m->c.ld + j, sums_at = (i - p->sums_row) * p->sums_ld + (j - p->sums_col);
    if (p->sums && !p->first)
        add_matrix(sum, vecs, p->sums, F32, sums_at, p->sums_ld);
    if (p->sums ? p->last && m->accumulate : !p->first || m->accumulate)
        add_matrix(sum, vecs, m->c.data, d, at, m->c.ld);
    if (p->last && m->bias)
        add_matrix(sum, vecs, m->bias, m->b.dtype, j, 0);
    if (p->sums && !p->last)
        store_matrix(sum, vecs, p->sums, F32, sums_at, p->sums_ld);
    else if (p->last && (m->dgelu || m->gelu))
        finish_gelu(m, sum, vecs, i, j, d);
    else
        store_matrix(sum, vecs, m->c.data, d, at, m->c.ld);
}

// Stores any tile, from memory.
VEC_INLINE void store_parts(const struct TilePass *p, const float *tile, size_t vecs, size_t i,
                            size_t j) {
    size_t rows = size_min(TILE_ROWS, p->args->m - i);
    size_t cols = size_min(vecs * VEC_LANES, p->args->n - j);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c += VEC_LANES)
            store_sum(p, vec_load_f32(&tile[r * TILE_COLS + c]), i + r, j + c,
                      size_min(VEC_LANES, cols - c));
}

VEC_INLINE void prefetch_matrix(const void *p, enum Dtype d, size_t at, size_t ld) {
    size_t step = 64 / dtype_size(d);
    for (size_t r = 0; r < TILE_ROWS; r++)
        for (size_t c = 0; c < TILE_COLS; c += step)
            __builtin_prefetch(dtype_at(p, d, at + r * ld + c), 1);
}

// Prefetches, during the product, the memory that the tile will be added to or stored in.
VEC_INLINE void prefetch_target(const struct TilePass *p, size_t i, size_t j) {
    const struct Matmul *m = p->args;
    if (p->sums)
        prefetch_matrix(p->sums, F32, (i - p->sums_row) * p->sums_ld + (j - p->sums_col),
                        p->sums_ld);
    if (!p->sums || p->last)
        prefetch_matrix(m->c.data, m->c.dtype, i * m->c.ld + j, m->c.ld);
    if (p->last && m->dgelu)
        prefetch_matrix(m->dgelu, m->c.dtype, i * m->c.ld + j, m->c.ld);
    if (p->last && m->gelu)
        prefetch_matrix(m->gelu, m->c.dtype, i * m->c.ld + j, m->c.ld);
}

// True if part of a tile is past the end of C.
VEC_INLINE bool is_edge(const struct Matmul *m, size_t vecs, size_t i, size_t j) {
    return i + TILE_ROWS > m->m || j + vecs * VEC_LANES > m->n;
}

VEC_INLINE void compute_tile_by_vectors(const struct TilePass *pass, size_t vecs, bool pairs,
                                        const float *a, const float *b, size_t steps, size_t i,
                                        size_t j) {
    const struct Matmul *m = pass->args;
    Vec sum[SUM_ROWS][TILE_VECS];
    UNROLL_WHOLE
    for (size_t r = 0; r < SUM_ROWS; r++)
        UNROLL_WHOLE
    for (size_t v = 0; v < vecs; v++)
        sum[r][v] = vec_set(0.0f);
    prefetch_target(pass, i, j);
    multiply(sum, vecs, pairs, a, b, steps);
    if (is_edge(m, vecs, i, j)) {
        float parts[SUM_ROWS * TILE_COLS];
        store_matrix(sum, vecs, parts, F32, 0, TILE_COLS);
        store_parts(pass, parts, vecs, i, j);
    } else {
        WITH_DTYPE(m->c.dtype, store_whole(pass, sum, vecs, i, j, D));
    }
}

// Returns what to prefetch: `later`; except at edges, lines that the last pass reads and writes.
VEC_INLINE struct TilesNext lines_to_prefetch(const struct TilePass *p, size_t i, size_t j) {
    const struct Matmul *m = p->args;
    size_t size = dtype_size(m->c.dtype), at = (i * m->c.ld + j) * size;
    struct TilesNext next = {
        .ld = m->c.ld * size, .later = p->later, .later_lines = p->later_lines};
    const void *const targets[] = {m->c.data, m->dgelu, m->gelu};
    int n = 0;
    for (int k = 0; k < 3 && p->last && !is_edge(m, TILE_VECS, i, j); k++)
        if (targets[k])
            next.mem[n++] = (const char *)targets[k] + at;
    next.lines = (size_t)n * TILE_ROWS;
    return next;
}

// Computes C's tile at (i, j) with AMX. The sums start from those of earlier passes, and all passes
// but the last leave them there; only the last moves them through the first-level cache.
VEC_INLINE void compute_tile_by_amx(const struct TilePass *pass, const float *a, const float *b,
                                    size_t steps, size_t i, size_t j) {
    const struct Matmul *m = pass->args;
    float parts[TILE_ROWS * TILE_COLS] __attribute__((aligned(64)));
    struct TilesNext next = lines_to_prefetch(pass, i, j);
    struct TilesSums none = {0}, apart = {parts, TILE_COLS}, kept = none;
    struct TilePass rest = *pass;
    if (pass->sums) {
        size_t at = (i - pass->sums_row) * pass->sums_ld + (j - pass->sums_col);
        kept = (struct TilesSums){pass->sums + at, pass->sums_ld};
        rest.sums = NULL, rest.first = true;
    }
    bool keeps = pass->sums && !pass->last;
    struct TilesRows rows = {a, TILES_SIDE, TILES_SIDE * TILES_SIDE, TILE_ROWS * TILES_SIDE};
    if (pass->a_ld)
        rows = (struct TilesRows){a, pass->a_ld, TILES_SIDE * pass->a_ld, TILES_SIDE};
    tiles_multiply(pass->first ? none : kept, keeps ? kept : apart, rows, b, steps, &next);
    if (keeps)
        return;
    if (is_edge(m, TILE_VECS, i, j)) {
        store_parts(&rest, parts, TILE_VECS, i, j);
        return;
    }
    for (size_t row = 0; row < TILE_ROWS; row += SUM_ROWS) {
        Vec sum[SUM_ROWS][TILE_VECS];
        UNROLL_WHOLE
        for (size_t r = 0; r < SUM_ROWS; r++)
            UNROLL_WHOLE
        for (size_t v = 0; v < TILE_VECS; v++)
            sum[r][v] = vec_load_f32(&parts[(row + r) * TILE_COLS + v * VEC_LANES]);
        WITH_DTYPE(m->c.dtype, store_whole(&rest, sum, TILE_VECS, i + row, j, D));
    }
}

VEC_INLINE void compute_tile(const struct TilePass *pass, bool pairs, const float *a,
                             const float *b, size_t steps, size_t i, size_t j) {
    size_t cols = pass->args->n - j;
    if (VEC_TILES)
        compute_tile_by_amx(pass, a, b, steps, i, j);
    else if (cols > 2 * VEC_LANES)
        compute_tile_by_vectors(pass, TILE_VECS, pairs, a, b, steps, i, j);
    else if (cols > VEC_LANES)
        compute_tile_by_vectors(pass, 2, pairs, a, b, steps, i, j);
    else
        compute_tile_by_vectors(pass, 1, pairs, a, b, steps, i, j);
}

void CPU_NAME(matmul_tile)(const struct TilePass *pass, const float *a, const float *b,
                           size_t steps, size_t i, size_t j) {
    if (item_elements(pass->args->a.dtype) == 2)
        compute_tile(pass, true, a, b, steps, i, j);
    else
        compute_tile(pass, false, a, b, steps, i, j);
}

void CPU_NAME(matmul_finish_row)(const struct Matmul *args, const float *product, size_t i,
                                 size_t j, size_t n) {
    for (size_t c = 0; c < n; c += VEC_LANES) {
        size_t some = size_min(VEC_LANES, n - c);
        Vec x = load_first(product, F32, c, some);
        if (args->accumulate)
            x = load_first(args->c.data, args->c.dtype, i * args->c.ld + j + c, some) + x;
        finish(args, x, i, j + c, some);
    }
}
