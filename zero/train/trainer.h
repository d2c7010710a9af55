// A rank that trains: from fresh or loaded weights to the last checkpoint.
//
// loop.h makes the steps; here is what follows them, on all ranks alike: validation, samples,
// checkpoints, and how a run ends that some rank cannot go on with. What is read and what is told
// are the caller's, who hands functions over: this part sees neither texts nor logs.
//
// Opened by job.c for train.c. Read next: loop.h, then zero/rank/rank.h.
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

// What the caller does with what has happened, on rank 0 alone; but a sample and an evaluation,
// which are due, are made by all ranks.
struct TrainerHooks {
    BatchReader *read_train, *read_val;
    BatchCounter *count_train, *count_val; // NULL: every target counts
    void *data;                            // for these four
    void *console;                         // for the next four
    void (*stepped)(void *teller, struct LogStep *, double seconds);
    void (*noted)(void *teller, const struct LogNote *);
    void (*tell)(void *teller, const char *line);
    int (*sync)(void *teller, struct Error *); // forces what was told to the disk; NULL: nothing
    void *context;                             // the caller's, for the last three
    void (*validated)(struct Trainer *, float loss, uint64_t samples);
    void (*sample)(struct Trainer *);
    int (*evaluate)(struct Trainer *, struct Error *); // by all ranks; NULL: nothing
};

struct Trainer {
    const struct Settings *settings;
    uint64_t val_samples, val_samples_at_end; // sequences of a validation on the way, and the last
    uint64_t eval_samples; // of the validation that an evaluation begins with; 0: it has none
    struct TrainerHooks hooks;
    struct ImportSource init;   // of weights, where there is no checkpoint
    struct ExportSink exported; // where they go after the last step
    bool joins;                 // rank 0, which makes those files, is of another process
    struct Resume resume;
    const char *trace; // file for what the queues did in the last step; NULL: none
    struct Rank rank;
    struct Breakdown breakdown;
    char *identity; // what a resumed run may not change; trainer_close frees it
    struct Saver saver;
    struct Judge judge;   // of validations
    bool ended;           // by --patience
    struct Best last_val; // the last validation; of no samples: there was none
    bool save_requested;  // some rank wishes to
    uint64_t good;        // the last step with a finite gradient, or that was begun with
    size_t skipped;       // updates behind it; the last step's loss
    double loss;
    double clock_at; // base_seconds() since which --save-every counts
    int code;        // of its end
    struct Error error;
};

// Rank 0 speaks for all: it alone writes and prints.
static inline bool trainer_speaks(const struct Trainer *t) {
    return t->rank.all->rank == 0;
}

// The tokens of a step, on all ranks, whether they count or not.
double trainer_step_tokens(const struct Trainer *t);

// Opens the rank. Where this rank alone fails, the job ends. Errors: rank_open's.
int trainer_open(struct Trainer *t, const struct RankSettings *s, struct Error *e);
void trainer_close(struct Trainer *t);

// Finds the weights: those of the checkpoint that t->resume tells of, else those of t->init, else
// fresh ones. `identity` is the trainer's from here on. Errors: -EINVAL where a rank has another
// identity; those of resume_load and import_weights.
int trainer_start(struct Trainer *t, uint64_t seed, char *identity, struct Error *e);

// Trains to the end of the schedule, or until some rank or a signal wishes to stop, and saves; at
// the end of the schedule it exports, too. Errors: loop_run's, checkpoint_save's, export_weights'.
// t->code has what the hooks refused.
int trainer_run(struct Trainer *t, struct Error *e);

// What --eval asks for, of the weights as they are; or their export, where that is all. Errors:
// rank_validate's, the hook's, export_weights'; -EINTR a stop was asked for.
int trainer_evaluate(struct Trainer *t, struct Error *e);

// Writes what an overflow did to the loss scale, as a line's end: ", the loss scale is halved to 2".
// A scale of 0 before it: there is none, and nothing to say.
void loss_scale_describe(const struct LossScale *before, const struct LossScale *after, char *text,
                         size_t bytes);

// Remembers the first error that ends the run, and asks all ranks to stop.
void trainer_keep_error(struct Trainer *t, int err, const struct Error *e);

#endif
