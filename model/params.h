// Parameters as groups, and the table of units, which lists the group that each unit uses.
//
// A group is the unit in which ZeRO gathers, reduces, shards, offloads and checkpoints. In it the
// 2-D weights come first and the vectors after them, without gaps, so one offset (decay_end) ends
// the elements that weight decay applies to; only the end is padded, so that every rank's shard has
// the same size.
//
// The walk runs units: the embedding, the blocks, the head. Each has a group of its own, except
// that the head of a model that is not `untied` shares the embedding's group: its matrix is the
// token embedding. Only the table of units knows this. Code that gathers, reduces, counts or walks
// reads the table: a group's gradient is complete after the backward pass of its first unit,
// whichever that is.
//
// With tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", section 3) each TP rank has a PART
// of each tensor: rows of the embedding and of the first product of a pair, columns of the second.
// All ranks have the norms and the terms that are added once; TP rank 0 counts them. All sizes here
// are the part's, except those that say whole.
//
//                          TP rank 0 of 2     qkv has three parts of rows: the queries' heads, then
//     q q q q   k k   v v   q q k v           the keys', then the values'; SwiGLU's fc two: the
//                                             gate's, and those that it gates
//
// Elements have a global index that counts only real weights (no padding of vocabulary or shards),
// in group order of the whole model. Initial values and the weights hash are functions of it, so
// they do not depend on how the weights are sharded. pieces.c maps the elements of a part to those
// of the tensor.
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H
#include "kernels/kernels.h"
#include "kernels/weights.h"
#include "model/config.h"

// The parameters of the embedding and the head, wherever they are (struct Params).
enum EndParam { END_WTE, END_WPE, END_HEAD_W, END_NORM_W, END_NORM_B, NEND };
// The parameters of a block, by their index in its group.
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
// The parameters of a block's adapter: A of target t is t, and B is ADAPTER_B + t.
enum { ADAPTER_B = NLORA, NADAPTER = 2 * NLORA };
enum { MAX_PARAM = NBLOCK, MAX_PARTS = 3, MAX_PIECES = MAX_PARAM * MAX_PARTS };
_Static_assert((int)NADAPTER <= (int)MAX_PARAM, "an adapter has too many parameters");

enum ParamSplit { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLUMNS };
// The source of a TP rank's gradient of a parameter that all ranks have: everything; this rank's
// own rows between products, if those are split (acts.h); this rank's part of a product.
enum GradSource { GRAD_OF_ALL, GRAD_OF_ROWS, GRAD_OF_PART };

struct Param {
    const char *name;
    size_t offset;         // first element in the group
    size_t rows, cols;     // as stored; a vector has cols = 1; rows = 0 if the family lacks it
    size_t real;           // elements that are weights: the first `real` of rows * cols
    float mean, std;       // initial values: mean + std * normal,
    bool uniform;          // or mean + std * a uniform number in [-1, 1)
    enum ParamSplit split; // how TP ranks divide the tensor; SPLIT_NONE: all ranks have all of it
    enum GradSource grad;
    uint64_t index;                // global index of the tensor's first element
    size_t whole_rows, whole_cols; // of the whole tensor, only weights
    size_t first_col;              // column of the whole tensor that is column 0 here
    struct {
        size_t first, rows; // `rows` rows of the tensor from `first` on; parts are adjacent here
    } part[MAX_PARTS];
};

enum { SHARD_MULTIPLE = 64 }; // elements: shards begin on cache lines in every format

enum GroupKind { GROUP_END, GROUP_BLOCK, GROUP_ADAPTER, NGROUPKIND };

struct Group {
    char name[24];
    enum GroupKind kind;
    int number;                // its index in the whole model
    bool shared;               // a unit of another stage uses it, too (params_keep_stage),
    bool copy;                 // and that stage counts, reports and writes it
    bool frozen;               // not trained: it has no gradient and no optimizer state (--freeze)
    int first_unit, last_unit; // the units that use it; going backward, the last one comes first
    int nparam;
    struct Param param[MAX_PARAM];
    size_t numel;     // rows * cols over all parameters
    size_t padded;    // numel rounded up to shards * SHARD_MULTIPLE; packed: shards * BASE_RUN
    size_t decay_end; // elements [0, decay_end) are 2-D weights
};

