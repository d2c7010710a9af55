// Patterns of sparse attention: which earlier blocks of tokens a block of tokens sees.
//
// A sequence is cut into blocks of tokens. For each block of queries a pattern lists the blocks of
// keys that they see; in their own block they see all keys that are not after them. The patterns
// and their parameters are DeepSpeed's (deepspeed/ops/sparse_attention/sparsity_config.py), of
// which a language model can only have the unidirectional ones:
//
//   fixed        windows of num_local_blocks side by side, of which each block sees its own, and of
//                all before it num_global_blocks: the last of a window, or with
//                num_different_global_patterns, in head h those h of them before (Child et al.,
//                "Generating Long Sequences with Sparse Transformers", 2019)
//   variable     windows of local_window_blocks blocks, the last of which repeats, global blocks
//                global_block_indices (to global_block_end_indices), and num_random_blocks random
//   bigbird      num_sliding_window_blocks / 2 blocks before each, the first num_global_blocks,
//                which themselves see all, and num_random_blocks (Zaheer et al., "Big Bird", 2020)
//   bslongformer the same with global blocks by their indices, and no random ones (Beltagy et al.,
//                "Longformer", 2020)
//   local        num_sliding_window_blocks / 2 blocks before each
//
// Two differences. A pattern here is a function of head, row and column, so that a shorter sequence
// sees what the beginning of a longer one does: DeepSpeed moves the global blocks of fixed's last
// window if that is shorter than they are. And random blocks are drawn from those that are not
// after the row, by counters (kernels/dtype.h): the head is counted in the whole model, so TP ranks
// have the patterns of their heads. The seed is fixed: like its shape, a pattern belongs to the
// model, not to a run.
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
    SPARSE_TEXT_BYTES = 800,    // of a pattern's text, with all lists full
    SPARSE_MOST_BLOCKS = 99999, // largest number of blocks
    SPARSE_MOST_RANDOM = 256,
    SPARSE_MOST_TOKENS = 1 << 18 // of a sequence
};

struct SparseList {
    size_t n, at[SPARSE_LIST];
};

// Fields are named as DeepSpeed's keys, without "num" and "blocks".
struct Sparse {
    enum SparseMode mode;
    size_t block;    // tokens of a block, a multiple of a cell (kernels/layout.h)
    size_t per_head; // 1: different_layout_per_head
    size_t local, global, patterns, random, sliding;
    struct SparseList windows, indices, ends; // ends.n 0: each index is a block
    char text[SPARSE_TEXT_BYTES];             // the whole pattern, as sparse_read reads it
};

// Reads "dense", or a mode and the keys that differ from their defaults: MODE:KEY=VALUE,KEY=VALUE,
// with + between the numbers of a list. Errors: -EINVAL with --sparse-attention, its value and
// valid values.
int sparse_read(struct Sparse *s, const char *text, struct Error *e);

// Sets seen[c] for the blocks c <= row that block row `row` sees in head `head`, and clears the
// other blocks.
void sparse_row(const struct Sparse *s, size_t head, size_t row, bool *seen);

// The number of layouts for a part with `heads` heads: one per head if they differ, else 1.
static inline size_t sparse_tables(const struct Sparse *s, size_t heads) {
    return s->per_head ? heads : 1;
}

// The share of the causal scores of t tokens that heads first_head .. first_head + heads - 1 see
// together, also through `window` if that is not 0.
double sparse_share(const struct Sparse *s, size_t first_head, size_t heads, size_t t,
                    size_t window);

// A LayoutCells function: `pattern` is a struct SparseHeads.
struct SparseHeads {
    const struct Sparse *sparse;
    size_t first; // the head of table 0
};
void sparse_cells(const void *pattern, size_t table, size_t row, bool *seen);

#endif
