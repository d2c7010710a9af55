// --fit auto: of all that a run might be (candidates.h), what fits and takes the least time.
//
// What the user said stays. The rest is forecast: a rank is opened over dry tiers, which says what
// it holds and moves to the byte; what it computes is counted (count.h), and the times follow from
// what was measured of this machine (rates.c, bound.h). Memory grows with the micro-batch and time
// falls, so for each candidate the largest batch that fits is looked for, and only where that of
// the largest of all would be among the best.
//
// Called by train.c, by way of predict.h. Read next: fit.c, which gives advice.
#ifndef ZERO_PLAN_CHOOSE_H
#define ZERO_PLAN_CHOOSE_H
#include "zero/plan/candidates.h"

struct ChooseRequest {
    const struct RankSettings *settings; // as the user said them; the batch is the largest
    struct FitOpen open;
    struct Capacity room;
    struct Speeds speeds;
    struct Rates rates;
    int ranks_here;
};

struct Choice {
    struct Candidate is;
    struct Forecast forecast;
    struct Bound bound; // .step: seconds
};

enum { BEST = 3 };
struct Choices {
    struct Choice best[BEST]; // the first takes the least time
    size_t n;                 // of them
    size_t candidates;        // that there are, without batches
};

// Errors: -ENOMEM where nothing fits, with what comes nearest and what it lacks; those of
// trials_open.
int choose(const struct ChooseRequest *r, struct Choices *out, struct Error *e);

// Prints a head, and a line for each of the best. tokens: of a step, of all ranks.
void choices_print(FILE *out, const struct ChooseRequest *r, const struct Choices *c,
                   double tokens);

#endif