enum UnitKind { UNIT_EMBEDDING, UNIT_BLOCK, UNIT_HEAD };

enum { UNIT_GROUPS = 2 };
// A row of the table of units.
struct Unit {
    enum UnitKind kind;
    int group;           // the group whose weights it reads and whose gradient it adds to
    int adapter;         // likewise, of a block that has one (lora.h); -1: none
    int layer;           // of a block: 0 .. L-1, of the stage's L; -1 for an end
    bool reads_backward; // its backward pass reads the weights, too
};

struct Params {
    struct ModelConfig config; // of the whole model
    size_t tp_rank, tp_size;   // this is the part of that rank
    int nunit;
    struct Unit *unit; // in the order of the forward pass
    int ngroup;
    struct Group *group;
    int all_units, all_groups;     // of the whole model
    int first_unit, first_layer;   // those in it of unit 0 and block 0 here (params_keep_stage)
    int first_trained;             // in it, the first unit whose parameters are trained
    const struct Param *end[NEND]; // in the ends' groups; the head's matrix may be wte itself
    uint64_t real; // weights in total, of all TP ranks and stages: the usual parameter count
    size_t padded; // elements stored in total
};

// Elements of the largest group of a kind, of those that are trained or of all; 0: there is none.
static inline size_t params_largest_of(const struct Params *p, enum GroupKind kind, bool trained) {
    size_t most = 0;
    for (int g = 0; g < p->ngroup; g++)
        if (p->group[g].kind == kind && !(trained && p->group[g].frozen))
            most = size_max(most, p->group[g].padded);
    return most;
}
static inline size_t params_largest(const struct Params *p, enum GroupKind kind) {
    return params_largest_of(p, kind, false);
}
static inline size_t params_largest_trained(const struct Params *p, enum GroupKind kind) {
    return params_largest_of(p, kind, true);
}

// Elements of the largest group of all.
static inline size_t params_largest_group(const struct Params *p) {
    size_t units = size_max(params_largest(p, GROUP_END), params_largest(p, GROUP_BLOCK));
    return size_max(units, params_largest(p, GROUP_ADAPTER));
}

// The group that a unit's backward pass makes a gradient of; -1: none.
static inline int params_trained_of(const struct Params *p, int u) {
    const struct Unit *unit = &p->unit[u];
    return p->group[unit->group].frozen ? unit->adapter : unit->group;
}

// The number of blocks here.
static inline size_t params_layers(const struct Params *p) {
    size_t layers = 0;
    for (int u = 0; u < p->nunit; u++)
        layers += p->unit[u].kind == UNIT_BLOCK;
    return layers;
}

// True if a parameter here is trained.
static inline bool params_trains(const struct Params *p) {
    bool trains = false;
    for (int g = 0; g < p->ngroup; g++)
        trains = trains || !p->group[g].frozen;
    return trains;
}

// The first unit here whose backward pass is needed: there, or in a stage before, is a parameter
// that is trained. nunit: none.
static inline int params_first_backward(const struct Params *p) {
    int first = p->first_trained - p->first_unit;
    return first < 0 ? 0 : first < p->nunit ? first : p->nunit;
}

// The number of blocks here whose backward pass is not needed: they are the first ones.
static inline size_t params_forgotten(const struct Params *p) {
    size_t n = 0;
    for (int u = 0; u < params_first_backward(p); u++)
        n += p->unit[u].kind == UNIT_BLOCK;
    return n;
}

// True if unit u runs the same kernels as the one before: a block whose weights are trained alike.
static inline bool params_is_as_before(const struct Params *p, int u) {
    const struct Unit *unit = &p->unit[u];
    int first = params_first_backward(p);
    return unit->layer > 0 && p->group[unit->group].frozen == p->group[unit[-1].group].frozen &&
           (unit->adapter < 0) == (unit[-1].adapter < 0) && (u >= first) == (u > first);
}

// True if the group is kept in fewer bits.
static inline bool params_packs(const struct Params *p, int g) {
    return p->config.lora.base != BASE_PLAIN && p->group[g].kind == GROUP_BLOCK;
}

