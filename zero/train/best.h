// Which validation of a run was the best: what --keep-best keeps and --patience waits for.
//
// Zero.best is what the next checkpoint says of it, so that a resume goes on with it. The best that
// is kept is one whose checkpoint is saved: before that, the one before stays.
//
// All ranks call these functions together, with the same loss. Called by trainer.c.
#ifndef ZERO_TRAIN_BEST_H
#define ZERO_TRAIN_BEST_H
#include "zero/settings/settings.h"
#include "zero/train/saver.h"

struct Judge {
    struct Saver *saver;
    bool keeps;       // --keep-best
    size_t patience;  // 0: it has no end
    struct Best kept; // whose checkpoint is there, if it keeps them; else the best
};

// After a checkpoint was loaded, or none. A best whose checkpoint is gone, or whose loss is of
// another number of sequences, is told and forgotten.
void judge_open(struct Judge *j, struct Saver *s, const struct Intervals *h, uint64_t samples);

// A validation of the present step. counts: --patience does, where it is no better; the end of a
// run that may go on adds none. Returns whether its checkpoint is to be saved.
bool judge_loss(struct Judge *j, float loss, uint64_t samples, bool counts);

// Before a checkpoint says which is the best: one of an earlier step that could not be saved is
// none. Only where it is still being written this waits.
void judge_finish(struct Judge *j);

// When a checkpoint has its name.
void judge_saved(struct Judge *j);

// Whether the run has waited long enough for a better one.
bool judge_ends(const struct Judge *j);

// That it does, and which is the best, in words; free() them.
char *judge_end_text(const struct Judge *j);
char *judge_best_text(const struct Judge *j);

#endif
