// Which layers each stage of a pipeline has.
#ifndef ZERO_PIPE_SPLIT_H
#define ZERO_PIPE_SPLIT_H
#include "model/config.h"

// Units first .. first + count - 1 of the model (model/params.h).
struct SplitPart {
    int first, count;
};

// The parts of all stages, at least one unit each: so that the one that computes most computes as
// little as it can, the head's products among it; or with as many layers each as `said` has
// numbers, "3,3,2", where that is not NULL. The embedding is the first one's, the head the last
// one's. c: a whole model, finished. Errors: -EINVAL for more stages than units, and numbers that
// are not such.
int split_stages(const struct ModelConfig *c, int stages, const char *said, struct SplitPart *out,
                 struct Error *e);

// The same where the sum of such costs of units matters most.
void split_by_cost(const double *cost, int units, int stages, struct SplitPart *out);

// Operations for one token of a unit's two passes, in units of any size.
double split_cost(const struct ModelConfig *c, int unit);

#endif
