// ZeRO: where each kind of state lies, and what happens to it around every unit of the walk.
//
// Three kinds of state belong to a group of parameters: the parameters in the dtype of the forward
// pass, their gradients, and the optimizer's fp32 master weights and moments. A PLACEMENT says for
// one kind whether each rank keeps only its shard, in which tier, and in which format. A STAGE of
// ZeRO is three booleans (what is sharded) and one row of a table (stages.c): what to do before and
// after a unit's forward and backward pass, and how to update. The walk (step.c) calls that row and
// knows nothing else.
//
// What does not lie on the device is OFFLOADED: it comes there only while the walk needs it,
// through the same buffers in which shards are gathered (Ren et al. 2021, ZeRO-Offload, arXiv
// 2101.06840; Rajbhandari et al. 2021, ZeRO-Infinity, arXiv 2104.07857). Offloaded optimizer state
// stays where it is: the host updates it, beside the device's next forward pass.
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
// entries); for offload move.h, then offload/update.c and offload/activations.h.
#ifndef ZERO_ZERO_H
#define ZERO_ZERO_H
#include "kernels/kernels.h"
#include "kernels/tier.h"
#include "model/params.h"
#include "zero/comm/comm.h"
#include "zero/offload/activations.h"
#include "zero/loss_scale.h"
#include "zero/offload/move.h"

struct Model;
struct Acts;
struct Grad;
struct Zero;

struct Placement {
    bool sharded; // each rank keeps its 1/size of every group
    struct Tier *tier;
    enum Dtype dtype;
};

static inline bool lies_on(const struct Placement *p, enum TierKind kind) {
    return p->tier->kind == kind;
}

struct ZeroPlan {
    struct Placement param, grad, optimizer;
    enum Dtype moments_dtype; // of the optimizer's m and v; its master weights are fp32
    // Groups from here on have gradients and optimizer state where grad and optimizer say; those
    // before it on the device. ngroup: nothing of them is offloaded.
    int offload_from;
    // fp32 master weights apart from the parameters: not where those are fp32 anyway, and lie in
    // the same place.
    bool own_master;
    bool delayed;         // updates come one step late,
    uint64_t delay_after; // from this step on
    size_t nmicro;        // micro-batches per step
    size_t prefetch;      // units whose weights are fetched ahead of the walk
};

