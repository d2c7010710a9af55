// The core of ZeRO: where a rank keeps each kind of state, and what happens to it in a step.
//
// A group of parameters has three kinds of state: the parameters in the dtype of the forward pass,
// their gradients, and the optimizer's fp32 master weights and moments. A STAGE of ZeRO says which
// of these are sharded over the ranks. It is one row of a table (stages.c), which lists the hops by
// which a group's bytes travel (hop.h). The walk (step.c) queues the hops at the same points for
// every stage, and knows nothing else about stages.
//
// State is sharded by rank: of every group, rank r keeps elements [r n, (r + 1) n), where n =
// padded / size. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter
// models", 2020 (arXiv 1910.02054), sections 5-7.
//
// The walk runs UNITS: 0 is the embedding, 1 .. L the blocks, L + 1 the head. The parameters of a
// unit are a GROUP, one buffer; the table of units (model/params.h) says which units share a group.
// A VISIT is one unit's forward or backward pass of one micro-batch. The list of visits is known
// before a step begins, so the next weights can be fetched ahead.
//
// These files handle state on the device. zero/offload keeps it elsewhere: when a group is opened,
// its BACKING adds hops to the group's chains. Of the hops' files only param.c and opt.c ask which
// tier that is.
//
// Read next: step.c (the walk), hop.h and stages.c (the table), chain.c, shard.h, param.c, grad.c
// and opt.c (the hops), slots.c, open.c; zero/offload/offload.h. Other rooms call engine.h.
#ifndef ZERO_ZERO_H
#define ZERO_ZERO_H
#include "kernels/judged.h"
#include "kernels/kernels.h"
#include "zero/backing.h"
#include "zero/comm/comm.h"
#include "zero/hop.h"
#include "zero/slots.h"

struct Placement {
    struct Comm *shard_group; // (dp) its ranks each keep one shard; NULL: each rank keeps all
    struct Tier *tier;
    enum Dtype dtype;
};

// The placements and formats that follow from struct ZeroOptions.
struct ZeroPlan {
    struct Placement param, grad, optimizer;
    enum Dtype moments_dtype;        // of AdamW's m and v
    const struct MasterOps *masters; // the format of the master weights
    const struct PackOps *pack;      // of groups that are kept packed (params_packs)
    int host_threads;                // of the host's kernels, between steps
    bool has_master;                 // false: fp32 parameters are their own master weights
    bool inference;                  // there are no gradients and no optimizer state
    bool unquantized_shard;          // a rank keeps its own shard unquantized too (qwZ, stages 1-2)
    bool weight_slots;               // a group is fetched whole into a slot when a unit needs it
    bool buckets;                    // a backward pass writes its gradient into a bucket
    size_t nmicro;                   // micro-batches per step
    size_t prefetch;                 // number of visits ahead of the walk whose weights are fetched
};

// One unit's forward or backward pass of one micro-batch.
struct Visit {
    int unit, ngroup, group[UNIT_GROUPS]; // the groups whose weights the unit reads
    int trained;                          // the one of its groups that is trained; -1: none
    bool backward;
    size_t micro;
    bool keep_resident; // the next visit reads them too, so they are not released
    bool saves_acts;    // forward: keeps activations for the backward pass
    bool grad_complete; // backward: no later visit of the micro-batch adds to the trained group's
                        // gradient
    bool reduced_after_pass; // and the reduction is queued after the pass (step.c)
};

// One row of the stage table.
enum { STAGE_HOPS = 2 };
struct ZeroStage {
    bool shards_param, shards_grad, shards_optimizer;
    const struct Hop *hops[NCHAIN][STAGE_HOPS];
};

