// Learning rate schedules: see schedule.h for the kinds and their sources.
#include "zero/settings/schedule.h"

#include <math.h>

// Returns how far step `done` is from step `begin` (0) to the last before step `end` (1).
static double progress(uint64_t done, uint64_t begin, uint64_t end) {
    if (done <= begin || end <= begin + 1)
        return done <= begin ? 0 : 1;
    return fmin(1, (double)(done - begin) / (double)(end - 1 - begin));
}

// Returns the rate that is this share of the way from min_lr up to lr.
static double lr_at_share(const struct LrSchedule *s, double share_of_lr) {
    return s->min_lr + (s->lr - s->min_lr) * share_of_lr;
}

// Returns the rate on half a cosine, one step ahead of WarmupDecayLR's line; done >= warmup.
static double deepspeed_cosine(const struct LrSchedule *s, uint64_t done, uint64_t warmup) {
    double span = s->steps > warmup ? (double)(s->steps - warmup) : 1;
    double part = fmin(1, (double)(done - warmup + 1) / span);
    return lr_at_share(s, (1 + cos(M_PI * part)) / 2);
}

// Returns what DeepSpeed's scheduler has at iteration `done`, which it counts from 0; it warms up
// over at least two steps (runtime/lr_schedules.py). DeepSpeed's engine applies that rate one step
// later.
static double deepspeed_lr(const struct LrSchedule *s, uint64_t done) {
    uint64_t warmup = s->warmup > 2 ? s->warmup : 2;
    if (done < warmup) {
        double share =
            s->linear ? (double)done / (double)warmup : log((double)done + 1) / log((double)warmup);
        return s->kind == SCHEDULE_WARMUP_COSINE_LR ? s->lr * share : lr_at_share(s, share);
    }
    if (s->kind == SCHEDULE_WARMUP_COSINE_LR)
        return deepspeed_cosine(s, done, warmup);
    if (s->kind == SCHEDULE_WARMUP_LR)
        return s->lr;
    double left = s->steps > done ? (double)(s->steps - done) : 0;
    double span = s->steps > warmup ? (double)(s->steps - warmup) : 1;
    return lr_at_share(s, fmin(1, left / span));
}

double schedule_lr(const struct LrSchedule *s, uint64_t done) {
    if (s->kind >= SCHEDULE_WARMUP_LR)
        return deepspeed_lr(s, done);
    if (done < s->warmup)
        return s->lr * (double)(done + 1) / (double)s->warmup;
    switch (s->kind) {
    case SCHEDULE_COSINE:
        return lr_at_share(s, 0.5 + 0.5 * cos(M_PI * progress(done, s->warmup, s->steps)));
    case SCHEDULE_LINEAR:
        return lr_at_share(s, 1 - progress(done, s->warmup, s->steps));
    case SCHEDULE_WSD: {
        uint64_t decay = (uint64_t)(s->decay_share * (double)s->steps);
        uint64_t begin = s->steps > decay ? s->steps - decay : 0;
        return lr_at_share(s, 1 - progress(done, begin > s->warmup ? begin : s->warmup, s->steps));
    }
    default:
        return s->lr;
    }
}

struct StepState schedule_step(const struct LrSchedule *s, const struct AdamSettings *a,
                               uint64_t done, uint64_t updates) {
    struct StepState out = {
        .lr = (float)schedule_lr(s, done),
        .beta1 = (float)a->beta1,
        .beta2 = (float)a->beta2,
        .eps = (float)a->eps,
        .weight_decay = (float)a->weight_decay,
        .clip = (float)a->clip,
        .known_updates = updates,
    };
    for (int i = 0; i <= STEPS_AHEAD; i++) {
        double n = (double)updates + 1 + i;
        out.corrections[i] =
            (struct BiasCorrection){(float)(1 - pow(a->beta1, n)), (float)(1 - pow(a->beta2, n))};
    }
    return out;
}
