// ZeRO: where each kind of state lies, and what happens to it around every unit of the walk.
//
// Three kinds of state belong to a group of parameters: the parameters in the dtype of the forward
// pass, their gradients, and the optimizer's fp32 master weights and moments. A PLACEMENT says for
// one kind whether each rank keeps only its shard, in which tier, and in which format. A STAGE of
// ZeRO is three booleans (what is sharded) and one row of a table (stages.c): what to do before and
// after a unit's forward and backward pass, and how to update. The walk (step.c) calls that row and
// knows nothing else.
//
// What is sharded is cut by rank: of every group rank r keeps elements [r n, (r + 1) n), n = padded
// / size. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter
// models", 2020 (arXiv 1910.02054), sections 5-7.
//
// The walk runs UNITS: 0 is the embedding, 1 .. L the blocks, L + 1 the head. The parameters of a
// unit are a GROUP, one buffer: group g is unit g's, and the head shares group 0 with the
// embedding, whose matrix is tied to its own (model/params.h).
//
// Read next: step.c (the walk), then stages.c (the table), then param.c, grad.c and opt.c (its
// entries).
#ifndef ZERO_ZERO_H
#define ZERO_ZERO_H
#include "kernels/kernels.h"
#include "kernels/tier.h"
#include "model/params.h"
#include "zero/comm.h"
#include "zero/loss_scale.h"

struct Model;
struct Acts;
struct Grad;
struct Zero;

struct Placement {
    bool sharded; // each rank keeps its 1/size of every group
    struct Tier *tier;
    enum Dtype dtype;
};

struct ZeroPlan {
    struct Placement param, grad, optimizer;
    // fp32 master weights apart from the parameters: not where those are fp32 anyway.
    bool own_master;
    size_t nmicro;   // micro-batches per step
    size_t prefetch; // units whose weights are fetched ahead of the walk
};

// What the user asked for. Tiers are the caller's.
struct ZeroOptions {
    int stage;
    size_t nmicro, prefetch;
    enum Dtype dtype; // parameters
    enum Dtype grad_dtype;
    struct Tier *device_tier;
    struct LossScaleSettings loss_scale; // for fp16 alone
};

// One row of the stage table; g is a group, and u the unit that uses it.
struct ZeroStage {
    bool shards_param, shards_grad, shards_optimizer;
    void (*before_forward)(struct Zero *, int u, int g);
    void (*after_forward)(struct Zero *, int u, int g);
    void (*before_backward)(struct Zero *, int u, int g);
    void (*after_backward)(struct Zero *, int u, int g);
    void (*update)(struct Zero *, int g);
    void (*after_update)(struct Zero *, int g);
};

// The state of one group on this rank.
struct GroupState {
    struct Block param;     // padded (or a shard's) elements, plan.param.dtype
    struct Block grad;      // the same, plan.grad.dtype
    struct Block master;    // fp32; none where the parameters are fp32
    struct Block m, v;      // fp32
    struct Event *updated;  // compute: the update has written this rank's part of param
    struct Event *gathered; // comm: after it, the other ranks' parts have come
};

// A buffer for one whole group, used by one group after another: for weights that were gathered, or
// for a gradient until it is reduced.
struct Slot {
    struct Block block;
    int group;             // whose it is now; -1: nobody's
    struct Event *filled;  // weights: comm has gathered them. Gradient: comm has reduced it
    struct Event *drained; // compute has read the weights for the last time
};

// Slot 0 is for group 0 alone, which is larger than the others and is used at both ends of the
// walk. The blocks take slots 1 .. by turns.
struct Slots {
    int count; // 0: what a rank keeps is whole, and is used where it lies
    int next;  // among 1 .. count - 1
    struct Slot *slot;
};

// What each rank tells the others at the end of a step, or of a batch of validation: a row of a
// table in device memory that is all_gathered. Norm and loss are summed from it in rank order.
struct RankReport {
    double loss_sum;  // over this rank's tokens
    uint64_t word;    // a word from this rank's host, such as its wish to stop
    double squares[]; // (ngroup): squared norm of this rank's shard of each gradient
};

struct Zero {
    struct ZeroPlan plan;
    const struct ZeroStage *stage;
    struct Device *device;
    struct Comm *dp; // the data-parallel group
    struct Model *model;
    const struct Params *params;
    struct GroupState *state; // per group
    void **w;                 // per group: whole weights, valid between before_ and after_
    struct Grad *dw;          // per group: whole gradient, likewise
    struct Slots weights, buckets;
    size_t micro;     // of this step, from 0
    uint64_t step;    // made so far, with those whose update was skipped
    uint64_t updates; // made so far
    struct LossScaleSettings loss_scale_settings;
    struct LossScale loss_scale; // of the next step
    size_t hopeless;             // steps in a row that were skipped with the least loss scale
    bool backward_follows;       // in the walk that goes on: what is fetched ahead at its end

    struct Block control_block;
    struct StepState *control; // on the device: the step's settings, and its norm
    size_t report_bytes;       // of one row
    char *reports;             // on the device: (size) rows of struct RankReport
    // Host ends of the in and the out queue.
    struct StepState *sent, *received_control;
    uint64_t *sent_word;
    char *received; // the rows
    struct Event *settings_sent, *word_sent, *backward_done, *computed, *reported, *updated,
        *received_all;
};

// ---- plan.c: placements, and the memory they take ----

// What the options mean: a placement for each kind of state. Errors: -EINVAL for what is not built.
int zero_plan(struct ZeroPlan *out, const struct ZeroOptions *options, struct Error *e);

