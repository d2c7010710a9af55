// ZeRO: where each kind of state is kept, and what happens to it around every unit of the walk.
//
// Three kinds of state belong to a group of parameters: the parameters in the dtype of the forward
// pass, their gradients, and the optimizer's fp32 master weights and moments. A STAGE of ZeRO says
// which of them each rank keeps only its shard of, and is one row of a table (stages.c): the hops
// by which a group's bytes travel (hop.h). The walk (step.c) queues them at the
// same places for every stage, and knows nothing else.
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
// Here all state is on the device. What is elsewhere is zero/offload's: when a group is opened,
// its BACKING adds hops to the group's chains, and the walk never asks.
//
// Read next: step.c (the walk), hop.h and stages.c (the table), chain.c, param.c, grad.c and opt.c
// (its entries), slots.c; backing.h and open.c, where state gets its places;
// zero/offload/offload.h.
#ifndef ZERO_ZERO_H
#define ZERO_ZERO_H
#include "kernels/judged.h"
#include "kernels/kernels.h"
#include "kernels/mark.h"
#include "kernels/tier.h"
#include "model/params.h"
#include "zero/comm/comm.h"
#include "zero/hop.h"

struct Model;
struct Acts;
struct Grad;
struct MasterOps;
struct Pipe;
struct Zero;

// What the user asked for. Tiers and comm are the caller's.
struct ZeroOptions {
    int stage;
    struct Comm *dp; // the ranks that a placement is cut over
    size_t nmicro, prefetch;
    enum Dtype dtype; // parameters
    enum Dtype grad_dtype, moments_dtype;
    bool quantized_weights;              // as they travel (zero/wire)
    const struct MasterOps *masters;     // NULL: in fp32; others with dtype bf16 alone
    struct Tier *tier;                   // (NTIER)
    struct LossScaleSettings loss_scale; // for fp16 alone
};

struct Placement {
    struct Comm *over; // its ranks keep a shard of every group each: dp; NULL: each rank keeps all
    struct Tier *tier;
    enum Dtype dtype;
};

// What the options mean.
struct ZeroPlan {
    struct Placement param, grad, optimizer;
    enum Dtype moments_dtype;        // of the optimizer's m and v
    const struct MasterOps *masters; // of its master weights
    bool own_master;                 // they are not simply the parameters, in fp32
    bool own_part;                   // whole weights lie beside this rank's part as it was made
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
    bool reads;         // the group's weights
    bool stays;         // and the next visit reads them, too
    bool keeps;         // forward: for a backward pass that follows
    bool gradient_ends; // backward: no later visit of the micro-batch adds to the group's gradient
    bool reduced_late;  // and that is reduced behind the pass
};

// The visits of one micro-batch in one direction, in the list of those that this rank makes in a
// step; and where its layers are a stage of a pipeline (zero/pipe), how that hangs together.
struct Pass {
    bool backward;
    size_t micro;
    bool receives; // what it works on must come from a neighbour first
    bool sends;    // what it has made goes to a neighbour,
    bool swaps;    // from where at the same time comes what the next pass works on
    const struct Visit *visit;
};

// One row of the stage table.
enum { STAGE_HOPS = 2 };
struct ZeroStage {
    bool shards_param, shards_grad, shards_optimizer;
    const struct Hop *hops[NCHAIN][STAGE_HOPS];
};

// A buffer that one owner has after another: a group, for weights that were gathered or fetched, or
// a gradient until it is reduced; or a layer, for what it keeps for its backward pass.
struct Slot {
    struct Block block;
    int owner;           // whose it is now; -1: nobody's
    bool fill_queued;    // the copy that fills it has been, or there is none
    int next;            // link of the chain that fills it
    struct Mark arrived; // all of it is here
    struct Mark drained; // what was here has been read for the last time
};

// A ring of slots: owner i has slot i % count. For groups there is one more, slot 0 for those of
// the model's ends, which are larger; the blocks' have slots 1 .. by turns.
struct Slots {
    const struct Params *params; // of these groups; NULL: owners are layers
    int count;
    struct Slot *slot;
};

