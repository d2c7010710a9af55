// ZeRO: where each kind of state is kept, and what happens to it around every unit of the walk.
//
// Three kinds of state belong to a group of parameters: the parameters in the dtype of the forward
// pass, their gradients, and the optimizer's fp32 master weights and moments. A STAGE of ZeRO says
// which of them each rank keeps only its shard of, and is one row of a table (stages.c): the hops
// by which a group's bytes travel (hop.h). The walk (step.c) queues them at the same places for
// every stage, and knows nothing else.
//
// What is sharded is cut by rank: of every group rank r keeps elements [r n, (r + 1) n), n = padded
// / size. Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter
// models", 2020 (arXiv 1910.02054), sections 5-7.
//
// The walk runs UNITS: 0 is the embedding, 1 .. L the blocks, L + 1 the head. The parameters of a
// unit are a GROUP, one buffer; the table of units (model/params.h) says which share one. A VISIT
// is one unit's forward or backward pass of one micro-batch. The list of visits is known before a
// step begins, so the next weights can be fetched ahead.
//
// Here all state is on the device. What is elsewhere is zero/offload's: when a group is opened, its
// BACKING adds hops to the group's chains, and the walk never asks.
//
// Read next: step.c (the walk), hop.h and stages.c (the table), chain.c, param.c, grad.c and opt.c
// (the hops), slots.c, open.c; zero/offload/offload.h. The rest of the program calls engine.h.
#ifndef ZERO_ZERO_H
#define ZERO_ZERO_H
#include "kernels/judged.h"
#include "kernels/kernels.h"
#include "zero/backing.h"
#include "zero/comm/comm.h"
#include "zero/hop.h"
#include "zero/slots.h"

struct Model;
struct Acts;
struct Grad;
struct HostCopy;
struct MasterOps;
struct Parallel;
struct Pass;
struct Zero;

struct Placement {
    struct Comm *shard_group; // ranks that keep a shard of every group each; NULL: each keeps all
    struct Tier *tier;
    enum Dtype dtype;
};

// What the options mean.
struct ZeroPlan {
    struct Placement param, grad, optimizer;
    enum Dtype moments_dtype;        // of the optimizer's m and v
    const struct MasterOps *masters; // of its master weights
    bool has_master;                 // they are not simply the parameters, in fp32
    bool unquantized_shard;          // whole weights lie beside this rank's part as it was made
    bool weight_slots;               // groups come whole to slots, when units need them
    bool buckets;                    // gradients are made in buckets
    size_t nmicro;                   // micro-batches per step
    size_t prefetch;                 // visits whose weights are fetched ahead of the walk
};

// One unit's pass of one micro-batch.
struct Visit {
    int unit, group;
    bool backward;
    size_t micro;
    bool needs_weights; // the group's weights
    bool keep_resident; // and the next visit reads them, too
    bool saves_acts;    // forward: for a backward pass that follows
    bool grad_complete; // backward: no later visit of the micro-batch adds to the group's gradient
    bool reduced_late;  // and that is reduced behind the pass
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
    int update_next;            // link of UPDATE: those before it were run ahead
    struct Slots *slots;    // where its weights come when a unit reads them; NULL: they are whole
    struct Slots *buckets;  // where its gradient is made; NULL: where it is kept
    struct Block *messages; // where what ranks send of its weights arrives packed; NULL: in the
                            // whole, as it is
    size_t message_bytes;   // of a rank
    struct Slots *shards;   // where its reduced shard is, on its way to another tier; NULL: kept
    struct Tier *param_tier, *grad_tier, *optimizer_tier;
    size_t grad_begin, grad_numel; // the elements whose gradient has a block of its own
    struct Block param;            // padded (or a shard's) elements, plan.param.dtype
    struct Block unquantized;      // likewise, this rank's, where plan.unquantized_shard
    struct Block grad;             // grad_numel elements, plan.grad.dtype
    struct Block master;           // of the masters' format; none where `update_dst` is all of it
    struct Block m, v;             // plan.moments_dtype
    struct Block *update_dst; // where an update writes its rounded weights: this rank's part of
                              // param, or a block of their own; NULL: it makes none
    const struct MasterOps *masters;
    struct Mark updated;  // this rank's part of param is that of the newest update
    struct Mark gathered; // after it, the other ranks' parts have come
};

