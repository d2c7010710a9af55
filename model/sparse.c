// The patterns of sparse attention, block by block: see sparse.h. Next: sparse_read.c.
#include "model/sparse.h"

#include "kernels/dtype.h"
#include "kernels/layout.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t SEED = 0x737061727365; // seed of random blocks: "sparse"

// Marks the blocks begin .. end - 1, but none after `row`.
static void attend(bool *seen, size_t row, size_t begin, size_t end) {
    for (size_t c = begin; c < end && c <= row; c++)
        seen[c] = true;
}

// ---- the elements of patterns ----

// Marks the row's own window: windows are side by side, of these sizes; the last size repeats.
static void attend_window(const struct SparseList *windows, size_t row, bool *seen) {
    size_t begin = 0, i = 0;
    while (i + 1 < windows->n && row >= begin + windows->at[i])
        begin += windows->at[i++];
    begin += (row - begin) / windows->at[i] * windows->at[i];
    attend(seen, row, begin, row + 1);
}

static void attend_sliding(const struct Sparse *s, size_t row, bool *seen) {
    size_t before = s->sliding / 2;
    attend(seen, row, row > before ? row - before : 0, row + 1);
}

// Marks `global` blocks of each window; those of the first window begin at block `first`.
static void attend_part_of_windows(const struct Sparse *s, size_t first, size_t row, bool *seen) {
    for (size_t begin = first; begin <= row; begin += s->local)
        attend(seen, row, begin, begin + s->global);
}

// Marks the global blocks; sees_all: those themselves see all blocks before them.
static void attend_global(const struct Sparse *s, bool sees_all, size_t row, bool *seen) {
    for (size_t i = 0; i < s->indices.n; i++) {
        size_t begin = s->indices.at[i], end = s->ends.n ? s->ends.at[i] : begin + 1;
        bool all = sees_all && begin <= row && row < end;
        attend(seen, row, all ? 0 : begin, all ? row + 1 : end);
    }
}

// Picks different blocks among 0 .. row (Floyd's algorithm: Bentley, Floyd, "A sample of
// brilliance", 1987). The number of a draw is its index in the row, so it does not depend on other
// rows.
static void attend_random(const struct Sparse *s, size_t head, size_t row, bool *seen) {
    size_t picked[SPARSE_MOST_RANDOM], n = 0;
    uint64_t seed = rng_bits(rng_bits(SEED, head), row);
    for (size_t last = row + 1 > s->random ? row + 1 - s->random : 0; last <= row; last++) {
        size_t c = (size_t)(rng_bits(seed, n) % (last + 1));
        for (size_t i = 0; i < n; i++)
            if (picked[i] == c) {
                c = last;
                break;
            }
        picked[n++] = c;
        attend(seen, row, c, c + 1);
    }
}

// ---- the patterns ----

void sparse_row(const struct Sparse *s, size_t head, size_t row, bool *seen) {
    const struct SparseList same = {1, {s->local}}; // windows of one size
    head = s->per_head ? head : 0;
    memset(seen, 0, (row + 1) * sizeof *seen);
    seen[row] = true;
    switch (s->mode) {
    case SPARSE_FIXED:
        attend_window(&same, row, seen);
        attend_part_of_windows(s, s->local - (1 + head % s->patterns) * s->global, row, seen);
        break;
    case SPARSE_VARIABLE:
        attend_window(&s->windows, row, seen);
        attend_global(s, false, row, seen);
        attend_random(s, head, row, seen);
        break;
    case SPARSE_BIGBIRD:
        attend_sliding(s, row, seen);
        attend(seen, row, 0, row < s->global ? row + 1 : s->global);
        attend_random(s, head, row, seen);
        break;
    case SPARSE_BSLONGFORMER:
        attend_sliding(s, row, seen);
        attend_global(s, true, row, seen);
        break;
    case SPARSE_LOCAL:
        attend_sliding(s, row, seen);
        break;
    default:
        CHECK(false, "pattern %d has no layout", (int)s->mode);
    }
}

// Expands blocks to cells, of which a block has one or more: from the last on, in place.
void sparse_cells(const void *pattern, size_t table, size_t row, bool *seen) {
    const struct SparseHeads *heads = pattern;
    size_t cells = heads->sparse->block / LAYOUT_CELL;
    sparse_row(heads->sparse, heads->first + table, row / cells, seen);
    for (size_t c = row + 1; c-- > 0;)
        seen[c] = seen[c / cells];
}

// ---- the share of attention that is left ----

// Returns how many of the keys begin .. end - 1 this query sees through a window; all count tokens.
static size_t seen_keys(size_t query, size_t begin, size_t end, size_t window) {
    size_t first = size_max(begin, window && query >= window ? query - window + 1 : 0);
    size_t last = size_min(end, query + 1);
    return first < last ? last - first : 0;
}

// Returns how many of the pairs of a query in block `row` and a key in block `column`, which the
// pattern lets it see, remain within the window and are causal. Of most pairs of blocks all do.
static size_t seen_pairs(const struct Sparse *s, size_t row, size_t column, size_t t,
                         size_t window) {
    size_t begin = row * s->block, end = size_min(begin + s->block, t), key = column * s->block;
    bool whole = column < row && (!window || end - 1 < window || end - window <= key);
    if (whole)
        return (end - begin) * s->block;
    size_t n = 0;
    for (size_t i = begin; i < end; i++)
        n += seen_keys(i, key, key + s->block, window);
    return n;
}

double sparse_share(const struct Sparse *s, size_t first_head, size_t heads, size_t t,
                    size_t window) {
    size_t rows = ceil_div(t, s->block), tables = sparse_tables(s, heads);
    bool *seen = base_alloc(rows * sizeof *seen);
    double pairs = 0, all = (double)t * (double)(t + 1) / 2;
    for (size_t table = 0; table < tables; table++)
        for (size_t row = 0; row < rows; row++) {
            sparse_row(s, first_head + table, row, seen);
            for (size_t c = 0; c <= row; c++)
                if (seen[c])
                    pairs += (double)seen_pairs(s, row, c, t, window);
        }
    free(seen);
    return pairs / ((double)tables * all);
}
