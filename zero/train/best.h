// Finds which validation of a run was the best: --keep-best keeps it and --patience waits for one.
//
// Zero.best is what the next checkpoint records, so that a resume goes on with it. The best that is
// kept is one whose checkpoint is saved: until then, the one before stays.
//
// All ranks call these functions together, with the same loss. Called by trainer.c.
#ifndef ZERO_TRAIN_BEST_H
#define ZERO_TRAIN_BEST_H
#include "zero/settings/settings.h"
#include "zero/train/saver.h"

struct Judge {
    struct Saver *saver;
    bool keeps;       // --keep-best
    size_t patience;  // 0: no limit
    struct Best kept; // the best whose checkpoint is saved, if `keeps`; else the best
};

// Call it after a checkpoint was loaded, or none. A best whose checkpoint is gone, or whose loss is
// over another number of sequences, is logged and dropped.
void judge_open(struct Judge *j, struct Saver *s, const struct Intervals *h, uint64_t samples);

// Judges a validation of the present step. counts: it counts for --patience if it is no better; the
// end of a run that may go on does not. Returns whether to save its checkpoint.
bool judge_loss(struct Judge *j, float loss, uint64_t samples, bool counts);

// Call it before a checkpoint records the best: drops a best of an earlier step that could not be
// saved. It waits only while that is still being written.
void judge_finish(struct Judge *j);

// Call it when a checkpoint has its name.
void judge_saved(struct Judge *j);

// Texts that the run has waited long enough for a better one (NULL: it has not), and which step is
// the best; free() them.
char *judge_end_text(const struct Judge *j);
char *judge_best_text(const struct Judge *j);

#endif
