// Parameters as groups, and the table of units that says which unit of the walk uses which.
//
// A group is what ZeRO gathers, reduces, shards, offloads and checkpoints, as one piece. Inside it
// the 2-D weights come first and the vectors after them, without gaps, so one offset (decay_end)
// says what weight decay applies to; only the end is padded, so that every rank's shard has the
// same size.
//
// The walk runs units: the embedding, the blocks, the head. Each has a group of its own, but for
// the head of a model that is not `untied`: its matrix is the token embedding, so it shares the
// embedding's group, with the final norm. The table of units is the one place where that is known.
// Who gathers, reduces, counts or walks reads it: a group's gradient is complete after the backward
// pass of its first unit, whoever that is.
//
// Elements have a global index that counts real weights only (no padding of vocabulary or shards),
// in group order. Initial values and the weights' hash are functions of it, and so do not depend on
// how the weights are spread.
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H
#include "kernels/kernels.h"
#include "model/config.h"

// The parameters of the embedding and the head, wherever they are (struct Params).
enum EndParam { END_WTE, END_WPE, END_HEAD_W, END_NORM_W, END_NORM_B, NEND };
// Those of a block, by their place in its group.
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
    BLOCK_Q_NORM_W,
    BLOCK_K_NORM_W,
    NBLOCK
};
enum { MAX_PARAM = NBLOCK };

struct Param {
    const char *name;
    size_t offset;     // first element in the group
    size_t rows, cols; // as stored; a vector has cols = 1; what the family lacks, rows = 0
    size_t real;       // elements that are weights: the first `real` of rows * cols
    uint64_t index;    // global index of the first element
    float mean, std;   // initial values: mean + std * normal
};

struct Group {
    char name[24];
    int first_unit, last_unit; // the units that use it; going backward, the last one comes first
    int nparam;
    struct Param param[MAX_PARAM];
    size_t numel;     // rows * cols over all parameters
    size_t padded;    // numel rounded up to shards * 64 elements
    size_t decay_end; // elements [0, decay_end) are 2-D weights
};

enum UnitKind { UNIT_EMBEDDING, UNIT_BLOCK, UNIT_HEAD };

// A row of the table of units.
struct Unit {
    enum UnitKind kind;
    int group;           // whose weights it reads, and whose gradient it adds to
    int layer;           // of a block: 0 .. L-1; else -1
    bool reads_backward; // its backward pass reads the weights, too
};

struct Params {
    int nunit;
    struct Unit *unit; // in the order of the forward pass
    int ngroup;
    struct Group *group;
    int largest[2];                // the largest group of an end, and of a block
    const struct Param *end[NEND]; // in groups of the ends; the head's matrix may be wte itself
    uint64_t real;                 // weights in all: the parameter count that people quote
    size_t padded;                 // elements stored in all
};

// Whether group g is a block's. All blocks' groups are alike; those of the ends are larger.
static inline bool params_is_block(const struct Params *p, int g) {
    return p->unit[p->group[g].first_unit].kind == UNIT_BLOCK;
}

// The layer of a block's group; -1: it is one of an end.
static inline int params_layer(const struct Params *p, int g) {
    return p->unit[p->group[g].first_unit].layer;
}

// Tells of every parameter that such a model has, in their order, by layer and name. Errors: tell's
// first.
typedef int TellParam(void *context, int layer, const char *name, struct Error *e);
int params_tell(const struct ModelConfig *c, TellParam *tell, void *context, struct Error *e);

// Lists the units and lays out their groups for `shards` ranks. params_free when done.
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
