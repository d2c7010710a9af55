// Sequences of sparse attention for tests: a case, its pattern, its layout, and all of that as a
// mask.
//
// Used by test_kernels_sparse.c and test_kernels_sparse_seen.c.
#ifndef TESTS_KERNELS_MASKED_H
#define TESTS_KERNELS_MASKED_H
#include "model/sparse.h"
#include "tests/kernels/seen_case.h"

#include <math.h>

enum { MOST_T = 300 };

// A sequence, the pattern that its heads see by, and all of that as a mask.
struct Masked {
    struct Case c;
    struct Sparse sparse;
    bool *mask; // (NH, T, T): whether the query sees the key
};

static inline bool sees(const struct Masked *m, size_t head, size_t query, size_t key) {
    return m->mask[(head * m->c.t + query) * m->c.t + key];
}

static inline void fill_mask(struct Masked *m) {
    const struct Case *c = &m->c;
    for (size_t i = 0; i < c->nh * c->t; i++) {
        bool seen[MOST_T];
        size_t query = i % c->t, first = c->first ? (size_t)c->first[query] : 0;
        sparse_row(&m->sparse, i / c->t, query / m->sparse.block, seen);
        for (size_t key = 0; key < c->t; key++)
            m->mask[i * c->t + key] = first <= key && key <= query && seen[key / m->sparse.block];
    }
}

struct Shape {
    size_t t, nh, nkv, hs;
    const char *pattern;
    size_t window;
};

// Around the edges of tiles of 64 and of 128 rows. 64 and 128 elements are for the tensor cores
// where operands are aligned, 9 and 20 for no vector's length.
static const struct Shape shapes[] = {
    {200, 2, 1, 64, "fixed:block=16,num_local_blocks=4", 0},
    {290, 2, 2, 9,
     "fixed:block=16,different_layout_per_head=true,num_local_blocks=4,"
     "num_different_global_patterns=4",
     0},
    {270, 4, 2, 64,
     "variable:block=16,num_random_blocks=1,local_window_blocks=1+3+2,global_block_indices=2+5,"
     "global_block_end_indices=3+7,different_layout_per_head=true",
     0},
    {260, 2, 1, 128, "bigbird:block=16,different_layout_per_head=true", 0},
    {280, 3, 1, 20, "bslongformer:block=32,global_block_indices=0+3", 0},
    {300, 2, 2, 64, "local:block=64", 0},
    {150, 1, 1, 128, "local:block=16,num_sliding_window_blocks=1", 0},
    {260, 2, 1, 64, "bigbird:block=64,num_sliding_window_blocks=1", 0},
    {130, 2, 2, 64, "fixed:block=128,num_local_blocks=1", 0},
    // Through a window besides.
    {260, 2, 1, 64, "bigbird:block=16,different_layout_per_head=true", 70},
    {200, 2, 1, 9, "bslongformer:block=16", 33},
    {17, 1, 1, 64, "local:block=16,num_sliding_window_blocks=1", 0},
};
enum { NSHAPE = sizeof shapes / sizeof shapes[0] };

static inline struct Masked masked_of(const struct Shape *s) {
    struct Masked m = {.c = case_of(s->t, s->nh, s->nkv, s->hs, NULL)};
    struct Error e = {0};
    assert_true(s->t <= MOST_T);
    if (sparse_read(&m.sparse, s->pattern, &e))
        fail_msg("%s", e.text);
    if (s->window) {
        int32_t *first = base_alloc(s->t * sizeof *first);
        for (size_t i = 0; i < s->t; i++)
            first[i] = pattern_first(&(struct Pattern){.window = s->window}, 0, i);
        m.c.first = first;
    }
    struct SparseHeads heads = {&m.sparse, 0};
    uint32_t *lists = layout_make(&m.c.layout, s->t, sparse_tables(&m.sparse, s->nh), sparse_cells,
                                  &heads, &m.c.layout_bytes);
    m.c.layout.begin = lists;
    m.mask = base_alloc(s->nh * s->t * s->t * sizeof *m.mask);
    fill_mask(&m);
    return m;
}

static inline void masked_free(struct Masked *m) {
    free((void *)m->c.layout.begin);
    free((void *)m->c.first);
    free(m->mask);
    case_free(&m->c);
}

// The simulator of a GPU is slow: every other shape, and the first ones of the tensor cores.
static inline size_t shape_step(const struct Rig *rig) {
    return strcmp(rig->name[rig->ntable - 1], "cuda") ? 1 : 2;
}

#endif
