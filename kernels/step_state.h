// The values that change from step to step, and how the end of a step updates them.
//
// They are in device memory, so that no kernel argument changes: clipping needs no wait for the
// host, a step can be recorded and replayed, and the host can queue a step before it knows the
// result of the previous one. So the device itself carries what depends on that result from step to
// step: the count of updates, since a step whose gradient is not finite makes none, and the loss
// scale.
//
// fp16 needs the dynamic loss scale so that small gradients are not lost: it holds nothing below
// 2^-24, and many gradients are smaller. So the loss is multiplied by a scale before the backward
// pass, and with it every gradient; the update divides it out again, in fp32 (Micikevicius et al.,
// "Mixed precision training", ICLR 2018, section 3.2). The best scale is the largest with which no
// gradient overflows, and it changes during training. It is searched as in DeepSpeed
// (DynamicLossScaler, with consecutive_hysteresis false): a step whose gradient is not finite is
// skipped, and such steps use up the hysteresis first, then halve the scale each; `window` steps in
// a row without one double the scale and renew the hysteresis. A step in fp32 or bf16 has a scale
// of 1 that never changes.
//
// Filled by zero/settings/schedule.c and zero/results.c; used by kernels classifier, step_clip and
// adamw. Every backend's step_clip ends in step_state_end below.
#ifndef KERNELS_STEP_STATE_H
#define KERNELS_STEP_STATE_H
#include "kernels/dtype.h"

#include <math.h>
#include <stdbool.h>

// Scales are powers of two, so that dividing by them is exact.
struct LossScaleSettings {
    float initial, least;
    uint64_t window;     // good steps in a row that double the scale; 0: it never grows
    uint64_t hysteresis; // the overflow of this number, and all that follow, halve it; 1: each
};

struct LossScale {
    float scale;         // of the next step
    uint64_t hysteresis; // what remains of it; 1: the next overflow halves the scale
    uint64_t good;       // steps since the last overflow
};

// The settings of a run without loss scaling.
static const struct LossScaleSettings loss_scale_none = {1, 1, 0, 1};

static inline struct LossScale loss_scale_start(const struct LossScaleSettings *settings) {
    struct LossScale s = {settings->initial, settings->hysteresis, 0};
    return s;
}

// Steps whose results may be unknown when the host queues another: so two are under way.
enum { STEPS_AHEAD = 1 };

// 1 - beta^n for both betas: AdamW's for the n-th update (Kingma, Ba 2015, section 3).
struct BiasCorrection {
    float first, second;
};

struct StepState {
    // The host's part, copied in before each step: up to `known_updates`.
    float lr, beta1, beta2, eps, weight_decay, clip; // clip 0: none
    struct LossScaleSettings loss_scale_settings;
    // For update known_updates + 1, which the step makes if no other updates were made than those
    // that the host knows of, and for the next ones.
    struct BiasCorrection corrections[STEPS_AHEAD + 1];
    uint64_t known_updates;

    // Carried from step to step; set by the host only when a run begins or is loaded.
    uint64_t updates; // made so far
    struct LossScale loss_scale;

    // Computed at the step's end.
    struct BiasCorrection correction; // of this step's update
    float grad_norm;                  // of the averaged gradient, unscaled, before clipping
    float grad_scale; // AdamW's factor of gradients: min(1, clip / grad_norm) / loss scale
    uint32_t skip;    // 1: the norm is not finite, and the update changes nothing
};

// Call it after each step; overflow: its gradient was not finite.
HOST_DEVICE static inline void
loss_scale_update(struct LossScale *s, const struct LossScaleSettings *settings, bool overflow) {
    const float most = 0x1p100f; // a gradient of zeros alone would let the scale grow for ever
    if (overflow) {
        s->good = 0;
        if (s->hysteresis > 1)
            s->hysteresis--;
        else
            s->scale = s->scale / 2 < settings->least ? settings->least : s->scale / 2;
        return;
    }
    s->good++;
    if (settings->window == 0 || s->good % settings->window != 0)
        return;
    s->hysteresis = settings->hysteresis;
    if (s->scale < most)
        s->scale *= 2;
}

// squares: of the whole gradient, still scaled. If the norm is not finite the gradient is useless:
// the whole update is skipped, so that a bad batch cannot poison weights and moments. The host
// makes sure that at most STEPS_AHEAD updates are unknown to it.
HOST_DEVICE static inline void step_state_end(struct StepState *s, double squares) {
    float scale = s->loss_scale.scale, norm = (float)(sqrt(squares) / (double)scale);
    uint64_t unknown = s->updates - s->known_updates, most = STEPS_AHEAD;
    float factor = s->clip > 0 && norm > s->clip ? s->clip / norm : 1.0f;
    s->grad_norm = norm;
    s->grad_scale = factor / scale;
    s->skip = !isfinite(norm);
    s->correction = s->corrections[unknown < most ? unknown : most];
    s->updates += !s->skip;
    loss_scale_update(&s->loss_scale, &s->loss_scale_settings, s->skip);
}

#endif