// What the user asked for. Tiers and devices are the caller's.
struct ZeroOptions {
    int stage;
    size_t nmicro, prefetch;
    enum Dtype dtype; // parameters
    enum Dtype grad_dtype, moments_dtype;
    struct Tier *tier;                   // (NTIER)
    struct Device *host;                 // a CPU device; NULL where nothing is offloaded
    enum TierKind param_tier, opt_tier;  // where parameters and optimizer state lie
    double offload_ratio;                // the share of optimizer state that lies in opt_tier
    bool delayed;                        // updates come one step late,
    uint64_t delay_after;                // from this step on
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

// Whether the host has made new weights that the walk does not see yet.
enum Pending {
    PENDING_NOT,
    PENDING_NOW,  // the next walk installs them
    PENDING_LATE, // the end of the next step does
};

// The state of one group on this rank.
struct GroupState {
    struct Block param;   // padded (or a shard's) elements, plan.param.dtype
    struct Block grad[2]; // the same, plan.grad.dtype; [1] is for updates that come late
    struct Block master;  // fp32; none where the parameters are the master weights
    struct Block m, v;    // plan.moments_dtype
    struct Block fresh;   // host memory: new weights of this rank's part, before they are installed
    struct Mark updated;  // this rank's part of param is that of the newest update
    struct Mark gathered; // after it, the other ranks' parts have come
    struct Mark reduced[2]; // an offloaded gradient is in its place
    struct Mark computed;   // the host has made new weights: in fresh, or in param
    struct Mark kept;       // the host's update is on disk
    enum Pending pending;
};

// A buffer for one whole group, used by one group after another: for weights that were gathered or
// fetched, or for a gradient until it is reduced; or for a reduced shard on its way to the host.
struct Slot {
    struct Block block;
    struct Landing landing; // for weights that lie on NVMe
    int group;              // whose it is now; -1: nobody's
    bool complete;          // weights: the copy into it has been queued, too
    struct Mark own;        // in: this rank's part of the weights, or the sum so far, is here
    struct Mark filled;     // weights: all of them are here. Gradient: it may be written again
    struct Mark drained;    // what was here has been read for the last time
};

// Slot 0 is for group 0 alone, which is larger than the others and is used at both ends of the
// walk. The blocks take slots 1 .. by turns.
struct Slots {
    int count; // 0: what a rank keeps is whole, and is used where it lies
    int next;  // among 1 .. count - 1
    struct Slot *slot;
};

// What the host is about (offload/update.c).
enum { HOST_BUFFERS = 4 }; // pieces of optimizer state on their way between disk and host
struct HostBuffer {
    struct Block block; // master weights, m, v, and parameters where those go to NVMe, too
    struct Mark read, computed, written;
};
struct HostUpdate {
    int next; // first group that is due and not queued
    bool late;
    int turn;                     // which gradients
    const struct HostEnd *end;    // of the step whose update it is
    const struct HostEnd *newest; // of the last step that has come to its end
    struct HostBuffer buffer[HOST_BUFFERS];
    size_t piece; // elements
    uint64_t pieces;
    uint64_t label_step;
};

// What each rank tells the others at the end of a step, or of a batch of validation: a row of a
// table in device memory that is all_gathered. Norm and loss are summed from it in rank order.
struct RankReport {
    double loss_sum;  // over this rank's tokens
    uint64_t word;    // a word from this rank's host, such as its wish to stop
    double squares[]; // (ngroup): squared norm of this rank's shard of each gradient
};

// The host's ends of the in and the out queue: what a step sends, and what comes back from it. One
// is written while the host looks at the one before, and a late update reads the one before that.
enum { HOST_ENDS = STEPS_AHEAD + 2 };
struct HostEnd {
    struct StepState *sent, *received_control;
    uint64_t *sent_word;
    char *received; // the rows of all ranks' reports
    struct Event *received_all;
    struct Mark told; // the same, for updates that the host makes
};

enum { ZERO_HOPELESS = 10 };

struct Zero {
    struct ZeroPlan plan;
    const struct ZeroStage *stage;
    struct Device *device;
    struct Device *host; // NULL: nothing is offloaded
    struct Comm *dp;     // the data-parallel group
    struct Model *model;
    const struct Params *params;
    struct GroupState *state; // per group
    void **w;                 // per group: whole weights, valid between before_ and after_
    struct Grad *dw;          // per group: whole gradient, likewise
    struct Slots weights, buckets, shards;
    struct Mover mover;
    struct HostUpdate *host_update; // NULL: the device makes all updates
    struct Keep *keep;              // NULL: activations stay on the device
    size_t micro;                   // of this step, from 0
    uint64_t step;                  // queued so far, with those whose update was skipped
    uint64_t known;                 // of these, steps whose result the host has looked at,
    uint64_t updates;               // and the updates that they made
    struct LossScaleSettings loss_scale_settings;
    struct LossScale loss_scale; // after the known steps
    size_t hopeless;       // known steps in a row, skipped with the least loss scale; enough is
                           // ZERO_HOPELESS
    bool backward_follows; // the walk that goes on turns at its end

