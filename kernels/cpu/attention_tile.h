// Tiles of fp32 in cache, with which attention's forward and backward passes compute.
//
// A tile is TILE rows (queries or keys) of one head. Operands are copied out of the big tensors,
// where the rows of a head are 3C elements apart and may be bf16, into dense fp32 tiles, which are
// then multiplied. A copy costs 1 / TILE of a product, with three gains: no conversions in the
// inner loop, no rows that fall into the same cache sets, and zeros in the rows past the end of the
// sequence.
//
// If the instruction set multiplies pairs of bf16 (vec_pair.h), tiles of bf16 tensors are not
// widened: they have items of 32 bits, two elements with neighbouring k, the index that the product
// sums over. The left operand's rows are then those of the tensor; the right operand joins two rows
// (tile_join), or is transposed as items. Sums stay fp32; probabilities and their gradients are
// rounded to bf16 before they are multiplied, as in FlashAttention on a GPU. Products, four fifths
// of the pass, then take half as long, and e^x as long as before: the pass should take some two
// thirds.
//
// AMX (vec_tiles.h) multiplies the same items: 16 rows of a left operand are one of its tiles as
// they lie, 16 joined rows of a right operand another. Only what is summed by key has to be turned
// first. A block is then one tile's rows, all of whose columns are whole tiles or halves.
//
// The copies wait for memory: a quarter of the time of both passes (GPT-2 124M, bf16, T = 512, one
// Zen 4 core). Prefetching rows ROWS_AHEAD earlier should save most of that: measured, 13.2 ms
// forward and 29 backward became 11.6 and 25.8.
//
// A product is computed in blocks of BLOCK_ROWS rows, so that a caller can leave out, block by
// block, parts that the mask makes zero: columns of the scores, or terms of a sum over queries or
// keys. A row sees a range of columns of a tile of scores, in sparse attention with holes (struct
// Seen in attention_seen.h). Tiles that no row sees are never visited (struct TileWalk), and only
// those at an edge look at single elements.
//
// Used by attention.c, attention_backward.c and attention_cached.c.
#ifndef KERNELS_CPU_ATTENTION_TILE_H
#define KERNELS_CPU_ATTENTION_TILE_H
#include "kernels/cpu/attention_seen.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/cpu/vec_transpose.h"

#include <omp.h>

// Rows of one head in a big tensor: `rows` of them, `stride` elements apart, starting at `at`.
struct Rows {
    const void *data;
    size_t at, stride, rows;
};

VEC_INLINE struct Rows head_qkv_rows(const struct Head *h, const void *qkv, size_t time,
                                     size_t which) {
    return (struct Rows){qkv, head_qkv_at(h, time, which), (h->nh + 2 * h->nkv) * h->hs,
                         size_min(TILE, h->t - time)};
}
VEC_INLINE struct Rows head_out_rows(const struct Head *h, const void *out, size_t time) {
    return (struct Rows){out, head_out_at(h, time), h->nh * h->hs, size_min(TILE, h->t - time)};
}

// Prefetches row r + ROWS_AHEAD, which may be one of the next tile: rows of a head are too far
// apart in memory for the core's prefetcher. Past the tensor's end that does nothing.
VEC_INLINE void rows_prefetch(const struct Rows *from, const struct Head *h, enum Dtype d,
                              size_t r) {
    size_t at = from->at + (r + ROWS_AHEAD) * from->stride;
    for (size_t i = 0; i < h->hs; i += 64 / dtype_size(d))
        __builtin_prefetch(dtype_at(from->data, d, at + i));
}

// tile (TILE, width) = scale * rows; rows and columns past the end become 0.
VEC_INLINE void tile_pack(float *tile, const struct Head *h, struct Rows from, enum Dtype d,
                          float scale) {
    for (size_t r = 0; r < from.rows; r++) {
        rows_prefetch(&from, h, d, r);
        for (size_t i = 0; i < h->hs; i += VEC_LANES) {
            size_t at = from.at + r * from.stride;
            Vec x = vec_read(from.data, d, at + i, at + h->hs);
            vec_store_f32(tile + r * h->width + i, x * vec_set(scale));
        }
    }
    memset(tile + from.rows * h->width, 0, (TILE - from.rows) * h->width * sizeof *tile);
}

// The same in bf16, unscaled.
VEC_INLINE void tile_copy(float *items, const struct Head *h, struct Rows from) {
    uint16_t *tile = (uint16_t *)items;
    const uint16_t *x = from.data;
    for (size_t r = 0; r < from.rows; r++) {
        rows_prefetch(&from, h, BF16, r);
        for (size_t i = 0; i < h->hs; i += VEC_LANES) {
            const uint16_t *p = x + from.at + r * from.stride + i;
            bool whole = h->hs - i >= VEC_LANES;
            vec_store_half(tile + r * h->width + i,
                           whole ? vec_load_half(p) : vec_load_half_part(p, h->hs - i));
        }
    }
    memset(tile + from.rows * h->width, 0, (TILE - from.rows) * h->width * sizeof *tile);
}

