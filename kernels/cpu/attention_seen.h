// Locates a query head in the tensors, the tiles of keys that its queries see, and their seen part.
//
// In a tile of scores a row sees a range of columns: up to itself, and from its first key on
// (windows and packed documents); in sparse attention without the holes of its layout. struct
// TileWalk walks the tiles of which something is seen, struct Seen says which part; dense attention
// walks all of them.
//
// Read next: attention_tile.h.
#ifndef KERNELS_CPU_ATTENTION_SEEN_H
#define KERNELS_CPU_ATTENTION_SEEN_H
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/cpu/vec_tiles.h"

// BLOCK_ROWS: a tile of AMX, or with BLOCK_VECS 16 sums, enough to keep two multipliers with 4
// cycles' delay busy.
enum {
    TILE = LAYOUT_TILE, // rows of a tile, and columns of a tile of scores
    ROWS_AHEAD = 16,
    BLOCK_ROWS = VEC_TILES ? TILES_SIDE : 4,
    BLOCK_VECS = 4
};

// Locates one query head and its key head in the tensors. Dense tiles have `width` columns: hs
// rounded up to whole vectors. per_item: elements of an item, 2 for pairs of bf16. Scores are
// multiplied by scale; fp32 queries already when copied, which would not always be exact in bf16.
// first: (T), of this sequence (NULL: all queries see key 0). layout: of sparse attention.
struct Head {
    size_t b, head, key_head, t, nh, nkv, hs, width, per_item;
    const int32_t *first;
    struct Layout layout;
    float scale;
};

// Returns the first element of row `time` of qkv (B, T, NH + 2 NKV, HS); which: 0 q, 1 k, 2 v.
VEC_INLINE size_t head_qkv_at(const struct Head *h, size_t time, size_t which) {
    size_t vector = which ? h->nh + (which - 1) * h->nkv + h->key_head : h->head;
    return ((h->b * h->t + time) * (h->nh + 2 * h->nkv) + vector) * h->hs;
}
// The same in out and dout (B, T, NH, HS).
VEC_INLINE size_t head_out_at(const struct Head *h, size_t time) {
    return ((h->b * h->t + time) * h->nh + h->head) * h->hs;
}
VEC_INLINE size_t head_width(size_t hs) {
    return round_up(hs, VEC_LANES);
}
// Returns query head number i of the whole batch. `all` has the sizes, and first (B, T).
VEC_INLINE struct Head head_number(struct Head all, size_t i, enum Dtype d) {
    struct Head h = all;
    h.b = i / h.nh;
    h.head = i % h.nh;
    h.key_head = h.head / (h.nh / h.nkv);
    h.width = head_width(h.hs);
    h.per_item = item_elements(d);
    h.scale = 1.0f / sqrtf((float)h.hs);
    if (h.first)
        h.first += h.b * h.t;
    return h;
}
// Returns the number of rows of the tile that begins at `time`, rounded up to whole blocks.
VEC_INLINE size_t head_rows(const struct Head *h, size_t time) {
    return size_min(TILE, round_up(h->t - time, BLOCK_ROWS));
}

// Cells of a tile (kernels/layout.h): bit CELLS * (row / LAYOUT_CELL) + column / LAYOUT_CELL, with
// CELLS of them in a row. ABOVE_DIAGONAL: those of a tile on the diagonal that it hides as a whole.
enum { CELLS = TILE / LAYOUT_CELL, ALL_CELLS = (1 << CELLS * CELLS) - 1, ABOVE_DIAGONAL = 0x08ce };

// The part of a tile of keys that the rows of a tile of queries see. On the diagonal row r ends
// with column r. At an edge, which some row's first key makes, row r begins with column begin[r],
// TILE if it sees none; begin never decreases. Holes, cells that a layout leaves out, make an edge,
// too: then the rows of cell row c see some of the columns low[c] .. high[c] - 1.
struct Seen {
    bool diagonal, edge, holes;
    uint16_t cells;
    uint8_t begin[TILE], low[CELLS], high[CELLS];
};