// Errors: those of zero_plan, -ENOMEM where a tier is too small. All memory is taken here.
int zero_open(struct Zero *z, const struct ZeroOptions *options, struct Device *device,
              struct Comm *dp, struct Model *model, const struct Params *params, struct Error *e);
void zero_close(struct Zero *z);

// The bytes that each collective of a training step sends from this rank: what comm.h counts,
// foretold from the stage. With Psi parameters in 2 bytes and one micro-batch, (size - 1) / size
// times 2 Psi elements at stages 0 to 2 and 3 Psi at stage 3 (the ZeRO paper, section 7), and the
// reports.
struct Traffic {
    uint64_t bytes[NCOLLECTIVE];
};
struct Traffic zero_traffic(const struct Zero *z);

const struct ZeroStage *zero_stage(int stage); // stages.c; NULL: not built

// ---- step.c: one training step ----

// Runs units [first, last) of one micro-batch forward, or backward in opposite order.
void walk_forward(struct Zero *z, int first, int last, struct Acts *acts);
void walk_backward(struct Zero *z, int first, int last, struct Acts *acts);

// A step is: zero_step_begin with its settings, whose loss scale is z's own; zero_step_micro for
// each micro-batch (acts->tokens, targets, dloss set); then zero_step_end, which updates. They only
// queue work. zero_step_wait, due before the next step begins, returns when the step's results are
// on the host: its loss (a sum over tokens, not scaled), its gradient's norm, and whether the
// update was skipped because the norm is not finite. All ranks find the same norm, so all of them
// skip, and all make the same of the loss scale.
struct StepResult {
    double loss_sum; // over the tokens of all ranks
    float grad_norm;
    bool skipped;
    bool stop;                   // some rank was told to stop (its `stop` below)
    struct LossScale loss_scale; // that this step had; zeroed where there is none
};
void zero_step_begin(struct Zero *z, const struct StepState *settings);
void zero_step_micro(struct Zero *z, struct Acts *acts);
void zero_step_end(struct Zero *z, bool stop);
struct StepResult zero_step_wait(struct Zero *z);

// Forward alone, as acts->mode says: for samples. All ranks make the same calls.
void zero_forward(struct Zero *z, struct Acts *acts);

// The loss of one batch on each rank without a backward pass: the sum over all ranks' tokens, or
// over those of the ranks whose `counts` is set. Waits for it.
struct StepResult zero_eval(struct Zero *z, struct Acts *acts, bool counts, bool stop);

// This rank's row of the reports, on the device.
static inline struct RankReport *zero_report(const struct Zero *z) {
    return (struct RankReport *)(z->reports + (size_t)z->dp->rank * z->report_bytes);
}

// ---- reports.c ----
void reports_send_word(struct Zero *z, uint64_t word); // to this rank's row
void reports_gather(struct Zero *z);                   // queued behind the word
void reports_receive(struct Zero *z);                  // queues the copy to the host
void reports_wait(struct Zero *z);                     // gathers, receives, and waits for it
// Of what was received; the loss in the order of ranks, so that every rank has the same sum.
struct StepResult reports_sum(const struct Zero *z);

// Hands `mine` to all ranks: all[r] becomes rank r's. Waits for it.
void zero_share(struct Zero *z, uint64_t mine, uint64_t *all);

// 0 if all ranks say 0, else the error (a negative errno) of the lowest rank that does not.
int zero_agree(struct Zero *z, int err);

// 0 if all ranks have the same text, else -EINVAL: this rank's, or another's, is not rank 0's. e
// then names the first such rank, on rank 0 alone.
int zero_compare(struct Zero *z, const char *text, struct Error *e);

// ---- param.c ----
void params_resident(struct Zero *z, int u, int g);
void params_fetch_forward(struct Zero *z, int u, int g);
void params_fetch_backward(struct Zero *z, int u, int g);
void params_release_forward(struct Zero *z, int u, int g);
void params_release_backward(struct Zero *z, int u, int g);
void params_gather(struct Zero *z, int g); // what the ranks updated, to all of them

// Fresh fp32 master weights and moments of 0; then the parameters.
void zero_init_weights(struct Zero *z, uint64_t seed);
// parameters := master weights, after either was loaded.
void zero_store_params(struct Zero *z);

// This rank's part of the optimizer state: where it begins in group g, and how much it is. Whole
// groups where the optimizer is not sharded.
size_t zero_kept_begin(const struct Zero *z, int g);
size_t zero_kept_numel(const struct Zero *z, int g);
float *zero_master(struct Zero *z, int g); // fp32 weights of that part, on the device
size_t zero_shard_numel(const struct Zero *z, int g);

uint64_t zero_weights_hash(struct Zero *z); // of all weights; all ranks call it, and wait

// ---- grad.c ----
void grads_resident(struct Zero *z, int u, int g);
void grads_bucket(struct Zero *z, int u, int g);
void grads_all_reduce_at_end(struct Zero *z, int u, int g);
void grads_reduce_at_end(struct Zero *z, int u, int g);
void grads_reduce_each(struct Zero *z, int u, int g);

// ---- opt.c ----
void update_begin(struct Zero *z); // waits for the reductions, computes norm and clip factor
void update_kept(struct Zero *z, int g);

// ---- slots.c ----
int slots_open(struct Zero *z, struct Slots *s, int blocks, enum Dtype dtype, enum Tag tag,
               const char *purpose, struct Tier *tier, struct Error *e);
void slots_close(struct Zero *z, struct Slots *s);
struct Slot *slots_find(struct Slots *s, int g); // NULL: group g is in none
struct Slot *slots_take(struct Slots *s, int g); // the one whose turn it is

#endif
