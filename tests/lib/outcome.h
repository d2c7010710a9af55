// What a training run came to, bit for bit, and whether two runs came to the same.
//
// Most promises of zero.c say that something changes no bit: a stage, a placement, a prefetch, slow
// queues, a GPU's order. Their tests make whole runs and compare them with these.
#ifndef TESTS_LIB_OUTCOME_H
#define TESTS_LIB_OUTCOME_H

#include "tests/lib/tiny.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUTCOME_STEPS = 20, OUTCOME_VALIDATED = 7 }; // steps at the most; samples of a validation

struct Outcome {
    int steps; // at most OUTCOME_STEPS
    double loss[OUTCOME_STEPS];
    float norm[OUTCOME_STEPS], validation;
    uint64_t hash; // of the weights, at the end
};

// A fresh run of `steps` steps, with a validation behind the step numbered `validated` from 0 on;
// -1: none. Threads of ranks, or the job that this process has joined (tiny_ranks).
struct Outcome outcome_of(const struct RankSettings *s, int steps, int validated);

// Keeps a step's figures. Other than rank 0's go nowhere.
void outcome_keep(struct Outcome *out, const struct Rank *r, int i, struct TinyStep step);

// Two values that are no number count as one: a NaN's bits are nobody's promise.
bool outcome_is_same(const struct Outcome *a, const struct Outcome *b);

// Fails the test where b is not a, and says b's settings, `what` and the first figure that differs.
void outcome_expect_same(const struct Outcome *a, const struct Outcome *b,
                         const struct RankSettings *s, const char *what);

// What tells runs apart: stage, ranks, format, placement, ... Overwritten by the next call.
const char *settings_text(const struct RankSettings *s);

#endif
