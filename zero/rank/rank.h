// One rank: everything it owns, opened in the order in which one needs the other.
//
// zero/train/trainer.c and the tests open a rank from the same settings (zero/settings/settings.h);
// over dry tiers the same lines predict the memory that the run will take (zero/plan/).
#ifndef ZERO_RANK_RANK_H
#define ZERO_RANK_RANK_H
#include "model/model.h"
#include "zero/comm/grid.h"
#include "zero/hpz/hpz.h"
#include "zero/tensor/tensor.h"
#include "zero/offload/move.h"
#include "zero/pipe/pipe.h"
#include "zero/rank/feed.h"
#include "zero/rank/rank_device.h"
#include "zero/settings/settings.h"
#include "zero/process/request.h"
#include "zero/engine.h"

#include <stdio.h>

struct Rank {
    struct Device *device;
    struct Trace *trace; // NULL: none
    struct Trace *host_trace;
    bool borrowed;       // the devices are the caller's
    struct Device *host; // keeps and updates what is offloaded; NULL: nothing is
    struct Tier tier[NTIER];
    struct Nvme *nvme;        // NULL: nothing lies there
    struct Comm *all;         // the ranks of the job,
    struct Comm *shard_group; // those that this one shares shards with: all, or a part of them,
    struct Parallel parallel; // what z is told of the other dimensions
    struct Comm *hpz_group;   // with a second partition of weights, those that it is cut over
    struct Hpz *hpz;
    struct Wire wire; // between the ranks of dp
    struct TensorGroup tensor;
    struct PipeGroup pipe;
    struct Block staging; // of collectives between processes, or GPUs
    struct Params params;
    struct Model model;
    struct Acts acts;
    struct Zero zero;
    struct Feed feed;
    struct Traffic step_traffic;   // what this rank sent in its last training step
    struct Traffic sent_end;       // what it had sent at that step's end
    bool queued, stepped;          // there was one; and what it sent is known
    uint64_t counted[HOST_COPIES]; // targets of all ranks in the last steps, by turns
    struct Moved moved_end;        // what it had moved at that step's end
    struct Moved step_moved;       // what it moved in the last step that followed another,
    bool moved_known;              // with nothing between them that moves anything
    atomic_uint *requests;         // of this process; NULL: none ever
    const atomic_uint *own_word;   // what this rank tells besides; NULL: nothing
    struct Block snapshot;         // room for one, where checkpoints are written meanwhile
};

// dry: nothing is allocated, r->tier[] tells what would be. The rank can then only be closed.
// Errors: -EINVAL, -ENOTSUP, -ENOMEM; rank_close is due in any case.
int rank_open(struct Rank *r, const struct RankSettings *s, bool dry, struct Error *e);
void rank_close(struct Rank *r);

// ---- rank_step.c ----

// The usual count: 6 per parameter and token, and causal attention's 6 L C T (Chowdhery et al.
// 2022, PaLM, appendix B, halved for the causal mask).
double rank_flops_per_token(const struct Rank *r);

// Floating-point operations of a step on this rank: those that its kernels count (kernels/cost.h),
// so with what --recompute repeats and with the padded vocabulary.
struct StepFlops {
    double forward, backward;
};
struct StepFlops rank_step_flops(const struct Rank *r, const struct RankSettings *s);

// Updates of a step on this rank: elements that the device updates, and that the host does.
struct StepUpdates {
    size_t device, host;
};
struct StepUpdates rank_step_updates(const struct Rank *r);

// ---- rank.c, rank_step.c ----

// Writes what the queues did in the last step: rank 0 to `path`, rank R to `path`.R. Errors:
// -errno.
int rank_write_trace(struct Rank *r, const char *path, struct Error *e);

// Prints a line if matrix products went by a fallback: how many, and the first.
void rank_print_fallbacks(const struct Rank *r, FILE *out);

// Makes the next batch of the feed the one that the model works on.
void rank_next_batch(struct Rank *r);

