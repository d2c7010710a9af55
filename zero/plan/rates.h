// How fast this machine's ranks run each kernel and each collective: measured in real steps of a
// small model.
//
// A kernel's best rate alone says little of a step: the other ranks use the memory, too, and a
// product that has an epilogue is another one. So as many ranks as the run has in this process
// train a model of two blocks like the run's (but no wider than some hundred channels, so that it
// takes a second) for some steps, traced, one queue each, and of each call the quickest counts.
// What was measured is kept, kernel by kernel.
//
// Called by choose.c. Read next: count.h, which says how much there is to do.
#ifndef ZERO_PLAN_RATES_H
#define ZERO_PLAN_RATES_H
#include "zero/comm/world.h"
#include "zero/plan/bound.h"
#include "zero/plan/count.h"

struct Rates {
    struct KernelRates kernels; // of the device's compute queue
    double sent;                // bytes that a rank sends, per second; 0: not known
};

// ranks_here: ranks of this process. All 0 where the small model cannot be trained here.
void rates_find(const struct RankSettings *s, int ranks_here, KeepMeasured *keep,
                const char *folder, struct Rates *out);

#endif
