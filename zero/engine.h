// ZeRO as the rest of the program uses it: opened from options, called for steps, validation and
// samples; and what the job's other dimensions say to it. What a student of ZeRO needs is in
// zero.h.
#ifndef ZERO_ENGINE_H
#define ZERO_ENGINE_H
#include "zero/comm/grid.h"
#include "zero/zero.h"

// The visits of one micro-batch in one direction, in the list of those that this rank makes in a
// step; and where its layers are a stage of a pipeline (zero/pipe), how that hangs together.
struct Pass {
    bool backward;
    size_t micro;
    bool receives;  // its input comes in an exchange of its own; false: the pass before has brought
                    // it, or there is no stage that it comes from
    bool sends;     // what it has made goes to a neighbour
    bool exchanges; // and with that comes, from the same neighbour, the input of the next pass
    const struct Visit *visit;
};

// How the job's ranks stand in its other dimensions: replicas, tensor parallelism, a pipeline. Of
// their sums of a gradient each is a hop in REDUCE, in this order: tp_all_reduce of what
// places have only parts of a sum of (zero/tensor), tied_all_reduce of a head that is the embedding
// (zero/pipe; behind the next one where only shards are kept), the stage's own over z->shard_group,
// replica_all_reduce (zero/replica).
struct Parallel {
    struct Comm *replicas; // the ranks that keep the same shards as this one; NULL: it alone
    struct Grid grid;      // of all ranks
    int stages, stage;     // in how many stages of a pipeline its layers lie, and which is here
    // The passes that this rank makes in a step of so many micro-batches, two of each; and what its
    // neighbours and it hand each other before a pass and behind it.
    void (*list)(const struct Parallel *, size_t nmicro, struct Pass *out);
    void (*receive)(struct Zero *, const struct Pass *, struct Acts *);
    void (*send)(struct Zero *, const struct Pass *, struct Acts *); // and what `exchanges` says
    void *context;                                                   // of these
};
extern const struct Parallel zero_parallel_none; // each rank has all of the model

// What the user asked for. Tiers and comm are the caller's.
struct ZeroOptions {
    int stage;
    struct Comm *shard_group; // the ranks that a placement is cut over
    size_t nmicro, prefetch;
    enum Dtype dtype; // parameters
    enum Dtype grad_dtype, moments_dtype;
    bool quantized_weights;              // as they travel (zero/wire)
    const struct MasterOps *masters;     // NULL: in fp32; others with dtype bf16 alone
    struct Tier *tier;                   // (NTIER)
    struct LossScaleSettings loss_scale; // for fp16 alone
};

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

// ---- step.c, results.c: one training step ----

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

// Of one step, in the host's memory: what it sends to the device, and what comes back. One is
// written while the host reads that of the step before, and a delayed update the one before that.
enum { HOST_COPIES = STEPS_AHEAD + 2 };
struct HostCopy {
    struct StepState *sent, *received_control;
    uint64_t *sent_word;
    char *received; // the rows of all ranks' reports
    struct Event *received_all;
};

// Of the step that is queued now; between steps, that of the next. And of the step before it.
static inline struct HostCopy *zero_host_copy(struct Zero *z) {
    return &z->host_copy[z->step % HOST_COPIES];
}
static inline struct HostCopy *zero_last_copy(struct Zero *z) {
    return &z->host_copy[(z->step - 1) % HOST_COPIES];
}

// ---- reports.c: see report.h, too ----
// Hands `mine` to all ranks, and waits for theirs: rank r's is at [r], until the next call.
const uint64_t *zero_share(struct Zero *z, uint64_t mine);

// 0 if all ranks say 0, else the error (a negative errno) of the lowest rank that does not.
int zero_agree(struct Zero *z, int err);

// ---- stages.c ----
extern const char *const zero_stage_words[]; // of --zero; NULL behind the last

// ---- opt.c ----

// AdamW of this rank's part of group g, but for its settings; and such an update, on the device.
struct AdamW update_of(struct Zero *z, int g);
void update_run(struct Zero *z, struct AdamW *a);

// ---- state.c (the rest of it: state.h) ----

// What this rank is to tell of its shard: nothing where another one tells the same; and of a
// group's.
static inline bool zero_reports(const struct Zero *z) {
    return !z->parallel->replicas || z->parallel->replicas->rank == 0;
}
static inline bool zero_reports_group(const struct Zero *z, int g) {
    return zero_reports(z) && !z->params->group[g].copy;
}
// Where this rank's updates of parameters go: a block of group g, and the element there.
struct Block *zero_own_block(struct Zero *z, int g);
size_t weights_own_offset(const struct Zero *z, int g);
// That element; and of that part, for struct AdamW. NULL: not in memory, or there is none.
void *zero_own_weights(struct Zero *z, int g);
void *zero_master(struct Zero *z, int g);
void *zero_newest(struct Zero *z, int g);

#endif
