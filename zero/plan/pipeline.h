// What each stage of a pipeline takes, and how long stages would wait for each other.
//
// Stages have other layers, and keep other numbers of micro-batches, so that one forecast is not
// enough: each gets its own, of the rank that takes most in it, made as every forecast is
// (footprint.h). What the kernels of its passes count says how long they are, in parts of each
// other, and the order of a step (zero/pipe/order.h) is gone through with passes as long as that:
// so the bubble is that of this cut, whose stages need not be alike. Swaps take no time in it.
//
// Called by fit.c; table.h prints it.
#ifndef ZERO_PLAN_PIPELINE_H
#define ZERO_PLAN_PIPELINE_H
#include "zero/plan/footprint.h"

struct PipelineForecast {
    int n;                  // 0: there is one stage, of which nothing is told
    struct Forecast *stage; // (n)
    double bubble;          // share of all stages' time
};

// pipeline_free when done. Errors: those of footprint_of_stage.
int pipeline_predict(const struct RankSettings *s, int ranks_here, struct PipelineForecast *out,
                     struct Error *e);
void pipeline_free(struct PipelineForecast *f);

// The share of a stage in what all compute.
double pipeline_share(const struct PipelineForecast *f, int stage);

#endif