// The state of one group on this rank.
struct GroupState {
    struct Chain chain[NCHAIN]; // how its bytes travel
    int update_next;            // link of UPDATE to run next: offload has run those before
    struct Slots *slots;    // where a unit's weights are gathered; NULL: the rank keeps them whole
    struct Slots *buckets;  // where its gradient is made; NULL: in `grad`
    struct Block *messages; // receives the ranks' packed shards of its weights; NULL: they arrive
                            // as they are, in the whole
    size_t message_bytes;   // of one rank's shard of the weights, as it travels
    struct Slots *shards;   // staging of its reduced shard on the way to another tier; NULL: none
    struct Tier *param_tier, *grad_tier, *optimizer_tier;
    size_t grad_begin, grad_numel; // the elements of the group whose gradient is in `grad`
    struct Block param;            // padded (or a shard's) elements, in plan.param.dtype
    struct Block unquantized;      // this rank's shard, likewise, if plan.unquantized_shard
    struct Block grad;             // grad_numel elements, in plan.grad.dtype
    struct Block master;           // in the format of `masters`; empty if `update_dst` serves
    struct Block m, v;             // in plan.moments_dtype
    struct Block *update_dst; // where an update writes its rounded weights: this rank's part of
                              // param, or a block of its own; NULL: it makes none
    const struct MasterOps *masters;
    struct Mark updated;  // the newest update is in this rank's part of param
    struct Mark gathered; // and after it the other ranks' parts have arrived
};

struct Zero {
    struct ZeroPlan plan;
    const struct ZeroStage *stage;
    struct Backing backing;
    struct Device *device;
    struct Comm *all;         // every rank of the job; they share reports
    struct Comm *shard_group; // of these, the ranks over which state is sharded: all, or some
    struct Model *model;
    const struct Params *params;
    struct GroupState *state; // per group
    void **w;                 // per group: its whole weights, valid from fetch to release
    struct Grad *dw;          // per group: its whole gradient, likewise
    struct Slots weights[NRING], buckets[NRING];
    struct Visit *step_visits, *forward_visits; // the latter of a forward pass alone; unit -1: end
    struct Pass *pass, *forward_pass;           // (npass) of a step; a forward pass alone
    size_t npass;
    uint64_t seed;                        // of everything random in the run
    bool reads_base, reads_adapters;      // with adapters: which weights are read next, not made
    uint64_t base_hash;                   // of the weights that adapters are added to; 0: none are
    size_t backwards_done;                // micro-batches whose backward pass this step has queued
    uint64_t step;                        // steps queued so far, skipped updates included
    uint64_t known;                       // steps whose results the host has read
    struct Event *handed_over[2][NQUEUE]; // [weights, gradient]: that queue hands them to another
    struct HopWatch *watch;               // NULL: no callbacks around hops

    // Settings and results of a step (engine.h), and the job's other dimensions.
    struct LossScaleSettings loss_scale_settings;
    struct LossScale loss_scale; // as of the known steps
    size_t skipped_at_least;     // known steps in a row that were skipped at the least loss scale
    uint64_t updates;            // made by the known steps
    struct Best best;            // best validation so far, for checkpoints
    struct StepState *control;   // on the device
    struct Reports *reports;     // what ranks tell each other at a step's end
    const struct Parallel *parallel;
};

// ---- stages.c ----
const struct ZeroStage *zero_stage(int stage); // NULL: there is no such stage

// ---- param.c ----
// Called around each visit that reads weights, for each of its groups: z->w[g] is the whole group
// from fetch to release. weights_prefetch begins it for a later visit, up to `prefetch` early.
void weights_prefetch(struct Zero *z, const struct Visit *v, int g);
void weights_fetch(struct Zero *z, const struct Visit *v, int g);
void weights_release(struct Zero *z, const struct Visit *v, int g);
char *weights_gather_target(const struct Zero *z, const struct HopArgs *a); // all shards go there
extern const struct Hop hop_all_gather;

// ---- grad.c ----
// begin takes the buffers of a gradient and queues the loading of the sum so far; set_target, for a
// backward visit, sets z->dw[g] of the trained group to where its gradient goes; reduce queues
// chain REDUCE after the visit that completes it, and gives the buffers back.
void gradient_begin(struct Zero *z, int g);
void gradient_set_target(struct Zero *z, const struct Visit *v);
void gradient_reduce(struct Zero *z, const struct Visit *v);
extern const struct Hop hop_all_reduce, hop_reduce_scatter, hop_grad_norm; // the last: reports.c

// ---- opt.c ----
void weights_publish(struct Zero *z, int g); // sends updated parts to the ranks that keep the whole
bool update_is_on_device(const struct Zero *z, int g); // its optimizer state is on the device
void update_group(struct Zero *z, int g); // queues UPDATE from update_next, and PUBLISH
extern const struct Hop hop_adamw;

#endif
