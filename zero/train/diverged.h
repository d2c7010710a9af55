// How a run ends whose gradients are no longer finite: it says from where it can be gone on with,
// and leaves a note beside its checkpoints, by which a resume may take another learning rate. The
// note goes when a checkpoint of such a resume is proven.
//
// The weights behind step n are good if step n + 1 finds a finite gradient. So the checkpoint to go
// on from is one before the last step with such a gradient: whatever the rate, that step's own
// leads to what came.
//
// Called by trainer.c and resume.c. Read next: zero/checkpoint/checkpoint.h.
#ifndef ZERO_TRAIN_DIVERGED_H
#define ZERO_TRAIN_DIVERGED_H
#include "zero/checkpoint/checkpoint.h"
#include "zero/settings/schedule.h"

struct Diverged {
    const char *const *folders; // of checkpoints; NULL behind the last
    const char *out, *also;     // --out and --backup-dir; NULL: there is no second
    const char *what;           // has happened
    uint64_t good;              // the last step with a finite gradient
    const struct LrSchedule *rates;
};

// Of rank 0: the error of such an end, with a command that goes on, and the note. Returns -EDOM.
int diverged_end(const struct Diverged *d, struct Error *e);

// Whether a folder of checkpoints has the note.
bool diverged_once(const char *folder);

// The note goes, if there is one.
void diverged_forget(const char *folder);

#endif
