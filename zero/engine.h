// ZeRO as the rest of the program uses it: opened from options, and called for steps, validation
// and samples; and the interface to the job's other dimensions.
#ifndef ZERO_ENGINE_H
#define ZERO_ENGINE_H
#include "zero/comm/grid.h"
#include "zero/shard.h"

struct Acts;

// The visits of one micro-batch in one direction: a slice of the list that this rank walks in a
// step. With pipeline parallelism (zero/pipe) also what it receives and sends.
struct Pass {
    bool backward;
    size_t micro;
    bool receives;  // its input comes in a sendrecv of its own; false: the pass before has received
                    // it, or it comes from no other pipeline stage
    bool sends;     // its output goes to a neighbour
    bool exchanges; // and the same sendrecv brings the next pass's input from there
    int nvisit;     // backward, none of units before the first that is trained
    const struct Visit *visit;
};

// The job's other dimensions: replicas, tensor parallelism, a pipeline. Each sum that they add to a
// gradient is a hop of REDUCE, in this order: tp_all_reduce of elements that are summed over the TP
// ranks (zero/tp), tied_all_reduce of a head that is the embedding (zero/pipe; after the next
// hop if only shards are kept), the stage's own over z->shard_group, replica_all_reduce
// (zero/replica).
struct Parallel {
    struct Comm *replicas; // the ranks that keep the same shards as this one; NULL: no others
    struct Grid grid;      // of all ranks
    int stages, stage;     // the pipeline's number of stages, and this rank's stage
    // list writes the passes that this rank makes in a step, two per micro-batch. receive and send
    // exchange activations or gradients with the neighbours before and after a pass.
    void (*list)(const struct Parallel *, size_t nmicro, struct Pass *out);
    void (*receive)(struct Zero *, const struct Pass *, struct Acts *);
    void (*send)(struct Zero *, const struct Pass *, struct Acts *); // and receives (`exchanges`)
    void *context;                                                   // of these functions
};
extern const struct Parallel zero_parallel_none; // each rank has all of the model

// The user's options. The tiers and the shard group are the caller's.
struct ZeroOptions {
    int stage;
    struct Comm *shard_group; // the ranks over which state is sharded
    size_t nmicro, prefetch;
    enum Dtype dtype; // parameters
    enum Dtype grad_dtype, moments_dtype;
    bool quantized_weights;              // when they travel (zero/wire)
    bool inference;                      // weights alone: no gradients, no optimizer state
    const struct MasterOps *masters;     // NULL: fp32; others only with dtype bf16
    const struct PackOps *pack;          // of a base in fewer bits
    int host_threads;                    // of the host's kernels, between steps
    struct Tier *tier;                   // (NTIER)
    struct LossScaleSettings loss_scale; // for fp16 alone
};

// A form of groups in fewer bits (zero/qlora): bytes of n elements; adds the hop that unpacks them.
struct PackOps {
    size_t (*bytes)(const struct Zero *, int g, size_t n);
    void (*attach)(struct Zero *, int g);
};

// ---- open.c ----

// Returns the plan for state that is all on the device.
struct ZeroPlan zero_plan(const struct ZeroOptions *options);

// Allocates all memory. z has its device, groups of ranks, model, params, and backing already
// (zero_on_device if all state is there). Errors: -ENOMEM where a tier is too small; call
// zero_close in any case.
int zero_open(struct Zero *z, const struct ZeroOptions *options, const struct ZeroPlan *plan,
              struct Error *e);
void zero_close(struct Zero *z);
void zero_open_mark(struct Zero *z, struct Mark *m, const char *name);

// Bytes of a group's weights: what this rank keeps, the whole, a slot for it.
size_t weights_bytes(const struct Zero *z, int g);
size_t weights_whole_bytes(const struct Zero *z, int g);
size_t weights_slot_bytes(const struct Zero *z, int g);

// ---- step.c, results.c: one training step ----