// True if checkpoints hold the group: with adapters, those alone.
static inline bool params_saves(const struct Params *p, int g) {
    return !p->config.lora.rank || p->group[g].kind == GROUP_ADAPTER;
}

// The unit, in the whole model, for which traces show the update of a group.
static inline int params_update_unit(const struct Params *p, int g) {
    const struct Group *group = &p->group[g];
    return group->kind == GROUP_ADAPTER ? p->first_unit + group->first_unit : group->number;
}

// The layer of a block's group, or its adapter's, in the whole model; -1: the group is an end's.
static inline int params_layer(const struct Params *p, int g) {
    int layer = p->unit[p->group[g].first_unit].layer;
    return layer < 0 ? layer : p->first_layer + layer;
}

// Calls `visit` for every parameter of such a model, or of its adapters, in order, with its layer
// and name. Returns the first error of `visit`.
typedef int VisitParam(void *context, int layer, const char *name, struct Error *e);
int params_visit(const struct ModelConfig *c, bool adapters, VisitParam *visit, void *context,
                 struct Error *e);

// Returns how many weights of such a model are trained.
uint64_t params_trained(const struct ModelConfig *c);

// Lists the units and lays out their groups for `shards` ranks: the part of the model of TP rank
// tp_rank of tp_size (config.h: model_config_check_parts). params_free when done.
void params_layout(const struct ModelConfig *whole, size_t shards, size_t tp_rank, size_t tp_size,
                   struct Params *out);
void params_free(struct Params *p);

// Keeps `count` units from `first` on, and the groups that they use: a stage of a pipeline. A group
// that an earlier unit uses, too, becomes a copy here.
void params_keep_stage(struct Params *p, int first, int count);

// Queues the initial values of elements [begin, end) of group g into dst (fp32, end - begin
// elements, of the device's memory): GPT-2's, N(0, 0.02), residual projections
// N(0, 0.02 / sqrt(2 L)), norms 1, biases and padding 0.
void params_init(const struct Params *p, int g, size_t begin, size_t end, uint64_t seed,
                 struct Device *d, float *dst);

// Returns the sum of mix(global index, fp32 bits) over the real weights among elements [begin, end)
// of group g that this TP rank counts. Sums of disjoint ranges, and of all TP ranks, add up to the
// hash of the model. master: fp32 values of the range, host memory.
uint64_t params_hash(const struct Params *p, int g, size_t begin, size_t end, const float *master);

// Adds (alpha / rank) B A to elements [at, at + n) of a block's group g, which are of one
// parameter. adapter: the whole master weights of the block's adapter. (Hu et al. 2021, section
// 4.1.)
void params_add_adapter(const struct Params *p, int g, const struct Param *param, size_t at,
                        size_t n, const float *adapter, float *values);

// ---- pieces.c ----

// True if this TP rank counts, reports and writes a parameter; rank 0 does if all ranks have it.
static inline bool params_counts(const struct Params *p, const struct Param *param) {
    return !p->tp_rank || param->split != SPLIT_NONE;
}

// Elements of a parameter: range.n of them from `begin` on in the group, and the range of the whole
// tensor that they are.
struct Piece {
    const struct Param *param;
    size_t begin;
    struct WeightsRange range;
};

// Finds the pieces of the real weights among elements [begin, end) of a group, in order. Returns
// their number.
int params_pieces(const struct Group *group, size_t begin, size_t end,
                  struct Piece piece[MAX_PIECES]);

// The inverse: finds the first element of the whole tensor, from its element *at on, that `part`
// has. Sets *at to it, and *element to its index in the group. Returns how many elements from there
// on are adjacent in both; 0: the part has none.
size_t params_find(const struct Param *part, uint64_t *at, size_t *element);

// Finds the elements [begin, end) of group g that this TP rank counts, in order; rank 0 counts all
// of them. Padding, which is 0, may be among them. Returns the number of spans.
struct Span {
    size_t begin, end;
};
int params_counted(const struct Params *p, int g, size_t begin, size_t end,
                   struct Span span[MAX_PARAM]);

// Finds the elements of a group whose gradient must be summed over the TP ranks, in order;
// row_parts: parts of the rows between products. Returns the number of spans.
int params_partial(const struct Group *group, size_t row_parts, struct Span span[MAX_PARAM]);

#endif
