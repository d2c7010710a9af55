// The end of a run whose gradients are no longer finite: it says which checkpoint to resume from,
// and leaves a note beside the checkpoints, by which a resume may take another learning rate. The
// note is removed when a checkpoint of such a resume is proven.
//
// The weights after step n are good if step n + 1 finds a finite gradient. So the checkpoint to
// resume from is one before the last step with such a gradient: whatever the rate, that step's own
// leads to the divergence.
//
// Called by trainer.c and resume.c. Read next: zero/checkpoint/checkpoint.h.
#ifndef ZERO_TRAIN_DIVERGED_H
#define ZERO_TRAIN_DIVERGED_H
#include "zero/checkpoint/checkpoint.h"
#include "zero/settings/schedule.h"

struct Diverged {
    const char *const *folders; // of checkpoints; NULL ends them
    const char *out, *also;     // --out and --backup-dir; NULL: there is no second
    const char *what;           // what has happened
    uint64_t good;              // the last step with a finite gradient
    const struct LrSchedule *rates;
};

// On rank 0: makes that error, with a command that goes on, and leaves the note. Returns -EDOM.
int diverged_end(const struct Diverged *d, struct Error *e);

// True if a folder of checkpoints has the note.
bool diverged_has_note(const char *folder);

// Removes the note, if there is one.
void diverged_remove_note(const char *folder);

#endif
