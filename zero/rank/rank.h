// One rank: everything it owns, opened in the order of its dependencies.
//
// zero/train/trainer.c and the tests open a rank from the same settings (zero/settings/settings.h);
// over dry tiers the same lines predict the memory of the run (zero/plan/).
#ifndef ZERO_RANK_RANK_H
#define ZERO_RANK_RANK_H
#include "model/model.h"
#include "zero/comm/grid.h"
#include "zero/hpz/hpz.h"
#include "zero/tp/tp.h"
#include "zero/offload/move.h"
#include "zero/pipe/pipe.h"
#include "zero/rank/feed.h"
#include "zero/rank/rank_device.h"
#include "zero/settings/settings.h"
#include "zero/process/request.h"
#include "zero/trace/trace.h"
#include "zero/engine.h"

#include <stdio.h>

// A text is read into a cache at most so many tokens at a time.
enum { PREFILL_TOKENS = 512 };

struct Rank {
    struct Device *device;
    struct Trace *trace; // NULL: none
    struct Trace *host_trace;
    struct ZeroTrace *zero_trace;   // of memory; NULL: none
    struct ZeroTraceRun trace_head; // what zero_trace's file says of the run
    bool borrowed;                  // the devices are the caller's
    struct Device *host;            // keeps and updates offloaded state; NULL: nothing is offloaded
    struct Tier tier[NTIER];
    struct Nvme *nvme;        // NULL: nothing is on NVMe
    struct Comm *all;         // the ranks of the job
    struct Comm *shard_group; // those that share state in shards with this one: all, or a part
    struct Parallel parallel; // the other dimensions, for z
    struct Comm *hpz_group;   // ranks of the second partition of weights; NULL: there is none
    struct Hpz *hpz;
    struct Wire wire; // between the ranks of shard_group
    struct TpGroup tp;
    struct PipeGroup pipe;
    struct Block staging; // of collectives between processes, or GPUs
    struct Params params;
    struct Model model;
    struct Acts acts;
    struct Zero zero;
    struct Feed feed;
    struct Traffic step_traffic;   // what this rank sent in its last training step
    struct Traffic sent_end;       // what it had sent at that step's end
    bool queued, traffic_known;    // a step was queued; and step_traffic is known
    uint64_t counted[HOST_COPIES]; // targets of all ranks in the last steps, in turn
    struct Moved moved_end;        // what it had moved at that step's end
    struct Moved step_moved;       // what it moved in the last step that followed another,
    bool moved_known;              // with no other move in between
    atomic_uint *requests;         // of this process; NULL: none ever
    const atomic_uint *own_word;   // this rank's other bits of the word; NULL: none
    struct Block snapshot;         // memory for a snapshot, with --save-async
};

// dry: nothing is allocated, r->tier[] counts what would be. The rank can then only be closed.
// Errors: -EINVAL, -ENOTSUP, -ENOMEM; call rank_close in any case.
int rank_open(struct Rank *r, const struct RankSettings *s, bool dry, struct Error *e);
void rank_close(struct Rank *r);

// ---- rank_step.c ----

// Returns the usual count: 6 per parameter and token, and causal attention's 6 L C T (Chowdhery et
// al. 2022, PaLM, appendix B, halved for the causal mask).
double rank_flops_per_token(const struct Rank *r);

// Floating-point operations of a step on this rank, as its kernels count them (kernels/cost.h):
// with what --recompute repeats and with the padded vocabulary.
struct StepFlops {
    double forward, backward;
};
struct StepFlops rank_step_flops(const struct Rank *r, const struct RankSettings *s);

// Elements that a step updates on this rank: by the device, and by the host.
struct StepUpdates {
    size_t device, host;
};
struct StepUpdates rank_step_updates(const struct Rank *r);

// ---- rank.c, rank_step.c ----

// Writes what the queues did in the last step: rank 0 to `path`, rank R to `path`.R. Errors:
// -errno.
int rank_write_trace(struct Rank *r, const char *path, struct Error *e);

// Writes what the last step did to every block of memory (zero/trace/trace.h); rank N > 0 writes
// PATH.N. model: its name. Errors: -errno.
int rank_write_trace_zero(struct Rank *r, const char *model, const char *path, struct Error *e);

// Prints a line if matrix products went by a fallback: how many, and the first.
void rank_print_fallbacks(const struct Rank *r, FILE *out);

// Makes the next batch of the feed the one that the model works on.
void rank_next_batch(struct Rank *r);

// The groups that this rank is in, each once; NULL: it is in no such group.
enum { RANK_COMMS = 10 };
void rank_comms(const struct Rank *r, const struct Comm *groups[RANK_COMMS]);
// Returns what this rank has sent so far, in all its groups.
struct Traffic rank_traffic(const struct Rank *r);

// How many ranks get different tokens (Megatron: data-parallel size), and this rank's index among
// them; TP ranks and pipeline stages get the same tokens.
static inline size_t rank_data_ranks(const struct Rank *r) {
    return (size_t)grid_data_ranks(&r->parallel.grid);
}
static inline size_t rank_data_rank(const struct Rank *r) {
    return (size_t)grid_data_rank(&r->parallel.grid, r->all->rank);
}
// Returns the job's rank that computes the losses of a data-parallel rank's tokens: with the head.
static inline size_t rank_of_losses(const struct Rank *r, size_t data_rank) {
    return (size_t)grid_last_of_data(&r->parallel.grid, (int)data_rank);
}

// Returns the first of this rank's samples in a micro-batch of the step after `step` steps.
uint64_t rank_first_sample(const struct Rank *r, uint64_t step, size_t micro);

// Counts the targets that count in all micro-batches of all ranks of the step after `step` steps.
// Errors: the counter's.
int rank_count_step(const struct Rank *r, const struct BatchSource *from, uint64_t step,
                    uint64_t *counted, struct Error *e);

// Queues one training step of all ranks together, the one after r->zero.step: its sequences are
// those after the last step's, cut into micro-batches and over ranks in that order. Its objective
// is the mean loss over the targets that count in the whole step, however they fall to ranks and
// micro-batches. If none counts its gradient is 0, and so moments and weights decay. The next
// micro-batch is read while the device works. zero_step_wait returns the results. Errors: the
// source's.
int rank_queue_step(struct Rank *r, const struct BatchSource *from,
                    const struct StepState *settings, struct Error *e);

// Returns a step's loss as a mean over the targets that count; 0 if none does.
double rank_mean_loss(const struct Rank *r, const struct StepResult *result);

// Computes the mean loss over the targets that count in samples 0 .. samples - 1 of a sequence, by
// all ranks together; 0 if none does. Errors: the source's, on the rank that has it; -EINTR,
// without a text, if another rank has one, or was asked to stop meanwhile.
int rank_validate(struct Rank *r, const struct BatchSource *from, uint64_t samples, float *loss,
                  struct Error *e);

// Computes how likely the model finds given tokens, for evaluations (score.c).
//
// logprob[i] becomes the log-probability (nats) that the model gives to tokens from .. count - 1 of
// sequence i, each given all before it: their sum. A sequence has at most seq_len + 1 tokens, as
// the last is never an input. All ranks call it with the same list and get the same numbers.
//
// It works at any stage and tier, as validation does. Sequences are cut into micro-batches, of
// --batch sequences of about one length, before they are assigned to ranks: so the results do not
// depend on how many ranks there are, to the bit, with the same --batch and --threads.
//
// Errors: -EINVAL if a rank has another list; -EINTR, without a text, if a rank was asked to stop
// meanwhile.
int rank_score(struct Rank *r, const struct Sequence *list, size_t count, double *logprob,
               struct Error *e);

#endif
