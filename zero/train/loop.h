// The training loop of one rank: makes steps to the last one, or until a stop.
//
// A step is queued while the one before it is still under way, so that the device never waits for
// its host between two steps. Therefore the loop learns of a result one step late, and of a request
// to stop as well: the step that is under way then is finished, on all ranks alike. If something
// else follows a step (validation, a sample, a checkpoint), or nothing is to overlap, the loop
// pauses: it takes all results before it goes on.
//
// It reads batches ahead, so that an unreadable one stops all ranks after the same step. A rank
// that finds a file shrunk or gone when it needs the next batch could only leave the others waiting
// in a collective. So each rank reads a step's batches, and counts their targets, AHEAD_STEPS
// before the device gets them. A rank that fails requests a stop, with its report of the step that
// it queues then; all ranks receive that while they still have the batches of the steps that are
// under way, and save.
//
// Called by trainer.c, which supplies the callbacks. Read next: zero/rank/rank.h, then step.c.
#ifndef ZERO_TRAIN_LOOP_H
#define ZERO_TRAIN_LOOP_H
#include "zero/rank/rank.h"
#include "zero/settings/schedule.h"

enum { SKIPPED_MAX = 10 }; // steps in a row, at the least loss scale, that end a run

struct Loop {
    struct LrSchedule schedule; // its number of steps is where the loop ends
    struct AdamSettings adam;
    struct BatchSource from;
    void *context; // of the four callbacks
    // A batch of a later step cannot be read: this rank must request a stop.
    void (*unread)(void *context, int err, const struct Error *e);
    // Returns whether the loop pauses after that step.
    bool (*pauses)(void *context, uint64_t step);
    // A step has ended; its result was seen `seconds` after that of the one before it (on average
    // that is the time of a step, though a late host makes one longer and the next shorter).
    // Returns whether to stop, which counts if this rank is alone; else the loop goes by the
    // requests of all ranks.
    bool (*ended)(void *context, const struct StepResult *result, double seconds);
    // Does what follows a step with a pause. Errors: -errno, which ends the loop; -EINTR if some
    // ranks requested a stop meanwhile.
    int (*paused)(void *context, struct Error *e);
};

// Makes the steps after r->zero.step. *stopped: some rank requested a stop before the last. At the
// end all results have been taken in any case. All ranks return the same. Errors: the reader's if
// it fails before the first step, those of `paused`, -EDOM after SKIPPED_MAX steps whose gradient
// was not finite.
int loop_run(const struct Loop *loop, struct Rank *r, bool *stopped, struct Error *e);

size_t loop_bytes_ahead(const struct RankSettings *s); // of batches; no tier counts them

#endif