// The state of one group on this rank.
struct GroupState {
    struct Chain chain[NCHAIN]; // how its bytes travel
    int update_next;            // link of UPDATE
    struct Slots *slots;    // where its weights come when a unit reads them; NULL: they are whole
    struct Slots *buckets;  // where its gradient is made; NULL: where it is kept
    struct Block *messages; // where what ranks send of its weights arrives packed; NULL: in the
                            // whole, as it is
    size_t message_bytes;   // of a rank
    struct Slots *shards;   // where its reduced shard is, on its way to another tier; NULL: kept
    struct Tier *param_tier, *grad_tier, *optimizer_tier;
    size_t grad_begin, grad_numel; // the elements whose gradient has a block of its own
    struct Block param;            // padded (or a shard's) elements, plan.param.dtype
    struct Block part;             // likewise, this rank's, where plan.own_part
    struct Block grad;             // grad_numel elements, plan.grad.dtype
    struct Block master;           // of the masters' format; none where `newest` is all of it
    struct Block m, v;             // plan.moments_dtype
    struct Block *newest; // rounded weights that an update makes: zero_own_block, or another of
                          // this rank's part alone; NULL: it makes none
    const struct MasterOps *masters;
    struct Mark updated;  // this rank's part of param is that of the newest update
    struct Mark gathered; // after it, the other ranks' parts have come
};

// The operations for state that is kept elsewhere than on the device (backing.h).
struct BackingOps;
struct Backing {
    const struct BackingOps *ops;
    struct Device *host; // a second device, whose queues may wait for the core's marks; or NULL
    void *context;       // of ops
};
extern const struct Backing zero_on_device; // the core's own

// Of one step, in the host's memory: what it sends to the device, and what comes back. One is
// written while the host reads that of the step before, and a delayed update the one before that.
enum { HOST_COPIES = STEPS_AHEAD + 2 };
struct HostCopy {
    struct StepState *sent, *received_control;
    uint64_t *sent_word;
    char *received; // the rows of all ranks' reports
    struct Event *received_all;
};

struct Zero {
    struct ZeroPlan plan;
    const struct ZeroStage *stage;
    struct Backing backing;
    struct Device *device;
    struct Comm *all;        // every rank of the job: over whom gradients are summed
    struct Comm *dp;         // of these the ranks that a placement is cut over: all, or some
    struct Comm *replicas;   // and the ranks that keep the same shards as this one; NULL: it alone
    int tp_size;             // ranks that have parts of one model
    const struct Pipe *pipe; // of which this rank is a stage; zero_no_pipe: of none
    struct Model *model;
    const struct Params *params;
    struct GroupState *state; // per group
    void **w;                 // per group: whole weights, valid between ready and released
    struct Grad *dw;          // per group: whole gradient, likewise
    struct Slots weights, buckets;
    struct Visit *train, *forward; // of a step, of a forward pass alone; each ends with unit -1
    struct Pass *pass, alone;      // of a step: npass; and the forward pass alone
    size_t npass;
    uint64_t seed;    // of what is random in the run
    size_t micro;     // of this step, from 0: backward passes that were made
    uint64_t step;    // queued so far, with those whose update was skipped
    uint64_t known;   // steps whose results the host has read
    uint64_t updates; // that the known steps made
    struct LossScaleSettings loss_scale_settings;
    struct LossScale loss_scale; // after the known steps
    size_t skipped_at_least;     // known steps in a row, skipped with the least loss scale
    struct Best best;            // as a checkpoint of this run keeps it

    struct Block control_block;
    struct StepState *control;              // on the device
    size_t report_bytes;                    // of one row
    char *reports;                          // on the device: (size) rows of struct RankReport
    struct HostCopy host_copy[HOST_COPIES]; // in turn
    struct Event *word_sent, *loss_summed, *reported, *clipped, *settings_used;
    struct HopWatch *watch;               // NULL: nobody
    struct Event *handed_over[2][NQUEUE]; // weights, a gradient: from that queue to another
};

