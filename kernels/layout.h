// Layouts of sparse attention: the tiles of scores that are computed, and the cells seen in them.
//
// A cell is 16 x 16 scores, of 16 queries and 16 keys, all seen or all hidden (causality and
// `first` hide more: kernels.h). A tile is 128 x 64 scores, or 8 x 4 cells; the seen ones are the
// bits of one word. For each 128 queries a layout lists, in order, the tiles of 64 keys of which
// they see something; and once more transposed: for each 128 keys the tiles of 64 queries that see
// something of them, as the backward pass walks both ways. So the cost of attention follows the
// listed tiles, and nothing is looked up for the others. Kernels that own fewer than 128 rows take
// their rows' bits of a word, and skip a tile that has none for them.
//
// Each query sees at least the cell on the diagonal, and no cell above it is listed. The list of a
// query does not depend on later ones, so a shorter sequence has the same lists.
//
// model/sparse.c makes the patterns; attention's kernels walk the lists. FlexAttention's BlockMask
// has the same two lists (Dong et al. 2024).
#ifndef KERNELS_LAYOUT_H
#define KERNELS_LAYOUT_H
#include "kernels/base.h"
#include "kernels/dtype.h"

enum { LAYOUT_OWN = 128, LAYOUT_TILE = 64, LAYOUT_CELL = 16 };

// A tile of a list. at: the first of its 64 rows of the other side. cells: bit 4 * (own row / 16) +
// other row / 16.
struct LayoutTile {
    uint32_t at, cells;
};

// The side that the list's tiles are of: keys, in the lists of queries, or queries.
enum LayoutSide { LAYOUT_KEYS, LAYOUT_QUERIES };

// begin: the index of each list's first tile, then the number of all tiles and, since the number of
// lists is even, a 0, so that the tiles, which follow, are aligned to 8 bytes. There is a list for
// each side, table and 128 own rows, in this order. NULL: attention is dense. Head h has table h %
// tables. share: the share of causal scores that are seen, for cost.h, which follows no pointers.
struct Layout {
    const uint32_t *begin;
    size_t tables, owners;
    double share;
};

struct LayoutList {
    const struct LayoutTile *tile, *end;
};

// Returns the list of the 128 rows that contain `row`.
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

// Sets seen[c] for each c <= row that the queries of cell row `row` see in table `table`.
typedef void LayoutCells(const void *pattern, size_t table, size_t row, bool *seen);

// Makes a layout for sequences of t tokens and returns begin and the tiles, `*bytes` of them, for
// the caller to copy to where l->begin will point, and to free(). Fills in the rest of *l except
// share. The cells on the diagonal are always seen. Ends the program if a layout has 2^32 tiles.
uint32_t *layout_make(struct Layout *l, size_t t, size_t tables, LayoutCells *cells,
                      const void *pattern, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
