// Copies a block of a matrix into the order in which the tile reads it.
//
// A tile walks k and needs TILE_ROWS elements of A, and TILE_COLS of B, adjacent for each k.
// Packing provides that, for matrices in either order and any dtype; it widens bf16 and fp16 to
// fp32 on the way, which is why their products cost no more than an fp32 one. If the tile
// multiplies pairs of bf16, it joins two neighbours along k instead. Each element is packed about
// once and then used hundreds of times, yet at 256 rows it is the largest cost beside the product,
// so it is vectorised in all four cases.
//
// The shuffles hide behind memory: 2 bytes an element are read, at 25 GB/s in 0.08 ns. To come near
// that, the next reads and the next strip's destination are prefetched. A training step of GPT-2
// 124M in bf16 (B = 4, T = 512, one Zen 4 core) packs 1.3e9 elements; at 0.15 to 0.43 ns each that
// took 0.39 s of 8.6 s, and half should be saved. Measured in a cold cache, ns per element before
// and after: rows along k 0.23 and 0.13, a whole resident operand of them 0.40 and 0.19, rows along
// memory 0.33 and 0.16.
//
// Called by matmul_loops.c; the shuffles are in vec_transpose.h.
#include "kernels/cpu/matmul_loops.h"
#include "kernels/cpu/vec_array.h"
#include "kernels/cpu/vec_transpose.h"

// Distances of prefetches to the second-level cache: rows, if k runs along memory, else steps of k,
// each of which is a new line.
enum { ROWS_AHEAD = 2 * VEC_LANES, BLOCK_K = 16 };

// A strip to write: `width` is the panels', `panel` the items of each of their rows; `pairs`: items
// are pairs. width and pairs are constants.
struct Strip {
    float *dst;
    size_t width, panel;
    bool pairs;
};

// Stores step `l` of VEC_LANES rows of a strip from `row` on: part of a panel, or two whole ones.
// Prefetches the next strip's destination: the core does not predict writes either.
VEC_INLINE void strip_store(const struct Strip *s, size_t row, size_t l, Vec x) {
    float *panel = s->dst + row / s->width * s->width * s->panel + l * s->width;
    if (s->width >= VEC_LANES) {
        __builtin_prefetch(panel + row % s->width + s->width * s->panel, 1, 2);
        vec_store_f32(panel + row % s->width, x);
    } else {
        vec_store_split(panel, panel + s->width * s->panel, x);
    }
}

// Returns bf16 element i and, if `second`, the next one, as an item.
VEC_INLINE float pair_of(const uint16_t *p, size_t i, bool second) {
    return f32_from_bits(p[i] | (second ? (uint32_t)p[i + 1] << 16 : 0));
}

// Packs `rows` <= VEC_LANES rows from step `first` to the last, element by element; missing rows
// become zeros.
VEC_INLINE void pack_slowly(const struct Strip *s, const struct PackSource *p, size_t row,
                            size_t rows, size_t first) {
    size_t ld = p->mat->ld, from = p->row + row;
    for (size_t l = first; l < p->steps; l++) {
        float lanes[VEC_LANES] = {0};
        for (size_t r = 0; r < rows; r++) {
            size_t at = (from + r) * ld + p->k;
            if (!s->pairs)
                lanes[r] = dtype_load(p->mat->data, p->mat->dtype, at + l);
            else if (2 * l < p->depth)
                lanes[r] = pair_of(p->mat->data, at + 2 * l, p->depth - 2 * l > 1);
        }
        strip_store(s, row, l, vec_load_f32(lanes));
    }
}

VEC_INLINE void prefetch_next(const void *p) {
    __builtin_prefetch(p, 0, 2);
}