// pairs (TILE / 2, width): item (r, i) joins elements (2 r, i) and (2 r + 1, i) of a bf16 tile.
VEC_INLINE void tile_join(float *pairs, const float *items, size_t width) {
    const uint16_t *tile = (const uint16_t *)items;
    for (size_t r = 0; r < TILE; r += 2)
        for (size_t i = 0; i < width; i += VEC_LANES) {
            VecHalf first = vec_load_half(tile + r * width + i);
            VecHalf second = vec_load_half(tile + (r + 1) * width + i);
            vec_store_f32(pairs + r / 2 * width + i, vec_pair_bf16(first, second));
        }
}

// rows = scale * tile, rounded to dtype d.
VEC_INLINE void tile_unpack(const float *tile, const struct Head *h, struct Rows to, enum Dtype d,
                            float scale) {
    for (size_t r = 0; r < to.rows; r++) {
        rows_prefetch(&to, h, d, r);
        for (size_t i = 0; i < h->hs; i += VEC_LANES) {
            size_t at = to.at + r * to.stride;
            Vec x = vec_load_f32(tile + r * h->width + i) * vec_set(scale);
            vec_write((void *)to.data, d, at + i, at + h->hs, x);
        }
    }
}

// out (width, TILE): the transpose of tile (TILE, width), of items.
static inline void tile_transpose(float *out, const float *tile, size_t width) {
    for (size_t r = 0; r < TILE; r += VEC_LANES)
        for (size_t i = 0; i < width; i += 4) {
            Vec column[4];
            vec_transpose(column, (const char *)(tile + r * width + i), width * sizeof *tile);
            for (size_t k = 0; k < 4; k++)
                vec_store_f32(out + (i + k) * TILE + r, column[k]);
        }
}

// Right operands: the transpose of a tile of rows, (width, TILE), for sums over its columns, and
// the tile itself, (TILE, width), for sums over its rows. `spare` has space for another tile.
VEC_INLINE void tile_pack_transposed(float *out, float *spare, const struct Head *h,
                                     struct Rows from, enum Dtype d) {
    if (item_elements(d) == 2)
        tile_copy(spare, h, from);
    else
        tile_pack(spare, h, from, d, 1);
    tile_transpose(out, spare, h->width / item_elements(d));
}
VEC_INLINE void tile_pack_rows(float *out, float *spare, const struct Head *h, struct Rows from,
                               enum Dtype d) {
    if (item_elements(d) == 2) {
        tile_copy(spare, h, from);
        tile_join(out, spare, h->width);
    } else {
        tile_pack(out, h, from, d, 1);
    }
}

// A matrix of items in cache: item (i, j) at data[i * row + j * col]. col is 1 except for a
// transposed left operand.
struct TileView {
    float *data;
    size_t row, col;
};

// The use of the old c in c (+)= a · b.
enum TileOld { OLD_DROP, OLD_KEEP, OLD_SCALE };

VEC_INLINE Vec tile_load_old(const float *c, enum TileOld old, const float *scale) {
    if (old == OLD_DROP)
        return vec_set(0);
    Vec kept = vec_load_f32(c);
    if (old == OLD_SCALE)
        kept *= vec_set(*scale);
    return kept;
}

// Computes one block in registers: c (BLOCK_ROWS, vecs vectors) = old c + a (BLOCK_ROWS, k) · b
// (k, vecs vectors), k counted in items. scale: for OLD_SCALE BLOCK_ROWS factors of the old c; for
// OLD_DROP one factor of the product, or NULL. `vecs`, `old` and `pairs` are constants at each
// call. A step of k takes a load per vector of b, a broadcast per row of a, and a multiplication
// for each pair; the loops over rows and vectors are fully unrolled, so that sum[][] stays in
// registers.
VEC_INLINE void tile_block(struct TileView c, struct TileView a, struct TileView b, size_t k,
                           enum TileOld old, const float *scale, bool pairs, int vecs) {
    Vec sum[BLOCK_ROWS][BLOCK_VECS];
    for (int r = 0; r < BLOCK_ROWS; r++)
        for (int v = 0; v < vecs; v++)
            sum[r][v] = tile_load_old(c.data + (size_t)r * c.row + v * VEC_LANES, old,
                                      old == OLD_SCALE ? scale + r : NULL);
    for (size_t l = 0; l < k; l++) {
        Vec row[BLOCK_VECS];
        for (int v = 0; v < vecs; v++)
            row[v] = vec_load_f32(b.data + l * b.row + v * VEC_LANES);
        for (int r = 0; r < BLOCK_ROWS; r++) {
            Vec x = vec_set(a.data[(size_t)r * a.row + l * a.col]);
            for (int v = 0; v < vecs; v++)
                sum[r][v] =
                    pairs ? vec_dot_bf16(x, row[v], sum[r][v]) : vec_fma(x, row[v], sum[r][v]);
        }
    }
    for (int r = 0; r < BLOCK_ROWS; r++)
        for (int v = 0; v < vecs; v++) {
            if (old == OLD_DROP && scale)
                sum[r][v] *= vec_set(*scale);
            vec_store_f32(c.data + (size_t)r * c.row + v * VEC_LANES, sum[r][v]);
        }
}

