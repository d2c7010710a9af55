// Parameters as groups: one contiguous buffer per unit of the walk.
//
// A group is what ZeRO gathers, reduces, shards, offloads and checkpoints, as one piece. Inside it
// the 2-D weights lie first and the vectors after them, without gaps, so one offset (decay_end)
// says what weight decay applies to; only the end is padded, so that every rank's shard has the
// same size. Group 0 holds what the two ends of the model use (token and position embedding, final
// norm): the embedding unit and the head share it, since the head's matrix is the token embedding.
// Groups 1 .. L are the blocks.
//
// Elements have a global index that counts real weights only (no padding of vocabulary or shards),
// in group order. Initial values and the weights' hash are functions of it, and so do not depend on
// how the weights are spread.
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H
#include "kernels/kernels.h"
#include "model/config.h"

// The parameters of a group by place: END_* are group 0's, BLOCK_* a block's.
enum EndParam { END_WTE, END_WPE, END_NORM_W, END_NORM_B, NEND };
enum BlockParam {
    BLOCK_QKV_W,
    BLOCK_PROJ_W,
    BLOCK_FC_W,
    BLOCK_OUT_W,
    BLOCK_NORM1_W,
    BLOCK_NORM1_B,
    BLOCK_QKV_B,
    BLOCK_PROJ_B,
    BLOCK_NORM2_W,
    BLOCK_NORM2_B,
    BLOCK_FC_B,
    BLOCK_OUT_B,
    NBLOCK
};
enum { MAX_PARAM = NBLOCK };

// Along which axis tensor parallelism would split a parameter.
enum Split { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLS };

struct Param {
    const char *name;
    size_t offset;     // first element in the group
    size_t rows, cols; // as stored; a vector has cols = 1
    size_t real;       // elements that are weights: the first `real` of rows * cols
    uint64_t index;    // global index of the first element
    float mean, std;   // initial values: mean + std * normal
    enum Split split;
};

struct Group {
    char name[24];
    int nparam;
    struct Param param[MAX_PARAM];
    size_t numel;     // rows * cols over all parameters
    size_t padded;    // numel rounded up to shards * 64 elements
    size_t decay_end; // elements [0, decay_end) are 2-D weights
};

struct Params {
    int ngroup;
    struct Group *group;
    uint64_t real; // weights in all: the parameter count that people quote
    size_t padded; // elements stored in all
};

// Units of the walk: embedding, blocks, head; and the group that a unit uses.
static inline int params_units(const struct Params *p) {
    return p->ngroup + 1;
}
static inline int params_unit_group(const struct Params *p, int u) {
    return u == p->ngroup ? 0 : u;
}
// The first unit that uses a group: backward, the last one that adds to its gradient.
static inline int params_first_unit(const struct Params *p, int g) {
    (void)p;
    return g;
}

// Lays out the groups for `shards` ranks. params_free when done.
void params_layout(const struct ModelConfig *c, size_t shards, struct Params *out);
void params_free(struct Params *p);

// Queues the initial values of elements [begin, end) of group g into dst (fp32, end - begin
// elements, on the device): GPT-2's, N(0, 0.02), residual projections N(0, 0.02 / sqrt(2 L)), norms
// 1, biases and padding 0.
void params_init(const struct Params *p, int g, size_t begin, size_t end, uint64_t seed,
                 struct Device *d, float *dst);

// The sum over the real weights among elements [begin, end) of group g of mix(global index, fp32
// bits). Sums of disjoint ranges add up to the hash of all. master: fp32 values of the range, host
// memory.
uint64_t params_hash(const struct Params *p, int g, size_t begin, size_t end, const float *master);

#endif
