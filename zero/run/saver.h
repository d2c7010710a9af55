// Saving as a policy: where to, and what happens where that fails.
//
// A save on the way that fails costs nothing but itself: the checkpoint before it is untouched, a
// line says what was wrong, and training goes on. The last save is what the run was for. It is tried
// below --out, then below --save-also, and again every ten seconds until there is room, or a signal
// ends the wait. That there is room at all is asked before the first step.
//
// All ranks call these functions together. Called by trainer.c. Read next: checkpoint.h.
#ifndef ZERO_RUN_SAVER_H
#define ZERO_RUN_SAVER_H
#include "zero/run/checkpoint.h"

enum { SAVER_FOLDERS = 2, SAVER_AGAIN_S = 10 };

struct Saver {
    struct Zero *zero;
    const char *folder[SAVER_FOLDERS]; // OUT/checkpoints, and that of --save-also; NULL: none
    const char *identity;
    size_t keep;    // checkpoints; 0: all
    uint64_t saved; // step of the last checkpoint; UINT64_MAX: there is none
    int place;      // of `folder`, where it is
    // Before a checkpoint is written, on rank 0: what belongs to it is forced to the disk.
    int (*before)(void *context, struct Error *e);
    void *context;
};

// Before the first step: whether one of the folders has room for a checkpoint, and nothing is in its
// way. Errors: -ENOSPC, with what is missing; checkpoint_clear's.
int saver_check(const struct Saver *s, struct Error *e);

// Saves the present step, if it is not saved yet. A failure is said, and training can go on.
void saver_save(struct Saver *s);

// The same at the end of a run: tries until it is done. Errors: those of the last try, after a
// signal asked to end.
int saver_save_last(struct Saver *s, struct Error *e);

#endif
