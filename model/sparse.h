// Patterns of sparse attention: which earlier blocks of tokens a block of tokens sees.
//
// A sequence is cut into blocks of so many tokens. A pattern says for each block of queries which
// blocks of keys they see; of their own block they always see what is not after them. The patterns
// and their parameters are DeepSpeed's (deepspeed/ops/sparse_attention/sparsity_config.py), of
// which a language model can only have the unidirectional ones:
//
//   fixed        windows of num_local_blocks side by side, of which each block sees its own, and of
//                all before it num_global_blocks: the last of a window, or where there are
//                num_different_global_patterns, in head h those h of them before (Child et al.,
//                "Generating Long Sequences with Sparse Transformers", 2019)
//   variable     windows of local_window_blocks blocks, the last of which goes on, global blocks
//                global_block_indices (to global_block_end_indices), and num_random_blocks random
//   bigbird      num_sliding_window_blocks / 2 blocks before each, the first num_global_blocks,
//                which themselves see all, and num_random_blocks (Zaheer et al., "Big Bird", 2020)
//   bslongformer the same with global blocks by their indices, and none at random (Beltagy et al.,
//                "Longformer", 2020)
//   local        num_sliding_window_blocks / 2 blocks before each
//
// Two differences. A pattern here is a function of head, row and column, so that a shorter sequence
// sees what the beginning of a longer one does: DeepSpeed moves the global blocks of fixed's last
// window where that is shorter than they are. And random blocks are drawn from those that are not
// after the row, by counters (kernels/dtype.h): the head counts in the whole model, so the places
// of tensor parallelism have the patterns of their heads. The seed is fixed: a pattern is the
// model's, as its shape is, and not a run's.
//
// Read by config.c; model/units.c makes layouts of them (kernels/layout.h).
#ifndef MODEL_SPARSE_H
#define MODEL_SPARSE_H
#include "kernels/base.h"

enum SparseMode {
    SPARSE_DENSE,
    SPARSE_FIXED,
    SPARSE_VARIABLE,
    SPARSE_BIGBIRD,
    SPARSE_BSLONGFORMER,
    SPARSE_LOCAL,
    NSPARSE
};

enum {
    SPARSE_LIST = 16,           // numbers in a list
    SPARSE_TEXT_BYTES = 800,    // of a pattern in words, with all lists full
    SPARSE_MOST_BLOCKS = 99999, // that a number of them may be
    SPARSE_MOST_RANDOM = 256,
    SPARSE_MOST_TOKENS = 1 << 18 // of a sequence
};

struct SparseList {
    size_t n, at[SPARSE_LIST];
};

// Fields have the names of their keys without "num" and "blocks".
struct Sparse {
    enum SparseMode mode;
    size_t block;    // tokens of a block, a multiple of a cell (kernels/layout.h)
    size_t per_head; // 1: different_layout_per_head
    size_t local, global, patterns, random, sliding;
    struct SparseList windows, indices, ends; // ends.n 0: each index is a block
    char text[SPARSE_TEXT_BYTES];             // all of it, as sparse_read reads it
};

// Reads "dense", or a mode and what is not to be as by default: MODE:KEY=VALUE,KEY=VALUE, where
// lists have + between their numbers. Errors: -EINVAL with --sparse-attention, its value and what
// would be right.
int sparse_read(struct Sparse *s, const char *text, struct Error *e);

// Sets seen[c] for the blocks c <= row that block row `row` sees in head `head`, and clears the
// others.
void sparse_row(const struct Sparse *s, size_t head, size_t row, bool *seen);

// Layouts that heads differ in: one for each, or one for all. Of `heads` heads of a model's part.
static inline size_t sparse_tables(const struct Sparse *s, size_t heads) {
    return s->per_head ? heads : 1;
}

// Of the scores of causal attention of t tokens those that are seen, by heads first_head ..
// first_head + heads - 1 together, and where `window` is not 0 through it.
double sparse_share(const struct Sparse *s, size_t first_head, size_t heads, size_t t,
                    size_t window);

// A LayoutCells: `pattern` is a struct SparseHeads.
struct SparseHeads {
    const struct Sparse *sparse;
    size_t first; // the head of table 0
};
void sparse_cells(const void *pattern, size_t table, size_t row, bool *seen);

#endif
