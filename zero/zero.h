// ZeRO: where each kind of state lies, and what happens to it around every unit of the walk.
//
// Three kinds of state belong to a group of parameters: the parameters in the dtype of the forward
// pass, their gradients, and the optimizer's fp32 master weights and moments. A PLACEMENT says for
// one kind whether each rank keeps only its shard, in which tier, and in which format. A STAGE of
// ZeRO is three booleans (what is sharded) and one row of a table (stages.c): what to do before and
// after a unit's forward and backward pass, and how to update. The walk (step.c) calls that row and
// knows nothing else.
//
// This version builds stage 0 on one rank, with all state in the device's tier. Rajbhandari et al.,
// "ZeRO: memory optimizations toward training trillion parameter models", 2020 (arXiv 1910.02054),
// sections 5-7.
//
// Read next: step.c (the walk), then stages.c (the table), then param.c, grad.c and opt.c (its
// entries).
#ifndef ZERO_ZERO_H
#define ZERO_ZERO_H
#include "kernels/kernels.h"
#include "kernels/tier.h"
#include "model/params.h"
#include "zero/comm.h"

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
    int stage;
    struct Placement param, grad, optimizer;
    // fp32 master weights apart from the parameters: not where those are fp32 anyway.
    bool own_master;
    size_t nmicro; // micro-batches per step
};

// What the user asked for. Tiers are the caller's.
struct ZeroOptions {
    int stage;
    size_t nmicro;
    enum Dtype dtype; // parameters
    enum Dtype grad_dtype;
    struct Tier *device_tier;
};

// One row of the stage table; g is a group, and u the unit that uses it.
struct ZeroStage {
    const char *name;
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
    struct Block param;  // padded (or a shard's) elements, plan.param.dtype
    struct Block grad;   // the same, plan.grad.dtype
    struct Block master; // fp32; none where the parameters are fp32
    struct Block m, v;   // fp32
};

// What crosses between host and device once a step. Lies in device memory; squares follows it.
struct StepControl {
    struct StepState state;
    double loss_sum; // over all tokens of the step on this rank
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
    size_t micro;             // of this step, from 0
    uint64_t step;            // updates made so far

    struct Block control_block;
    struct StepControl *control; // on the device
    double *squares; // on the device: squared norm of shard r of group g at g * dp->size + r
    struct StepControl *sent, *received; // host ends of the in and the out queue
    struct Event *state_sent, *backward_done, *reduced, *updated, *received_all;
};

// ---- plan.c: placements, and the memory they take ----

// Errors: -EINVAL for what is not built, -ENOMEM where a tier is too small. All memory is taken
// here.
int zero_open(struct Zero *z, const struct ZeroOptions *options, struct Device *device,
              struct Comm *dp, struct Model *model, const struct Params *params, struct Error *e);
void zero_close(struct Zero *z);

const struct ZeroStage *zero_stage(int stage); // stages.c; NULL: not built

// ---- step.c: one training step ----

// Runs units [first, last) of one micro-batch forward, or backward in opposite order.
void walk_forward(struct Zero *z, int first, int last, struct Acts *acts);
void walk_backward(struct Zero *z, int first, int last, struct Acts *acts);

// A step is: zero_step_micro for each micro-batch (acts->tokens, targets, dloss set); then
// zero_step_end, which updates. Both only queue work. zero_step_wait, due before the next step
// begins, returns when the step's results are on the host: its loss (a sum over tokens), its
// gradient's norm, and whether the update was skipped because the norm is not finite.
struct StepResult {
    double loss_sum;
    float grad_norm;
    bool skipped;
};
void zero_step_micro(struct Zero *z, struct Acts *acts);
void zero_step_end(struct Zero *z, const struct StepState *settings);
struct StepResult zero_step_wait(struct Zero *z);

// The loss of one batch without a backward pass: the sum over its tokens. Waits for it.
double zero_eval(struct Zero *z, struct Acts *acts);

// ---- param.c ----
void params_resident(struct Zero *z, int u, int g);
// Fresh fp32 master weights and moments of 0; then the parameters.
void zero_init_weights(struct Zero *z, uint64_t seed);
// parameters := master weights, after either was loaded.
void zero_store_params(struct Zero *z);
float *zero_master(struct Zero *z, int g); // fp32 weights of this rank, on the device
size_t zero_master_numel(const struct Zero *z, int g);
size_t zero_master_begin(const struct Zero *z, int g); // its first element in the group
uint64_t zero_weights_hash(struct Zero *z); // of this rank's weights; waits for the device

// ---- grad.c ----
void grads_resident(struct Zero *z, int u, int g);
void grads_all_reduce_at_end(struct Zero *z, int u, int g);

// ---- opt.c ----
void update_begin(struct Zero *z); // waits for the reductions, computes norm and clip factor
void update_whole(struct Zero *z, int g);

#endif
