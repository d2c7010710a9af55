// The learning rate of each step, and with it what the optimizer needs to know of the step.
#ifndef ZERO_SCHEDULE_H
#define ZERO_SCHEDULE_H
#include "kernels/kernels.h"

enum Schedule {
    SCHEDULE_CONSTANT,  // lr after the warm-up
    SCHEDULE_COSINE,    // half a cosine from lr to min_lr (Loshchilov, Hutter 2017)
    SCHEDULE_LINEAR,    // a line from lr to min_lr
    SCHEDULE_WSD,       // lr, then a line to min_lr over the last part (Hu et al. 2024, MiniCPM)
    SCHEDULE_WARMUP_LR, // DeepSpeed's WarmupLR: logarithmic warm-up from min_lr to lr, then lr
    SCHEDULE_WARMUP_DECAY_LR, // DeepSpeed's WarmupDecayLR: the same warm-up, then a line to min_lr
};

struct LrSchedule {
    enum Schedule kind;
    double lr, min_lr;
    uint64_t warmup, steps; // steps: of the whole run
    double decay_share;     // WSD: the last share of the steps
};

// The rate of the update that comes after `done` updates, done = 0 .. steps - 1.
// The first four kinds warm up linearly, from lr / warmup in the first step to lr in step `warmup`.
double schedule_lr(const struct LrSchedule *s, uint64_t done);

struct AdamSettings {
    double beta1, beta2, eps, weight_decay, clip;
};

// The constants of the update after `done` updates, as the device wants them.
struct StepState schedule_step(const struct LrSchedule *s, const struct AdamSettings *a,
                               uint64_t done);

#endif