struct Zero {
    struct ZeroPlan plan;
    const struct ZeroStage *stage;
    struct Backing backing;
    struct Device *device;
    struct Comm *all;         // every rank of the job: who share reports
    struct Comm *shard_group; // of these the ranks that a placement is cut over: all, or some
    struct Model *model;
    const struct Params *params;
    struct GroupState *state; // per group
    void **w;                 // per group: whole weights, valid between ready and released
    struct Grad *dw;          // per group: whole gradient, likewise
    struct Slots weights, buckets;
    struct Visit *train, *forward; // of a step, of a forward pass alone; each ends with unit -1
    struct Pass *pass, *alone;     // of a step: npass; and the forward pass alone
    size_t npass;
    uint64_t seed;                        // of what is random in the run
    size_t micro;                         // of this step, from 0: backward passes that were made
    uint64_t step;                        // queued so far, with those whose update was skipped
    uint64_t known;                       // steps whose results the host has read
    struct Event *handed_over[2][NQUEUE]; // weights, a gradient: from that queue to another
    struct HopWatch *watch;               // NULL: nobody

    // The step's settings and results (engine.h), and what other dimensions say.
    struct LossScaleSettings loss_scale_settings;
    struct LossScale loss_scale; // after the known steps
    size_t skipped_at_least;     // known steps in a row, skipped with the least loss scale
    uint64_t updates;            // that the known steps made
    struct Best best;            // as a checkpoint of this run keeps it
    struct Block control_block;
    struct StepState *control;  // on the device
    size_t report_bytes;        // of one row
    char *reports;              // on the device: (size) rows of struct RankReport
    uint64_t *shared;           // (size): what zero_share returns
    struct HostCopy *host_copy; // (HOST_COPIES), in turn
    struct Event *word_sent, *loss_summed, *reported, *clipped, *settings_used;
    const struct Parallel *parallel;
};

// ---- stages.c ----
const struct ZeroStage *zero_stage(int stage); // NULL: not built

// Around a visit: its group's weights and gradient, and what the unit keeps.
void zero_before_forward(struct Zero *z, const struct Visit *v);
void zero_after_forward(struct Zero *z, const struct Visit *v);
void zero_before_backward(struct Zero *z, const struct Visit *v);
void zero_after_backward(struct Zero *z, const struct Visit *v);

// ---- step.c: makes `count` visits of one direction ----
void walk_forward(struct Zero *z, const struct Visit *first, int count, struct Acts *acts);
void walk_backward(struct Zero *z, const struct Visit *first, int count, struct Acts *acts);

// ---- param.c ----
// Around each visit that reads weights: z->w[g] is the whole group between ready and released.
// ahead: for a visit to come, as soon as one of the `prefetch` visits before it is queued.
void weights_ahead(struct Zero *z, const struct Visit *v);
void weights_ready(struct Zero *z, const struct Visit *v);
void weights_released(struct Zero *z, const struct Visit *v);
void weights_publish(struct Zero *z, int g); // what ranks updated, to all that keep the whole
// The weights that this rank makes: its part, and the whole around it. They are where they are
// kept; on_device: in a slot, which is taken, if that is elsewhere.
struct HopArgs weights_args(struct Zero *z, int g, bool on_device);
void weights_args_done(const struct HopArgs *a);
char *weights_arrive(const struct Zero *z, const struct HopArgs *a); // where all ranks' messages do
extern const struct Hop hop_all_gather;

// ---- grad.c ----
// Before a backward visit: z->dw[g] is where its gradient goes. begin: its buffers are taken, and
// the sum so far is on its way there; as soon as the visit before is queued, or with the visit.
void gradient_begin(struct Zero *z, int g);
void gradient_ready(struct Zero *z, const struct Visit *v);
// Behind the visit that completes it: the hops of its chain; it has no buffers any more.
void gradient_reduce(struct Zero *z, const struct Visit *v);
extern const struct Hop hop_all_reduce, hop_reduce_scatter, hop_grad_norm;

// ---- opt.c ----
bool update_is_here(const struct Zero *z, int g); // the optimizer state is: the device updates
void update_ahead(struct Zero *z, int g);         // as far as nothing is for later
void update_group(struct Zero *z, int g);         // the rest of it, then weights_publish
extern const struct Hop hop_adamw;

// ---- this rank's shards ----
// This rank's part of what is so placed: where it begins in group g, and how many elements it has.
// owned: of the optimizer state. shard: of a gradient, when it has been reduced.
static inline size_t zero_part_numel(const struct Zero *z, const struct Placement *p, int g) {
    return z->params->group[g].padded / (p->shard_group ? (size_t)p->shard_group->size : 1);
}
static inline size_t zero_part_begin(const struct Zero *z, const struct Placement *p, int g) {
    return p->shard_group ? zero_part_numel(z, p, g) * (size_t)p->shard_group->rank : 0;
}
static inline size_t zero_owned_numel(const struct Zero *z, int g) {
    return zero_part_numel(z, &z->plan.optimizer, g);
}
static inline size_t zero_owned_begin(const struct Zero *z, int g) {
    return zero_part_begin(z, &z->plan.optimizer, g);
}
static inline size_t zero_shard_numel(const struct Zero *z, int g) {
    return z->params->group[g].padded / (size_t)z->shard_group->size;
}

#endif