// Packs VEC_LANES rows whose k runs along memory: transposes.
VEC_INLINE void pack_along_k(const struct Strip *s, const struct PackSource *p, size_t row,
                             enum Dtype d) {
    size_t ld = p->mat->ld, l = 0;
    const char *from = dtype_at(p->mat->data, d, (p->row + row) * ld + p->k);
    size_t step = d == F32 || s->pairs ? 4 : 8, item_bytes = 16 / step;
    for (; l + step <= p->depth / (s->pairs ? 2 : 1); l += step) {
        if (l * item_bytes % 64 == 0)
            for (size_t r = ROWS_AHEAD; r < ROWS_AHEAD + VEC_LANES; r++)
                prefetch_next(from + l * item_bytes + r * ld * dtype_size(d));
        Vec item[4];
        vec_transpose(item, from + l * item_bytes, ld * dtype_size(d));
        UNROLL_WHOLE
        for (size_t c = 0; c < 4; c++) {
            if (d == F32 || s->pairs) {
                strip_store(s, row, l + c, item[c]);
            } else {
                strip_store(s, row, l + 2 * c, vec_pair_first(item[c], d));
                strip_store(s, row, l + 2 * c + 1, vec_pair_second(item[c], d));
            }
        }
    }
    pack_slowly(s, p, row, VEC_LANES, l);
}

// Returns the items of n <= VEC_LANES rows that are adjacent from element `at` on.
VEC_INLINE Vec items_along_rows(const struct PackSource *p, size_t at, size_t n, enum Dtype d) {
    return n == VEC_LANES ? vec_load(p->mat->data, d, at) : vec_load_part(p->mat->data, d, at, n);
}

// The same for pairs; `second`: each has a second element, else 0.
VEC_INLINE Vec pairs_along_rows(const struct PackSource *p, size_t at, size_t n, bool second) {
    const uint16_t *from = p->mat->data;
    if (n == VEC_LANES && second)
        return vec_pair_bf16(vec_load_half(from + at), vec_load_half(from + at + p->mat->ld));
    VecHalf other = vec_load_half_part(from + at + p->mat->ld, second ? n : 0);
    return vec_pair_bf16(vec_load_half_part(from + at, n), other);
}

// Packs steps l .. end - 1 of a strip, or of `rows` of it, whose rows run along memory: copies.
// strip: rows of a whole strip; those past `rows` become zeros.
VEC_INLINE void pack_along_rows(const struct Strip *s, const struct PackSource *p, size_t row,
                                size_t rows, size_t strip, enum Dtype d, size_t l, size_t end) {
    size_t ld = p->mat->ld, per = s->pairs ? 2 : 1;
    for (; l < end; l++) {
        size_t at = (p->k + l * per) * ld + p->row + row;
        for (size_t i = BLOCK_K * per; i < (BLOCK_K + 1) * per; i++)
            for (size_t r = 0; r < strip; r += 64 / dtype_size(d))
                prefetch_next(dtype_at(p->mat->data, d, at + i * ld + r));
        for (size_t r = 0; r < strip; r += VEC_LANES) {
            Vec x = vec_set(0.0f);
            size_t n = r < rows && l * per < p->depth ? size_min(VEC_LANES, rows - r) : 0;
            if (n && s->pairs)
                x = pairs_along_rows(p, at + r, n, p->depth - l * per > 1);
            else if (n)
                x = items_along_rows(p, at + r, n, d);
            strip_store(s, r, l, x);
        }
    }
}

VEC_INLINE struct Strip strip_at(float *dst, const struct PackSource *p, size_t row, size_t width,
                                 enum Dtype d) {
    return (struct Strip){dst + row * p->panel, width, p->panel, item_elements(d) == 2};
}

// Packs strips first .. end - 1 of a source whose rows run along memory. Strips that are adjacent
// in memory alternate, BLOCK_K steps each: so memory is read along its rows, and a line that two
// strips share is read once.
VEC_INLINE void pack_rows(float *dst, const struct PackSource *p, size_t first, size_t end,
                          size_t strip, size_t width, enum Dtype d) {
    for (size_t l = 0; l < p->steps; l += BLOCK_K)
        for (size_t i = first; i < end; i++) {
            size_t row = i * strip, rows = size_min(strip, p->rows - row);
            size_t l_end = size_min(l + BLOCK_K, p->steps);
            struct Strip s = strip_at(dst, p, row, width, d);
            if (rows == strip)
                pack_along_rows(&s, p, row, strip, strip, d, l, l_end);
            else
                pack_along_rows(&s, p, row, rows, strip, d, l, l_end);
        }
}