// Returns the first key of the first tile of keys that the queries from `time` on see.
VEC_INLINE size_t head_first_tile(const struct Head *h, size_t time) {
    return h->first ? (size_t)h->first[time] / TILE * TILE : 0;
}
// True if the queries from `time` on see the tile of keys at `key`, as far as their first keys say.
VEC_INLINE bool head_sees(const struct Head *h, size_t time, size_t key) {
    return head_first_tile(h, time) <= key;
}
// Sets low and high of each cell row from `cells`.
VEC_INLINE void seen_holes(struct Seen *seen) {
    for (size_t c = 0; c < CELLS; c++) {
        unsigned row = seen->cells >> CELLS * c & ((1 << CELLS) - 1), low = 0, high = CELLS;
        while (low < CELLS && !(row >> low & 1))
            low++;
        while (high > low && !(row >> (high - 1) & 1))
            high--;
        seen->low[c] = (uint8_t)(LAYOUT_CELL * low);
        seen->high[c] = (uint8_t)(LAYOUT_CELL * high);
    }
}
// Returns the part of the tile of keys at `key` that the tile of queries at `time` sees. cells:
// those that a layout shows. What the diagonal hides needs no hole.
VEC_INLINE struct Seen head_seen(const struct Head *h, size_t time, size_t key, unsigned cells) {
    size_t last = size_min(time + TILE, h->t) - 1;
    struct Seen seen;
    seen.diagonal = time == key;
    seen.cells = (uint16_t)(seen.diagonal ? cells | ABOVE_DIAGONAL : cells);
    seen.holes = seen.cells != ALL_CELLS;
    seen.edge = (h->first && (size_t)h->first[last] > key) || seen.holes;
    for (size_t r = 0; seen.edge && r < TILE; r++) {
        size_t first = h->first ? (size_t)h->first[size_min(time + r, last)] : 0;
        seen.begin[r] = (uint8_t)size_min(first > key ? first - key : 0, TILE);
    }
    if (seen.holes)
        seen_holes(&seen);
    return seen;
}

// Walks the other side's tiles for one of a head's tiles, in order: those at begin .. end - 1, or
// those of them in a layout's list with a seen cell in our rows.
struct TileWalk {
    size_t at;      // the tile's first row
    unsigned cells; // its cells that a layout shows, in our rows
    size_t begin, end;
    struct LayoutList list;
    unsigned shift; // bit of our rows in the words of the list
};

// side: of the tiles to walk; own: our first row. Starts before the first tile.
VEC_INLINE struct TileWalk walk_begin(const struct Head *h, enum LayoutSide side, size_t own,
                                      size_t begin, size_t end) {
    struct TileWalk w = {begin - TILE, ALL_CELLS, begin, end, {NULL, NULL}, 0};
    if (h->layout.begin) {
        w.list = layout_list(&h->layout, side, h->head, own);
        w.shift = (unsigned)(own % LAYOUT_OWN / LAYOUT_CELL * CELLS);
    }
    return w;
}
// Goes to the next tile; false: there is none.
VEC_INLINE bool walk_next(struct TileWalk *w) {
    if (!w->list.tile) {
        w->at += TILE;
        return w->at < w->end;
    }
    for (; w->list.tile < w->list.end; w->list.tile++) {
        w->at = w->list.tile->at;
        w->cells = w->list.tile->cells >> w->shift & ALL_CELLS;
        if (w->at >= w->begin && w->at < w->end && w->cells) {
            w->list.tile++;
            return true;
        }
    }
    return false;
}

// Returns the same cells with rows and columns exchanged.
VEC_INLINE unsigned transpose_cells(unsigned cells) {
    unsigned out = 0;
    for (unsigned i = 0; i < CELLS * CELLS; i++)
        out |= (cells >> i & 1) << (i % CELLS * CELLS + i / CELLS);
    return out;
}

// True if row r's cell at column j is not a hole.
VEC_INLINE bool seen_cell(const struct Seen *seen, size_t r, size_t j) {
    return seen->cells >> (r / LAYOUT_CELL * CELLS + j / LAYOUT_CELL) & 1;
}
// Returns the end of row r's columns. edge: seen->edge, as a constant if possible.
VEC_INLINE size_t seen_end(const struct Seen *seen, size_t r, bool edge) {
    size_t end = seen->diagonal ? r + 1 : TILE;
    return edge && seen->holes ? size_min(end, seen->high[r / LAYOUT_CELL]) : end;
}
// Returns the first column of the block of rows that contains r, rounded down to a multiple of
// `step`. Scores and probabilities are computed from there, with step VEC_LANES.
VEC_INLINE size_t seen_from(const struct Seen *seen, size_t r, size_t step) {
    if (!seen->edge)
        return 0;
    size_t from = seen->begin[r / BLOCK_ROWS * BLOCK_ROWS];
    if (seen->holes)
        from = size_max(from, seen->low[r / LAYOUT_CELL]);
    return from / step * step;
}
// Returns the first row after r, or `end`, that differs from r in whether it sees column j's cell.
VEC_INLINE size_t seen_run_end(const struct Seen *seen, size_t r, size_t end, size_t j) {
    if (!seen->holes)
        return end;
    size_t to = r;
    while (to < end && seen_cell(seen, to, j) == seen_cell(seen, r, j))
        to = (to / LAYOUT_CELL + 1) * LAYOUT_CELL;
    return size_min(to, end);
}

#endif
