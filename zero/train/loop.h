// The training loop of one rank: from the steps that are made to a stop.
//
// A step is queued while the one before it is still under way, so that the device never waits for
// its host between two steps. Therefore the loop learns of a result one step late, and of a wish to
// stop as well: the step that is under way then is made to its end, on all ranks alike. Where
// something else follows a step (validation, a sample, a checkpoint), or nothing is to overlap, the
// loop pauses: it takes all results before it goes on.
//
// Called by trainer.c, which says what is read, told and done. Read next: zero/rank/rank.h, then
// step.c.
#ifndef ZERO_TRAIN_LOOP_H
#define ZERO_TRAIN_LOOP_H
#include "zero/rank/rank.h"
#include "zero/settings/schedule.h"

enum { SKIPPED_MAX = 10 }; // steps in a row, with the least loss scale, that end a run

struct Loop {
    struct LrSchedule schedule; // and with it the step at which the loop ends
    struct AdamSettings adam;
    bool one_by_one; // no step is queued before all before it have ended
    struct BatchSource from;
    void *context; // for the four below
    // A batch of a later step cannot be read: this rank is to wish to stop.
    void (*unread)(void *context, int err, const struct Error *e);
    // Whether the loop pauses behind that step.
    bool (*pauses)(void *context, uint64_t step);
    // A step has ended; its result was seen `seconds` after that of the one before it (on the whole
    // that is what steps take, though a host that comes late makes one longer and the next
    // shorter). Returns whether to stop; beside this rank's own answer, which counts where it is
    // alone, the loop looks at what all ranks wish.
    bool (*ended)(void *context, const struct StepResult *result, double seconds);
    // What comes behind a step with a pause. Errors: -errno, which ends the loop; -EINTR where the
    // ranks found in it that some of them wish to stop.
    int (*paused)(void *context, struct Error *e);
};

// Makes the steps after r->zero.step. *stopped: some rank wished so before the last. In any case
// all results have been taken at the end. All ranks return the same. Errors: the reader's where it
// fails before the first step, those of `paused`, -EDOM after SKIPPED_MAX steps whose gradient
// was not finite.
int loop_run(const struct Loop *loop, struct Rank *r, bool *stopped, struct Error *e);

#endif