// Computes BLOCK_ROWS rows of a product: c (BLOCK_ROWS, n) = old c + a (BLOCK_ROWS, k) · b (k, n).
// n: whole vectors.
VEC_INLINE void multiply_rows_by_vectors(struct TileView c, struct TileView a, struct TileView b,
                                         size_t n, size_t k, enum TileOld old, const float *scale,
                                         bool pairs) {
    size_t j = 0;
    for (; j + BLOCK_VECS * VEC_LANES <= n; j += BLOCK_VECS * VEC_LANES) {
        tile_block(c, a, b, k, old, scale, pairs, BLOCK_VECS);
        c.data += BLOCK_VECS * VEC_LANES;
        b.data += BLOCK_VECS * VEC_LANES;
    }
    for (; j + 2 * VEC_LANES <= n; j += 2 * VEC_LANES) {
        tile_block(c, a, b, k, old, scale, pairs, 2);
        c.data += 2 * VEC_LANES;
        b.data += 2 * VEC_LANES;
    }
    if (j < n)
        tile_block(c, a, b, k, old, scale, pairs, 1);
}

// c (BLOCK_ROWS, n) *= scale[0], or row by row scale[r].
VEC_INLINE void tile_scale(struct TileView c, size_t n, const float *scale, bool by_row) {
    for (size_t r = 0; r < BLOCK_ROWS; r++)
        for (size_t j = 0; j < n; j += VEC_LANES) {
            float *at = c.data + r * c.row + j;
            vec_store_f32(at, vec_load_f32(at) * vec_set(scale[by_row ? r : 0]));
        }
}

// The elements from .. end - 1 of the index that a product sums over.
struct Terms {
    size_t from, end;
};

// The same product by AMX, summed over the terms k. A transposed left operand is turned to rows
// first. k.from is a multiple of VEC_LANES, and k.end is rounded up to one: a has zeros there.
VEC_INLINE void multiply_rows_by_amx(struct TileView c, struct TileView a, struct TileView b,
                                     size_t n, struct Terms k, enum TileOld old,
                                     const float *scale) {
    float left[TILES_SIDE * TILE / 2] __attribute__((aligned(64)));
    size_t from = k.from / 2, end = round_up(k.end, VEC_LANES) / 2;
    if (a.col != 1) {
        for (size_t l = from / TILES_SIDE * TILES_SIDE; l < end; l += TILES_SIDE)
            for (size_t r = 0; r < TILES_SIDE; r += 4) {
                Vec row[4];
                vec_transpose(row, (const char *)(a.data + l * a.col + r), a.col * sizeof *left);
                for (size_t i = 0; i < 4; i++)
                    vec_store_f32(left + (r + i) * TILE / 2 + l, row[i]);
            }
        a = (struct TileView){left, TILE / 2, 1};
    }
    if (old == OLD_SCALE)
        tile_scale(c, n, scale, true);
    for (size_t j = 0; j < n; j += 4 * TILES_SIDE)
        tiles_add((struct TilesSums){c.data + j, c.row}, a.data, a.row, b.data + j, b.row, from,
                  end, old != OLD_DROP, size_min(4, (n - j) / TILES_SIDE));
    if (old == OLD_DROP && scale)
        tile_scale(c, n, scale, false);
}

// Computes BLOCK_ROWS rows of a product: c (BLOCK_ROWS, n) = old c + a (BLOCK_ROWS, all) · b (all,
// n), summed over the terms k alone.
VEC_INLINE void multiply_rows(const struct Head *h, struct TileView c, struct TileView a,
                              struct TileView b, size_t n, struct Terms k, enum TileOld old,
                              const float *scale) {
    if (VEC_TILES) {
        multiply_rows_by_amx(c, a, b, n, k, old, scale);
        return;
    }
    size_t at = k.from / h->per_item;
    a.data += at * a.col;
    b.data += at * b.row;
    if (VEC_DOTS_BF16 && h->per_item == 2)
        multiply_rows_by_vectors(c, a, b, n, ceil_div(k.end - k.from, 2), old, scale, true);
    else
        multiply_rows_by_vectors(c, a, b, n, k.end - k.from, old, scale, false);
}