// A step is: zero_step_begin with its settings (the loss scale is z's own); zero_step_pass for each
// of z->pass (acts->tokens, targets, dloss set; starts and first, if packed); then zero_step_end,
// which updates. They queue work, and wait only as mark.h says. zero_step_wait waits for the
// results of the oldest step that it has not returned yet: its loss (a sum over tokens, not
// scaled), its gradient's norm, and whether the update was skipped because the norm is not finite.
// All ranks find the same norm, so all of them skip, and change the loss scale alike. A step may be
// queued while the results of the STEPS_AHEAD steps before it are unknown, so that no device waits.
// Whatever else changes z needs all results known.
struct StepResult {
    uint64_t step; // its number, from 1
    float lr;
    double loss_sum; // over the tokens of all ranks
    float grad_norm;
    bool skipped;
    uint64_t words;              // `word` of all ranks' hosts (below), or-ed
    struct LossScale loss_scale; // that this step had; zeroed if there is none
};
void zero_step_begin(struct Zero *z, const struct StepState *settings);
void zero_step_pass(struct Zero *z, const struct Pass *p, struct Acts *acts);
void zero_step_end(struct Zero *z, uint64_t word);
struct StepResult zero_step_wait(struct Zero *z);

// Sets the device's label to the visit's unit, direction and micro-batch.
void zero_label_visit(struct Zero *z, const struct Visit *v);

// Runs a forward pass alone, in acts->mode: for samples. All ranks make the same calls.
void zero_forward(struct Zero *z, struct Acts *acts);

// Returns the loss of one batch on each rank without a backward pass, summed over the tokens of the
// ranks that set `counts`. Waits for it.
struct StepResult zero_eval(struct Zero *z, struct Acts *acts, bool counts, uint64_t word);

// Copies the count of updates and the loss scale, which were set anew, to the device, and waits.
void zero_send_counts(struct Zero *z);

// One step's data in host memory: what it sends to the device, and what comes back. While one copy
// is written, the host reads that of the step before, and a delayed update the one before that.
enum { HOST_COPIES = STEPS_AHEAD + 2 };
struct HostCopy {
    struct StepState *sent, *received_control;
    uint64_t *sent_word;
    char *received; // the rows of all ranks' reports
    struct Event *received_all;
};

// What ranks tell each other and their hosts at a step's end (reports.c, results.c).
struct Reports {
    struct Block block; // of z->control and the rows
    size_t row_bytes;
    char *rows;                             // on the device: (all->size) of struct RankReport
    uint64_t *shared;                       // (all->size): what zero_share returns
    struct HostCopy host_copy[HOST_COPIES]; // used in turn
    struct Event *word_sent, *loss_summed, *gathered, *clipped, *settings_used;
};

// Returns the host copy of the step being queued (between steps: of the next), or of the last step.
static inline struct HostCopy *zero_host_copy(struct Zero *z) {
    return &z->reports->host_copy[z->step % HOST_COPIES];
}
static inline struct HostCopy *zero_last_copy(struct Zero *z) {
    return &z->reports->host_copy[(z->step - 1) % HOST_COPIES];
}

// ---- reports.c: see report.h, too ----
// Gives `mine` to all ranks, and waits for theirs: rank r's is at [r], until the next call.
const uint64_t *zero_share(struct Zero *z, uint64_t mine);

// Returns 0 if all ranks pass 0, else the error (a negative errno) of the lowest that does not.
int zero_agree(struct Zero *z, int err);

// ---- stages.c ----
extern const char *const zero_stage_words[]; // values of --zero; NULL ends them

// ---- opt.c ----

// Describes AdamW of this rank's part of group g, but for its settings; update_run queues it.
struct AdamW update_args(struct Zero *z, int g);
void update_run(struct Zero *z, struct AdamW *a);

// ---- state.c (the rest of it: state.h) ----

// True if this rank reports its shards, which its replicas keep as well; and for a group, if that
// is no copy of another pipeline stage's.
static inline bool zero_reports(const struct Zero *z) {
    return !z->parallel->replicas || z->parallel->replicas->rank == 0;
}
static inline bool zero_reports_group(const struct Zero *z, int g) {
    return zero_reports(z) && !z->params->group[g].copy;
}
// Return the block with the parameters of group g that this rank updates, and where they begin.
struct Block *zero_own_block(struct Zero *z, int g);
size_t weights_own_offset(const struct Zero *z, int g);
// Addresses of that element, and of arrays for struct AdamW. NULL: not in memory, or none.
void *zero_own_weights(struct Zero *z, int g);
void *zero_master(struct Zero *z, int g);
void *zero_newest_weights(struct Zero *z, int g);

#endif
