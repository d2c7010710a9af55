// The micro-batch of a run that goes on from somebody's model, where nobody says it: that model may
// be of any size, and the usual micro-batch may want more memory than the machine has.
//
// Called by predict.c. Read next: candidates.h.
#ifndef ZERO_PLAN_HALF_H
#define ZERO_PLAN_HALF_H
#include "zero/plan/candidates.h"

// Bytes for each rank, SIZE_MAX: nobody knows.
struct HalfRoom {
    size_t place, host; // free where the device's tier is; and in the CPU's memory
};

// Of the micro-batches that divide the step, the largest up to s->batch with which a rank takes no
// more than half of the memory; the smallest where none does. Errors: those of trials_open.
int half_batch(const struct RankSettings *s, struct HalfRoom room, int ranks_here, size_t *batch,
               struct Error *e);

#endif