// scores (TILE, TILE) = scale (NULL: 1) * a · bt for the first `rows` rows, where a is (TILE, hs)
// and bt (hs, TILE). Skips columns that no row of a block sees, in whole vectors.
static inline void tile_scores(float *scores, float *a, float *bt, const struct Head *h,
                               size_t rows, const struct Seen *seen, const float *scale) {
    size_t ld = h->width / h->per_item;
    for (size_t r = 0; r < rows; r += BLOCK_ROWS) {
        size_t from = seen_from(seen, r, VEC_LANES);
        size_t end = seen->diagonal ? round_up(r + BLOCK_ROWS, VEC_LANES) : TILE;
        if (seen->holes)
            end = size_max(from, size_min(end, seen->high[r / LAYOUT_CELL]));
        multiply_rows(h, (struct TileView){scores + r * TILE + from, TILE, 1},
                      (struct TileView){a + r * ld, ld, 1}, (struct TileView){bt + from, TILE, 1},
                      end - from, (struct Terms){0, h->hs}, OLD_DROP, scale);
    }
}

// out (TILE, width) += p · x for the first `rows` rows: p is (TILE, TILE) with rows TILE items
// apart, x (TILE, width). Skips columns of p that no row of a block sees. scale: one factor per row
// for the old out, or NULL for none.
static inline void tile_add_by_query(float *out, float *p, float *x, const struct Head *h,
                                     size_t rows, const struct Seen *seen, const float *scale) {
    for (size_t r = 0; r < rows; r += BLOCK_ROWS) {
        size_t from = seen_from(seen, r, VEC_TILES ? VEC_LANES : h->per_item);
        size_t end = seen->diagonal ? r + BLOCK_ROWS : TILE;
        if (seen->holes)
            end = size_max(from, size_min(end, seen->high[r / LAYOUT_CELL]));
        struct Terms k = {from, end};
        struct TileView c = {out + r * h->width, h->width, 1}, a = {p + r * TILE, TILE, 1};
        struct TileView b = {x, h->width, 1};
        if (scale)
            multiply_rows(h, c, a, b, h->width, k, OLD_SCALE, scale + r);
        else
            multiply_rows(h, c, a, b, h->width, k, OLD_KEEP, NULL);
    }
}

// out (TILE, width) += transposed p · x, summed over the first `queries` rows of p and x, which
// are joined two by two if they are pairs. Skips rows that do not see a block of columns: on the
// diagonal those before the block, and out has only as many rows as there are queries; at an edge
// those that begin after the block, or have a hole there.
static inline void tile_add_by_key(float *out, float *p, float *x, const struct Head *h,
                                   size_t queries, const struct Seen *seen) {
    size_t end = seen->edge ? 0 : queries;
    for (size_t r = 0; r < (seen->diagonal ? queries : TILE); r += BLOCK_ROWS) {
        while (end < queries && seen->begin[end] < r + BLOCK_ROWS)
            end++;
        for (size_t first = seen->diagonal ? r : 0, to; first < end; first = to) {
            to = seen_run_end(seen, first, end, r);
            if (!seen->holes || seen_cell(seen, first, r))
                multiply_rows(h, (struct TileView){out + r * h->width, h->width, 1},
                              (struct TileView){p + r, 1, TILE}, (struct TileView){x, h->width, 1},
                              h->width, (struct Terms){first, to}, OLD_KEEP, NULL);
        }
    }
}

// Returns the scores of row r at columns j .. j + VEC_LANES - 1; hidden ones far below all others.
// edge: seen->edge, as a constant.
VEC_INLINE Vec tile_load_masked(const float *scores, size_t r, size_t j, const struct Seen *seen,
                                bool edge) {
    Vec s = vec_load_f32(scores + r * TILE + j), hidden = vec_set(-3e38f);
    if (seen->diagonal && r + 1 - j < VEC_LANES)
        s = vec_select(vec_mask(r + 1 - j), s, hidden);
    if (edge && j < seen->begin[r])
        s = vec_select(vec_mask(size_min(seen->begin[r] - j, VEC_LANES)), hidden, s);
    if (edge && !seen_cell(seen, r, j)) // a vector is not longer than a cell
        s = hidden;
    return s;
}

// Returns x with 0 before row r's first column and in holes. (Past the diagonal it is 0 already.)
VEC_INLINE Vec tile_zero_hidden(Vec x, size_t r, size_t j, const struct Seen *seen, bool edge) {
    if (edge && j < seen->begin[r])
        x = vec_select(vec_mask(size_min(seen->begin[r] - j, VEC_LANES)), vec_set(0), x);
    if (edge && !seen_cell(seen, r, j))
        x = vec_set(0);
    return x;
}
_Static_assert(LAYOUT_CELL % VEC_LANES == 0, "a cell is whole vectors");

#endif