VEC_INLINE void pack(float *dst, const struct PackSource *p, size_t first, size_t end, size_t strip,
                     size_t width, enum Dtype d) {
    if (!p->along_k) {
        pack_rows(dst, p, first, end, strip, width, d);
        return;
    }
    for (size_t i = first; i < end; i++) {
        size_t row = i * strip, rows = size_min(strip, p->rows - row);
        struct Strip s = strip_at(dst, p, row, width, d);
        struct PackSource here = *p;
        here.row += row;
        for (size_t r = 0; r < strip; r += VEC_LANES) {
            if (r + VEC_LANES <= rows)
                pack_along_k(&s, &here, r, d);
            else
                pack_slowly(&s, &here, r, rows > r ? rows - r : 0, 0);
        }
    }
}

// ---- AMX's panels of A ----

// Returns the items of a row from step l on, TILES_SIDE of them; zeros past the end.
VEC_INLINE Vec items_of_row(const struct PackSource *p, size_t row, size_t l) {
    const uint16_t *from = (const uint16_t *)p->mat->data + (p->row + row) * p->mat->ld + p->k;
    float items[TILES_SIDE] = {0};
    if (2 * (l + TILES_SIDE) <= p->depth)
        return vec_load_f32((const float *)(from + 2 * l));
    memcpy(items, from + 2 * l, (p->depth - 2 * l) * sizeof *from);
    return vec_load_f32(items);
}

// Packs TILES_SIDE rows of a tile whose k runs along memory, n of which exist: copies.
VEC_INLINE void tile_along_k(float *dst, const struct PackSource *p, size_t row, size_t n,
                             size_t l) {
    for (size_t r = 0; r < TILES_SIDE; r++)
        vec_store_f32(dst + r * TILES_SIDE, r < n ? items_of_row(p, row + r, l) : vec_set(0.0f));
}

// The same for rows that run along memory: transposes.
VEC_INLINE void tile_along_rows(float *dst, const struct PackSource *p, size_t row, size_t n,
                                size_t l) {
    float items[TILES_SIDE * TILES_SIDE];
    for (size_t s = 0; s < TILES_SIDE; s++) {
        size_t k = 2 * (l + s), at = (p->k + k) * p->mat->ld + p->row + row;
        Vec x = vec_set(0.0f);
        if (n && k < p->depth)
            x = pairs_along_rows(p, at, n, p->depth - k > 1);
        vec_store_f32(items + s * TILES_SIDE, x);
    }
    for (size_t r = 0; r < TILES_SIDE; r += 4) {
        Vec item[4];
        vec_transpose(item, (const char *)(items + r), TILES_SIDE * sizeof *items);
        UNROLL_WHOLE
        for (size_t i = 0; i < 4; i++)
            vec_store_f32(dst + (r + i) * TILES_SIDE, item[i]);
    }
}

// Packs the tile of rows from `row` and steps from l on.
VEC_INLINE void pack_tile(float *dst, const struct PackSource *p, size_t row, size_t l) {
    size_t in = row % TILE_ROWS, n = row < p->rows ? size_min(TILES_SIDE, p->rows - row) : 0;
    float *tile = dst + (row - in) * p->panel + l * TILE_ROWS + in * TILES_SIDE;
    if (p->along_k)
        tile_along_k(tile, p, row, n, l);
    else
        tile_along_rows(tile, p, row, n, l);
}

// Memory is read along its rows: the core then foresees what comes next.
VEC_INLINE void pack_tiles(float *dst, const struct PackSource *p, size_t first, size_t end) {
    size_t from = first * STRIP_ROWS, to = end * STRIP_ROWS;
    if (p->along_k) {
        for (size_t row = from; row < to; row += TILES_SIDE)
            for (size_t l = 0; l < p->steps; l += TILES_SIDE)
                pack_tile(dst, p, row, l);
        return;
    }
    for (size_t l = 0; l < p->steps; l += TILES_SIDE)
        for (size_t row = from; row < to; row += TILES_SIDE)
            pack_tile(dst, p, row, l);
}

void CPU_NAME(matmul_pack_a)(float *dst, const struct PackSource *s, size_t first, size_t end) {
    if (VEC_TILES)
        pack_tiles(dst, s, first, end);
    else
        WITH_DTYPE(s->mat->dtype, pack(dst, s, first, end, STRIP_ROWS, TILE_ROWS, D));
}

void CPU_NAME(matmul_pack_b)(float *dst, const struct PackSource *s, size_t first, size_t end) {
    WITH_DTYPE(s->mat->dtype, pack(dst, s, first, end, STRIP_COLS, TILE_COLS, D));
}