    struct Block control_block;
    struct StepState *control;          // on the device
    size_t report_bytes;                // of one row
    char *reports;                      // on the device: (size) rows of struct RankReport
    struct HostEnd host_end[HOST_ENDS]; // in turn
    struct Event *word_sent, *backward_done, *computed, *reported, *clipped, *updated, *reduced;
};

// Of the step that is queued now; between steps, that of the next. And of the step before it.
static inline struct HostEnd *zero_host_end(struct Zero *z) {
    return &z->host_end[z->step % HOST_ENDS];
}
static inline struct HostEnd *zero_last_end(struct Zero *z) {
    return &z->host_end[(z->step - 1) % HOST_ENDS];
}

// ---- zero/open.c: placements, and the memory they take ----

// What the options mean: a placement for each kind of state. params: NULL: one group, of any size.
// Errors: -EINVAL for what is not built.
int zero_plan(struct ZeroPlan *out, const struct ZeroOptions *options, const struct Params *params,
              struct Error *e);

// Errors: those of zero_plan, -ENOMEM where a tier is too small. All memory is taken here.
int zero_open(struct Zero *z, const struct ZeroOptions *options, struct Device *device,
              struct Comm *dp, struct Model *model, const struct Params *params, struct Error *e);
void zero_close(struct Zero *z);

// ---- traffic.c: what a training step moves, foretold ----

// The bytes that each collective of a training step sends from this rank: what comm.h counts,
// foretold from the stage. With Psi parameters in 2 bytes and one micro-batch, (size - 1) / size
// times 2 Psi elements at stages 0 to 2 and 3 Psi at stage 3 (the ZeRO paper, section 7), and the
// reports.
struct Traffic {
    uint64_t bytes[NCOLLECTIVE];
};
struct Traffic zero_traffic(const struct Zero *z);

// The bytes that a training step moves over the bus, and from and to the disk: what move.h counts.
// With the optimizer on the CPU of one rank, and one micro-batch in 2 bytes, 4 a parameter cross
// the bus: a gradient out and a weight in (ZeRO-Offload, section 4.1).
struct Moves {
    struct Moved forward, backward; // beside these passes, of all micro-batches
    struct Moved update;            // by an update, and the installing of what it made
};
struct Moves zero_moves(struct Zero *z);

// ---- stages.c ----
const struct ZeroStage *zero_stage(int stage); // NULL: not built

// What happens around unit u of the walk: the stage's row, to weights and gradients, and
// offload/activations.h, to what the unit keeps for its backward pass.
void zero_before_forward(struct Zero *z, int u);
void zero_after_forward(struct Zero *z, int u);
void zero_before_backward(struct Zero *z, int u);
void zero_after_backward(struct Zero *z, int u);

// ---- step.c: one training step ----

// Runs units [first, last) of one micro-batch forward, or backward in opposite order.
void walk_forward(struct Zero *z, int first, int last, struct Acts *acts);
void walk_backward(struct Zero *z, int first, int last, struct Acts *acts);

// A step is: zero_step_begin with its settings, whose loss scale is z's own; zero_step_micro for
// each micro-batch (acts->tokens, targets, dloss set); then zero_step_end, which updates. They
// queue work, and wait only as mark.h says. zero_step_wait returns when the results of the oldest
// step that it has not returned yet are on the host: its loss (a sum over tokens, not scaled), its
// gradient's norm, and whether the update was skipped because the norm is not finite. All ranks
// find the same norm, so all of them skip, and all make the same of the loss scale. A step may be
// queued while the results of STEPS_AHEAD before it are not known: then no device waits for its
// host. Whatever else is done with z, but reading its state, wants all results known.
struct StepResult {
    uint64_t step; // its number, from 1
    float lr;
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

// The count of updates and the loss scale, which were set anew, to the device. Waits.
void zero_send_counts(struct Zero *z);

// ---- reports.c ----
void reports_send_word(struct Zero *z, uint64_t word); // to this rank's row
void reports_gather(struct Zero *z);                   // queued behind the word
void reports_receive(struct Zero *z);                  // queues the copy to the host
void reports_wait(struct Zero *z);                     // gathers, receives, and waits for it
// Of what was received; the loss in the order of ranks, so that every rank has the same sum.
struct StepResult reports_sum(const struct Zero *z, const struct HostEnd *end);

// Hands `mine` to all ranks: all[r] becomes rank r's. Waits for it.
void zero_share(struct Zero *z, uint64_t mine, uint64_t *all);

// 0 if all ranks say 0, else the error (a negative errno) of the lowest rank that does not.
int zero_agree(struct Zero *z, int err);

// 0 if all ranks have the same text, else -EINVAL: this rank's, or another's, is not rank 0's. e
// then names the first such rank, on rank 0 alone.
int zero_compare(struct Zero *z, const char *text, struct Error *e);

// ---- param.c ----
void params_resident_forward(struct Zero *z, int u, int g);
void params_resident_backward(struct Zero *z, int u, int g);
void params_fetch_forward(struct Zero *z, int u, int g);
void params_fetch_backward(struct Zero *z, int u, int g);
void params_release_forward(struct Zero *z, int u, int g);
void params_fetch_next(struct Zero *z, int u); // behind unit u's backward pass
void params_release_backward(struct Zero *z, int u, int g);
void params_gather(struct Zero *z, int g); // what the ranks updated, to all of them
// The element of a group's param block where this rank's updates go.
size_t params_own_offset(const struct Zero *z, int g);

// ---- state.c: the optimizer's state as a whole: initial values, copies, the hash ----

// Fresh fp32 master weights and moments of 0; then the parameters.
void zero_init_weights(struct Zero *z, uint64_t seed);
// parameters := master weights, after either was loaded. late: that is left for the end of the next
// step, and the parameters, which were loaded, too, are in use until then.
void zero_store_params(struct Zero *z, bool late);
// Whether an update is late: the parameters are those before it, the optimizer's state is that
// after it.
bool zero_is_late(const struct Zero *z);

// This rank's part of the optimizer state: where it begins in group g, and how much it is. Whole
// groups where the optimizer is not sharded.
size_t zero_kept_begin(const struct Zero *z, int g);
size_t zero_kept_numel(const struct Zero *z, int g);
size_t zero_shard_numel(const struct Zero *z, int g);

// Elements [i, i + n) of that part as fp32, to or from memory of device_alloc_host: n <=
// STATE_CHUNK. They wait. The values that go to bf16 moments are such as came from there.
// STATE_IN_USE: the parameters, as far as this rank updates them.
enum State { STATE_MASTER, STATE_M, STATE_V, NSTATE, STATE_IN_USE = NSTATE, NSTATE_LATE };
enum { STATE_CHUNK = 1 << 20 };
void zero_read_state(struct Zero *z, int g, enum State what, size_t i, size_t n, float *out);
void zero_write_state(struct Zero *z, int g, enum State what, size_t i, size_t n, float *in);
float *zero_master(struct Zero *z, int g); // fp32 weights of that part; NULL on NVMe
struct StatePlace {
    struct Block *block;
    size_t offset; // of this rank's first element, in bytes
    enum Dtype dtype;
};
struct StatePlace zero_state_place(struct Zero *z, int g, enum State what);

void zero_sync(struct Zero *z);             // waits for all queues of both devices
uint64_t zero_weights_hash(struct Zero *z); // of all weights; all ranks call it, and wait

// ---- grad.c ----
void grads_resident(struct Zero *z, int u, int g);
void grads_bucket(struct Zero *z, int u, int g);
void grads_all_reduce_at_end(struct Zero *z, int u, int g);
void grads_reduce_at_end(struct Zero *z, int u, int g);
void grads_reduce_each(struct Zero *z, int u, int g);
int grads_turn(const struct Zero *z); // which of two gradients the step at hand makes
// The elements of a group's gradient that have a block of their own on this rank.
size_t grads_home_begin(const struct Zero *z, int g);
size_t grads_home_numel(const struct Zero *z, int g);

// ---- opt.c ----
void update_begin(struct Zero *z); // waits for the reductions, computes norm and clip factor
void update_kept(struct Zero *z, int g);
// The update of this rank's part of group g, but for its settings and the parameters.
struct AdamW update_of(struct Zero *z, int g, int turn);

// ---- offload/update.c: updates of offloaded optimizer state ----
int host_open(struct Zero *z, struct Tier *cpu, struct Error *e);
void host_close(struct Zero *z);
bool host_updates(const struct Zero *z, int g);
void host_told(struct Zero *z);           // the out queue has copied the step's settings
void host_update(struct Zero *z, int g);  // is due
void host_advance(struct Zero *z, int g); // queues what is due of groups 0 .. g, and a little more
void host_install(struct Zero *z, int g); // new weights, if there are any, become the walk's
void host_install_late(struct Zero *z);   // of all groups, also those that are to come late
void host_finish(struct Zero *z);         // queues all that is due
struct Moved host_moves(struct Zero *z, int g); // what one update of group g moves, foretold

// ---- slots.c ----
struct SlotsSpec {
    int blocks; // slots for groups other than 0
    bool whole; // they hold whole groups, else shards
    enum Dtype dtype;
    enum Tag tag;
    const char *purpose;
    struct Tier *landing; // of weights on NVMe; NULL: none
};
int slots_open(struct Zero *z, struct Slots *s, const struct SlotsSpec *spec, struct Tier *tier,
               struct Error *e);
void slots_close(struct Slots *s);
struct Slot *slots_find(struct Slots *s, int g); // NULL: group g is in none
struct Slot *slots_take(struct Slots *s, int g); // the one whose turn it is

#endif
