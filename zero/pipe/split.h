// Divides the layers over the stages of a pipeline.
#ifndef ZERO_PIPE_SPLIT_H
#define ZERO_PIPE_SPLIT_H
#include "model/config.h"

// Units first .. first + count - 1 of the model (model/params.h).
struct SplitPart {
    int first, count;
};

// Divides the units over all stages, at least one each: by the cost of computing them
// (split_by_cost), with what a recompute level repeats and the head's products; or, if `given` is
// not NULL, by its numbers of layers, "3,3,2". The first stage has the embedding, the last one the
// head. c: a whole model, finished. Errors: -EINVAL for more stages than units, and malformed
// numbers.
int split_stages(const struct ModelConfig *c, enum Recompute level, int stages, const char *given,
                 struct SplitPart *out, struct Error *e);

// Returns the first of the parts that has units that are trained, for the model's first_trained.
int split_first_trained(const struct SplitPart *parts, int first_trained);

// Finds the division whose most expensive stage costs the least, as a step waits for that one; of
// these the most even one, with the least sum of squares of the stages' costs; and of these the one
// whose first stages have the fewest units, as they keep activations of the most micro-batches.
// Costs are rounded to 2^-24 of their sum, so that no sum is rounded, and every rank finds the
// same.
void split_by_cost(const double *cost, int units, int stages, struct SplitPart *out);

#endif
