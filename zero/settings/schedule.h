// The learning rate of each step, and the rest of a step's settings for the optimizer.
#ifndef ZERO_SETTINGS_SCHEDULE_H
#define ZERO_SETTINGS_SCHEDULE_H
#include "kernels/kernels.h"

enum Schedule {
    SCHEDULE_CONSTANT, // lr after the warm-up
    SCHEDULE_COSINE,   // half a cosine from lr to min_lr (Loshchilov, Hutter 2017)
    SCHEDULE_LINEAR,   // a line from lr to min_lr
    SCHEDULE_WSD,      // lr, then a line to min_lr over the last part (Hu et al. 2024, MiniCPM)
    // From here on DeepSpeed's:
    SCHEDULE_WARMUP_LR,        // WarmupLR: logarithmic warm-up from min_lr to lr, then lr
    SCHEDULE_WARMUP_DECAY_LR,  // WarmupDecayLR: the same warm-up, then a line to min_lr
    SCHEDULE_WARMUP_COSINE_LR, // WarmupCosineLR: from 0, then half a cosine to min_lr
    NSCHEDULE
};

struct LrSchedule {
    enum Schedule kind;
    double lr, min_lr;
    uint64_t warmup, steps; // steps: of the whole run
    int linear;             // 1: DeepSpeed's kinds warm up linearly, too
    double decay_share;     // WSD: the last share of the steps
};

// Returns the rate of the step after `done` steps, done = 0 .. steps - 1. The first four kinds warm
// up linearly, from lr / warmup in the first step to lr in step `warmup`.
double schedule_lr(const struct LrSchedule *s, uint64_t done);

struct AdamSettings {
    double beta1, beta2, eps, weight_decay, clip;
};

// Returns the host's part of the state of the step after `done` steps (its loss scale is
// results.c's). A step whose update is skipped counts for the learning rate, which is a function of
// the step, but not for AdamW's bias corrections: of the done steps, `updates` are known to have
// changed the moments, and the last STEPS_AHEAD at most are not known yet.
struct StepState schedule_step(const struct LrSchedule *s, const struct AdamSettings *a,
                               uint64_t done, uint64_t updates);

#endif