// Of the step that is queued now; between steps, that of the next. And of the step before it.
static inline struct HostCopy *zero_host_copy(struct Zero *z) {
    return &z->host_copy[z->step % HOST_COPIES];
}
static inline struct HostCopy *zero_last_copy(struct Zero *z) {
    return &z->host_copy[(z->step - 1) % HOST_COPIES];
}

// ---- open.c ----

// What the options mean where all state is on the device. Errors: -EINVAL for what is not built.
int zero_plan(struct ZeroPlan *out, const struct ZeroOptions *options, struct Error *e);

// Takes all memory. What z owns already: device, groups of ranks, model, params, and backing
// (zero_on_device where all state is there). Errors: -ENOMEM where a tier is too small; zero_close
// is due in any case.
int zero_open(struct Zero *z, const struct ZeroOptions *options, const struct ZeroPlan *plan,
              struct Error *e);
void zero_close(struct Zero *z);
void zero_open_mark(struct Zero *z, struct Mark *m, const char *name);

// ---- stages.c ----
const struct ZeroStage *zero_stage(int stage); // NULL: not built

// What happens around a visit: the operations that serve its group, and what the backing does with
// what the unit keeps.
void zero_before_forward(struct Zero *z, const struct Visit *v);
void zero_after_forward(struct Zero *z, const struct Visit *v);
void zero_before_backward(struct Zero *z, const struct Visit *v);
void zero_after_backward(struct Zero *z, const struct Visit *v);

// ---- step.c: one training step ----

// Makes `count` visits of one direction and micro-batch.
void walk_forward(struct Zero *z, const struct Visit *first, int count, struct Acts *acts);
void walk_backward(struct Zero *z, const struct Visit *first, int count, struct Acts *acts);

// A step is: zero_step_begin with its settings, whose loss scale is z's own; zero_step_pass for
// each of z->pass (acts->tokens, targets, dloss set; starts and first, where it is packed); then
// zero_step_end, which updates. They queue work, and wait only as mark.h says. zero_step_wait
// returns when the results of the oldest step that it has not returned yet are on the host: its
// loss (a sum over tokens, not scaled), its gradient's norm, and whether the update was skipped
// because the norm is not finite. All ranks find the same norm, so all of them skip, and all make
// the same of the loss scale. A step may be queued while the results of STEPS_AHEAD before it are
// not known: then no device waits. What else is done with z, but reading, wants all results known.
struct StepResult {
    uint64_t step; // its number, from 1
    float lr;
    double loss_sum; // over the tokens of all ranks
    float grad_norm;
    bool skipped;
    uint64_t words;              // of all ranks' hosts (`word` below), or-ed
    struct LossScale loss_scale; // that this step had; zeroed where there is none
};
void zero_step_begin(struct Zero *z, const struct StepState *settings);
void zero_step_pass(struct Zero *z, const struct Pass *p, struct Acts *acts);
void zero_step_end(struct Zero *z, uint64_t word);
struct StepResult zero_step_wait(struct Zero *z);

// Forward alone, as acts->mode says: for samples. All ranks make the same calls.
void zero_forward(struct Zero *z, struct Acts *acts);

// The loss of one batch on each rank without a backward pass: the sum over all ranks' tokens, or
// over those of the ranks whose `counts` is set. Waits for it.
struct StepResult zero_eval(struct Zero *z, struct Acts *acts, bool counts, uint64_t word);

// The count of updates and the loss scale, which were set anew, to the device. Waits.
void zero_send_counts(struct Zero *z);

// ---- reports.c: see report.h, too ----
// Hands `mine` to all ranks: all[r] becomes rank r's. Waits for it.
void zero_share(struct Zero *z, uint64_t mine, uint64_t *all);

// 0 if all ranks say 0, else the error (a negative errno) of the lowest rank that does not.
int zero_agree(struct Zero *z, int err);

