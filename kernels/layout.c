// Makes the lists of a layout: see layout.h.
#include "kernels/layout.h"

#include <stdlib.h>
#include <string.h>

enum { OWN_CELLS = LAYOUT_OWN / LAYOUT_CELL, TILE_CELLS = LAYOUT_TILE / LAYOUT_CELL };

// The lists of one side, `lists` of all tables so far, with `count` tiles. cells: the cells of one
// table that are seen, a word for each tile, (owners, tiles).
struct Side {
    size_t owners, tiles, lists, count;
    uint32_t *begin;
    struct LayoutTile *tile;
    uint32_t *cells;
};

static void side_open(struct Side *s, size_t t, size_t tables) {
    *s = (struct Side){.owners = ceil_div(t, LAYOUT_OWN), .tiles = ceil_div(t, LAYOUT_TILE)};
    s->begin = base_alloc(tables * s->owners * sizeof *s->begin);
    s->cells = base_alloc_zeroed(s->owners * s->tiles * sizeof *s->cells);
}

static void side_close(struct Side *s) {
    free(s->begin);
    free(s->tile);
    free(s->cells);
}

// Marks a cell as seen: own and other are its indices on this side and on the other.
static void side_mark(struct Side *s, size_t own, size_t other) {
    s->cells[own / OWN_CELLS * s->tiles + other / TILE_CELLS] |=
        UINT32_C(1) << (own % OWN_CELLS * TILE_CELLS + other % TILE_CELLS);
}

// Appends the lists of the table that was marked, and clears the marks.
static void side_list(struct Side *s) {
    size_t n = 0, words = s->owners * s->tiles;
    for (size_t i = 0; i < words; i++)
        n += s->cells[i] != 0;
    CHECK(s->count + n < UINT32_MAX, "a layout of sparse attention with %zu tiles", s->count + n);
    s->tile = base_realloc(s->tile, (s->count + n) * sizeof *s->tile, "lists of tiles");
    for (size_t own = 0; own < s->owners; own++) {
        s->begin[s->lists++] = (uint32_t)s->count;
        for (size_t i = 0; i < s->tiles; i++)
            if (s->cells[own * s->tiles + i])
                s->tile[s->count++] =
                    (struct LayoutTile){(uint32_t)(i * LAYOUT_TILE), s->cells[own * s->tiles + i]};
    }
    memset(s->cells, 0, words * sizeof *s->cells);
}

// Returns Layout.begin and the tiles after it, *bytes in all.
static uint32_t *join_sides(const struct Side *keys, const struct Side *queries, size_t *bytes) {
    size_t lists = keys->lists + queries->lists, tiles = keys->count + queries->count;
    CHECK(tiles < UINT32_MAX, "a layout of sparse attention with %zu tiles", tiles);
    *bytes = (lists + 2) * sizeof(uint32_t) + tiles * sizeof(struct LayoutTile);
    uint32_t *mem = base_alloc_zeroed(*bytes);
    struct LayoutTile *to = (struct LayoutTile *)(mem + lists + 2);
    memcpy(mem, keys->begin, keys->lists * sizeof *mem);
    for (size_t i = 0; i < queries->lists; i++)
        mem[keys->lists + i] = (uint32_t)keys->count + queries->begin[i];
    mem[lists] = (uint32_t)tiles;
    memcpy(to, keys->tile, keys->count * sizeof *to);
    memcpy(to + keys->count, queries->tile, queries->count * sizeof *to);
    return mem;
}

uint32_t *layout_make(struct Layout *l, size_t t, size_t tables, LayoutCells *cells,
                      const void *pattern, size_t *bytes) {
    struct Side keys, queries;
    size_t rows = ceil_div(t, LAYOUT_CELL);
    bool *seen = base_alloc(rows * sizeof *seen);
    side_open(&keys, t, tables);
    side_open(&queries, t, tables);
    for (size_t table = 0; table < tables; table++) {
        for (size_t row = 0; row < rows; row++) {
            memset(seen, 0, rows * sizeof *seen);
            cells(pattern, table, row, seen);
            seen[row] = true;
            for (size_t c = 0; c <= row; c++)
                if (seen[c]) {
                    side_mark(&keys, row, c);
                    side_mark(&queries, c, row);
                }
        }
        side_list(&keys);
        side_list(&queries);
    }
    *l = (struct Layout){.tables = tables, .owners = keys.owners, .share = l->share};
    uint32_t *mem = join_sides(&keys, &queries, bytes);
    side_close(&keys);
    side_close(&queries);
    free(seen);
    return mem;
}
