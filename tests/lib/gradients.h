// One step's gradients of the whole model, from whatever grid of ranks: to be those of one rank.
#ifndef TESTS_LIB_GRADIENTS_H
#define TESTS_LIB_GRADIENTS_H
#include "tests/lib/outcome.h"

struct Gradients {
    double loss, validation;
    float norm;
    uint64_t hash, n; // of the initial weights; weights
    float *gradient;  // by global index; NaN: nobody told it; 0: it is not trained
};

// Of a step on weights that are larger than fresh ones; free its `gradient`.
struct Gradients gradients_of(const struct RankSettings *s);

// Fails the test where a gradient differs from `want` by more than `near` of the largest, or the
// losses or norms do more than rounding may, or the initial weights do; says s's settings and
// `what`.
void gradients_expect_near(const struct Gradients *want, const struct Gradients *is,
                           const struct RankSettings *s, double near, const char *what);

// Settings of a step whose update moves no weight: its first moment is half the gradient.
struct StepState gradients_still(const struct Rank *r);

#endif