// ---- param.c ----
// Around each visit that reads weights: z->w[g] is the whole group between ready and released.
// ahead: for a visit to come, as soon as one of the `prefetch` visits before it is queued.
void weights_ahead(struct Zero *z, const struct Visit *v);
void weights_ready(struct Zero *z, const struct Visit *v);
void weights_released(struct Zero *z, const struct Visit *v);
void weights_publish(struct Zero *z, int g); // what ranks updated, to all that keep the whole
// The buffers of weights that this rank has made: its part, and the whole around it; in a slot,
// which is taken, where they are kept elsewhere.
struct HopArgs weights_args(struct Zero *z, int g);
void weights_args_done(const struct HopArgs *a);
// Where what ranks send of the weights arrives.
static inline char *weights_arrive(const struct Zero *z, const struct HopArgs *a) {
    const struct Block *messages = z->state[a->group].messages;
    return messages ? messages->mem : a->mem[BUFFER_WHOLE];
}
extern const struct Hop hop_all_gather;

// ---- grad.c ----
// Before a backward visit: z->dw[g] is where its gradient goes. begin: its buffers are taken, and
// the sum so far is on its way there; as soon as the visit before is queued, or with the visit.
void gradient_begin(struct Zero *z, int g);
void gradient_place(struct Zero *z, const struct Visit *v);
// Behind the visit that completes it: the hops of its chain; it has no buffers any more.
void gradient_reduce(struct Zero *z, const struct Visit *v);
extern const struct Hop hop_all_reduce, hop_reduce_scatter, hop_grad_norm;

// ---- opt.c ----
void update_begin(struct Zero *z); // waits for the reductions, computes norm and clip factor
// The update of group g, and what follows it. ahead: as far as it is not for later.
void update_group(struct Zero *z, int g, bool ahead);
extern const struct Hop hop_adamw;
// Of this rank's part of group g, but for its settings; and such an update, on the device.
struct AdamW update_of(struct Zero *z, int g);
void update_run(struct Zero *z, struct AdamW *a);

// ---- slots.c ----
struct SlotsSpec {
    bool groups;       // are the owners; else layers
    int turns;         // slots of blocks, or layers
    size_t bytes[2];   // of a slot for the ends, and of one of these
    struct Tier *tier; // NULL: they are at mem, one after another
    char *mem;
    const char *purpose;
    const char *mark_names[2]; // names of arrived, drained; NULL: never recorded
};
int slots_open(struct Zero *z, struct Slots *s, const struct SlotsSpec *spec, struct Error *e);
void slots_close(struct Slots *s);
struct Slot *slots_find(const struct Slots *s, int owner); // NULL: it has none
bool slots_taken(const struct Slots *s, int owner);        // by this owner, or another
struct Slot *slots_take(const struct Slots *s, int owner); // must be free

// ---- state.c (the rest of it: state.h) ----

// This rank's part of what is so placed: where it begins in group g, and how many elements it has.
// owned: of the optimizer state. shard: of a gradient, when it has been reduced.
static inline size_t zero_part_numel(const struct Zero *z, const struct Placement *p, int g) {
    return z->params->group[g].padded / (p->over ? (size_t)p->over->size : 1);
}
static inline size_t zero_part_begin(const struct Zero *z, const struct Placement *p, int g) {
    return p->over ? zero_part_numel(z, p, g) * (size_t)p->over->rank : 0;
}
static inline size_t zero_owned_numel(const struct Zero *z, int g) {
    return zero_part_numel(z, &z->plan.optimizer, g);
}
static inline size_t zero_owned_begin(const struct Zero *z, int g) {
    return zero_part_begin(z, &z->plan.optimizer, g);
}
// What this rank is to tell of its shard: nothing where another one tells the same; and of a
// group's.
static inline bool zero_tells(const struct Zero *z) {
    return !z->replicas || z->replicas->rank == 0;
}
static inline bool zero_tells_group(const struct Zero *z, int g) {
    return zero_tells(z) && !z->params->group[g].copy;
}
static inline size_t zero_shard_numel(const struct Zero *z, int g) {
    return z->params->group[g].padded / (size_t)z->dp->size;
}
// Where this rank's updates of parameters go: a block of group g, and the element there.
struct Block *zero_own_block(struct Zero *z, int g);
size_t weights_own_offset(const struct Zero *z, int g);
// Of that part, for struct AdamW; NULL: not in memory, or there is none.
void *zero_master(struct Zero *z, int g);
void *zero_newest(struct Zero *z, int g);

#endif