// The groups that this rank is in, each once; NULL: there is none such.
enum { RANK_COMMS = 10 };
void rank_comms(const struct Rank *r, const struct Comm *groups[RANK_COMMS]);
// What this rank has sent so far, in all its groups.
struct Traffic rank_traffic(const struct Rank *r);

// Ranks that have tokens of their own, and which of them this is: the places of tensor parallelism,
// and the stages of a pipeline, have the same.
static inline size_t rank_data_ranks(const struct Rank *r) {
    return (size_t)grid_data_ranks(&r->parallel.grid);
}
static inline size_t rank_data_rank(const struct Rank *r) {
    return (size_t)grid_data_rank(&r->parallel.grid, r->all->rank);
}
// The rank, among all, that makes the losses of a data-parallel rank's tokens: with the head.
static inline size_t rank_of_losses(const struct Rank *r, size_t data_rank) {
    return (size_t)grid_last_of_data(&r->parallel.grid, (int)data_rank);
}

// The first of this rank's samples in a micro-batch of the step after `step` steps.
uint64_t rank_first_sample(const struct Rank *r, uint64_t step, size_t micro);

// The targets that count in all micro-batches of all ranks of the step after `step` steps. Errors:
// the counter's.
int rank_count_step(const struct Rank *r, const struct BatchSource *from, uint64_t step,
                    uint64_t *counted, struct Error *e);

// Queues one training step of all ranks together, the one after r->zero.step: its sequences are
// those after the last step's, cut into micro-batches and over ranks in that order. Its objective
// is the mean loss of the targets that count in the whole step, however they fall to ranks and
// micro-batches. Where none counts its gradient is 0, and the update is that of a gradient of 0:
// moments and weights decay. The next micro-batch is read while the device works. zero_step_wait
// tells the results. Errors: the source's.
int rank_queue_step(struct Rank *r, const struct BatchSource *from,
                    const struct StepState *settings, struct Error *e);

// What zero_step_wait returned, as a mean over the targets that count; 0 where none does.
double rank_mean_loss(const struct Rank *r, const struct StepResult *result);

// The mean loss over the targets that count in samples 0 .. samples - 1 of a sequence, by all ranks
// together; 0 where none does. Errors: the source's, on the rank that has it; -EINTR, without a
// text, if another rank has one, or was told to stop meanwhile.
int rank_validate(struct Rank *r, const struct BatchSource *from, uint64_t samples, float *loss,
                  struct Error *e);

// How likely the model finds given tokens, as evaluations ask (score.c).
//
// logprob[i] becomes the log-probability (nats) that the model gives to tokens from .. count - 1 of
// sequence i, each after all before it: their sum. A sequence has at most seq_len + 1 tokens, as
// the last is never an input. All ranks call it with the same list and get the same numbers.
//
// At any stage and tier, as it walks as validation does. Sequences are cut into micro-batches, of
// --batch sequences of about one length, before they are dealt out to ranks: so the results do not
// depend on how many ranks there are, to the bit, with the same --batch and --threads.
//
// Errors: -EINVAL where a rank has another list; -EINTR, without a text, if a rank was told to stop
// meanwhile.
int rank_score(struct Rank *r, const struct Sequence *list, size_t count, double *logprob,
               struct Error *e);

// Appends `count` sampled tokens to the `length` tokens of `text`, which has room for them. Where
// the text is longer than the model's sequence, its last seq_len tokens are what the model sees.
// Fewer where one of s->stops is drawn, which is the last then. All ranks call it with the same
// text, and get the same. Returns how many were appended.
struct Sampling;
size_t rank_generate(struct Rank *r, int32_t *text, size_t length, size_t count,
                     const struct Sampling *s);
// The same behind a copy of `prompt`: *made of the `count` tokens; free() it.
int32_t *rank_continue(struct Rank *r, const int32_t *prompt, size_t length, size_t count,
                       const struct Sampling *s, size_t *made);

#endif
