// Layouts of sparse attention: which tiles of scores are computed, and which cells of those.
//
// A cell is 16 x 16 scores, of 16 queries and 16 keys, that are all seen or all hidden (causality
// and `first` hide more: kernels.h). A tile is 128 x 64 scores, or 8 x 4 cells, whose seen ones are
// the bits of one word. For each 128 queries a layout lists the tiles of 64 keys of which they see
// something, in order; and once more transposed: for each 128 keys the tiles of 64 queries that see
// something of them, as the backward pass walks both ways. So what attention costs follows the
// tiles that are listed, and nothing is looked up for those that are not. Kernels whose own rows
// are fewer than 128 take their rows' bits of a word, and pass over a tile that has none for them.
//
// Each query sees at least the cell on the diagonal, and no cell above it is listed. The list of
// some queries does not depend on what comes after them, so a shorter sequence has the same lists.
//
// Patterns are model/sparse.c's; attention's kernels walk the lists. FlexAttention's BlockMask
// keeps the same two lists (Dong et al. 2024).
#ifndef KERNELS_LAYOUT_H
#define KERNELS_LAYOUT_H
#include "kernels/base.h"
#include "kernels/dtype.h"

enum { LAYOUT_OWN = 128, LAYOUT_TILE = 64, LAYOUT_CELL = 16 };

// A tile of a list. at: the first of the 64 rows that pass by the list's own 128. cells: bit
// 4 * (own row / 16) + passing row / 16.
struct LayoutTile {
    uint32_t at, cells;
};

// Which of the two passes by the other, and so whose lists these are.
enum LayoutSide { LAYOUT_KEYS, LAYOUT_QUERIES };

// begin: for each list where it begins among the tiles, and the number of all tiles; behind it, the
// tiles. A list for each side, table and 128 own rows, in this order. NULL: attention is dense.
// Head h has table h % tables. share: of the causal scores, those that are seen, for cost.h, which
// follows no pointers.
struct Layout {
    const uint32_t *begin;
    size_t tables, owners;
    double share;
};

struct LayoutList {
    const struct LayoutTile *tile, *end;
};

// That of the 128 rows from `row` down to a multiple of 128.
HOST_DEVICE static inline struct LayoutList
layout_list(const struct Layout *l, enum LayoutSide side, size_t head, size_t row) {
    size_t lists = 2 * l->tables * l->owners;
    size_t i = ((size_t)side * l->tables + head % l->tables) * l->owners + row / LAYOUT_OWN;
    const struct LayoutTile *tiles = (const struct LayoutTile *)(l->begin + lists + 2);
    struct LayoutList list = {tiles + l->begin[i], tiles + l->begin[i + 1]};
    return list;
}

#ifdef __cplusplus
extern "C" {
#endif

// Sets seen[c] for each c <= row that the queries of cell row `row` see of table `table`.
typedef void LayoutCells(const void *pattern, size_t table, size_t row, bool *seen);

// Makes a layout of sequences of t tokens: begin and the tiles, `*bytes` of them, the caller's to
// free() or to copy to where l->begin shall point. Fills in the rest of *l but share. The cells on
// the diagonal are seen, whatever the pattern says. Ends the program if a layout has 2^32 tiles.
uint32_t *layout_make(struct Layout *l, size_t t, size_t tables, LayoutCells *cells,
                      const void *pattern, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
