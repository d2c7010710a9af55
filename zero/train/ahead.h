// Reads batches ahead, so that an unreadable one stops all ranks after the same step.
//
// A rank that finds a file shrunk or gone when it needs the next batch could only leave the others
// waiting in a collective. So each rank reads a step's batches AHEAD_STEPS before the device gets
// them. A rank that fails requests a stop, with its report of the step that it queues then; all
// ranks receive that while they still have the batches of the steps that are under way (loop.h),
// and save.
//
// Targets are counted as early, since a file may fail there, too.
//
// Filled by loop.c, which passes ahead_source to rank_queue_step instead of the source itself.
#ifndef ZERO_TRAIN_AHEAD_H
#define ZERO_TRAIN_AHEAD_H
#include "zero/rank/rank.h"

// A failure is known to all ranks STEPS_AHEAD + 1 steps later.
enum { AHEAD_STEPS = STEPS_AHEAD + 1 };

struct Ahead {
    const struct Rank *rank;
    struct BatchSource from;
    uint64_t end;          // the step at which the run ends
    uint64_t have;         // steps before this one have been read
    bool failed;           // nothing more is read
    size_t nmicro, tokens; // micro-batches of a step, tokens of one
    size_t arrays;         // of a batch: inputs, targets and, if documents are packed, starts
    int32_t *batches;      // (AHEAD_STEPS + 1, micro-batches, arrays, B, T)
    uint64_t counted[AHEAD_STEPS + 1]; // targets of all ranks
};

size_t ahead_bytes(const struct RankSettings *s); // in host memory, which no tier counts

// The run goes on after r->zero.step, and ends at step `end`. Call ahead_close in the end.
void ahead_open(struct Ahead *a, const struct Rank *r, const struct BatchSource *from,
                uint64_t end);
void ahead_close(struct Ahead *a);

// Call it before r->zero.step's successor is queued: reads what is missing. Errors: the reader's,
// once; the batches that were read before stay.
int ahead_fill(struct Ahead *a, struct Error *e);

// Returns what was read and counted, as a source for r->zero.step's successor.
struct BatchSource ahead_source(struct Ahead *a);

#endif
