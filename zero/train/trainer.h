// A rank that trains: from fresh or loaded weights to the last checkpoint.
//
// loop.h makes the steps; here is what follows them, on all ranks alike: validation, samples,
// checkpoints, and the end of a run that some rank cannot continue. The caller passes functions
// that read and log: this part knows neither texts nor logs.
//
// Called by train.c. Read next: loop.h, then zero/rank/rank.h.
#ifndef ZERO_TRAIN_TRAINER_H
#define ZERO_TRAIN_TRAINER_H
#include "kernels/log_step.h"
#include "zero/rank/breakdown.h"
#include "zero/settings/settings.h"
#include "zero/train/best.h"
#include "zero/train/loop.h"
#include "zero/train/resume.h"
#include "zero/train/saver.h"
#include "zero/weights/weights.h"

struct Trainer;

// Functions of the caller, called on rank 0 alone; but all ranks make samples and evaluations.
struct TrainerHooks {
    BatchReader *read_train, *read_val;
    BatchCounter *count_train, *count_val;
    void *data;    // of these four
    void *console; // of the next four
    void (*stepped)(void *console, struct LogStep *, double seconds);
    void (*noted)(void *console, const struct LogNote *);
    void (*tell)(void *console, const char *line);
    int (*sync)(void *console, struct Error *); // forces the log to disk
    void *context;                              // the caller's, for the last three
    void (*validated)(struct Trainer *, float loss, uint64_t samples);
    void (*sample)(struct Trainer *);
    int (*evaluate)(struct Trainer *, struct Error *); // by all ranks
};

struct Trainer {
    const struct Settings *settings;
    uint64_t val_samples, val_samples_at_end; // sequences of a validation; and of the last one
    uint64_t eval_samples; // of the validation before an evaluation; 0: there is none
    struct TrainerHooks hooks;
    // Of weights, and of adapters, if there is no checkpoint; it never has the base of adapters.
    struct ImportSource init, init_adapter;
    struct ExportSink exported, exported_adapter; // where they are exported after the last step
    bool joins; // rank 0, which makes those files, is in another process
    struct Resume resume;
    const char *trace;      // file for what the queues did in the last step; NULL: none
    const char *trace_zero; // and for what they did to memory; NULL: none
    const char *model;      // whose name it has
    struct Rank rank;
    struct Breakdown breakdown;
    char *identity; // what a resumed run may not change
    struct Saver saver;
    struct Judge judge; // of validations
    bool ended_by_patience;
    struct Best last_val; // the last validation; 0 samples: there was none
    bool save_requested;  // some rank requests a save
    uint64_t good;        // last step with a finite gradient, or where the run began
    size_t skipped;       // updates skipped since; the last step's loss
    double loss;
    double clock_at; // base_seconds() from which --save-every counts
    int code;        // error of the run's end
    struct Error error;
};

// Rank 0 alone writes and prints.
static inline bool trainer_speaks(const struct Trainer *t) {
    return t->rank.all->rank == 0;
}

// Returns the tokens of a step, on all ranks, whether they count or not.
double trainer_step_tokens(const struct Trainer *t);

// Trains to the end of the schedule, or until some rank or a signal requests a stop, and saves; at
// the end of the schedule it exports, too. Errors: loop_run's, checkpoint_save's, export_weights'.
// t->code has the hooks' error.
int trainer_run(struct Trainer *t, struct Error *e);

// Evaluates the weights as they are for --eval; or only exports them, if that was asked for.
// Errors: rank_validate's, the hook's, export_weights'; -EINTR a stop was requested.
int trainer_evaluate(struct Trainer *t, struct Error *e);

// Writes what an overflow did to the loss scale, as a line's end: ", the loss scale is halved to
// 2". A scale of 0 before it: there is none, and the text is empty.
void loss_scale_describe(const struct LossScale *before, const struct LossScale *after, char *text,
                         size_t bytes);

// Keeps the first error that ends the run, and asks all ranks to stop.
void trainer_keep_error(struct Trainer *t, int err, const struct Error *e);

// ---- all ranks of this process ----

struct Job {
    const struct World *world;
    struct RankSettings settings; // of all ranks; each has its number, and the group
    struct Trainer trainer;       // each rank begins with a copy of it
    uint64_t seed;                // of fresh weights
    // Returns what a resumed run may not change. kernels: their name. free() it; thread-safe.
    char *(*identity)(const void *text, const char *kernels);
    const void *text;
    int (*work)(struct Trainer *, struct Error *); // of a rank that has its weights
};

// Runs each rank on a thread of its own, from opening to closing. A rank that fails before there is
// a group fails on all alike; after that it ends the job or stops it. Errors: the first code, and
// line, that a rank has.
int job_run(const struct Job *j, struct Error *e);

#endif
