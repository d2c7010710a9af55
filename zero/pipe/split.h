// Which layers each stage of a pipeline has.
#ifndef ZERO_PIPE_SPLIT_H
#define ZERO_PIPE_SPLIT_H
#include "model/config.h"

// Units first .. first + count - 1 of the model (model/params.h).
struct SplitPart {
    int first, count;
};

// The parts of all stages, at least one unit each: cut by what units compute (split_by_cost), with
// what a recompute level repeats and the head's products; or with as many layers each as `said` has
// numbers, "3,3,2", where that is not NULL. The embedding is the first one's, the head the last
// one's. c: a whole model, finished. Errors: -EINVAL for more stages than units, and numbers that
// are not such.
int split_stages(const struct ModelConfig *c, enum Recompute level, int stages, const char *said,
                 struct SplitPart *out, struct Error *e);

// The cut whose largest sum of such costs of units is the least, which is what a step waits for; of
// these the most even one, with the least sum of squares of all stages' sums; and of these the one
// whose first stages have the fewest units, as they keep activations of most micro-batches. Costs
// are rounded to 2^-24 of all of them together, so that no sum is rounded, and every rank finds the
// same.
void split_by_cost(const double *cost, int units, int stages, struct SplitPart *out);

#endif
