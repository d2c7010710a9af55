// The dynamic loss scale: what fp16 needs so that small gradients are not lost.
//
// fp16 holds nothing below 2^-24, and many gradients are smaller. So the loss is multiplied by a
// scale before the backward pass, and with it every gradient; the update divides it out again, in
// fp32 (Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2). The best scale is
// the largest with which no gradient overflows, and it changes during training. It is searched as
// DeepSpeed does (its DynamicLossScaler, with consecutive_hysteresis false): a step whose gradient
// is not finite is skipped, and such steps use up the hysteresis first, then halve the scale each;
// `window` steps in a row without one double the scale and renew the hysteresis.
//
// Pure: the host of every rank makes the same updates from the same norm. A step in fp32 or bf16
// has a scale of 1 that never changes. Called by step.c; part of a checkpoint (checkpoint.h).
#ifndef ZERO_LOSS_SCALE_H
#define ZERO_LOSS_SCALE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Scales are powers of two, so that dividing by them is exact.
struct LossScaleSettings {
    float initial, least;
    uint64_t window;     // good steps in a row that double the scale; 0: it never grows
    uint64_t hysteresis; // overflows that halve it, the last of them and all that follow; 1: each
};

struct LossScale {
    float scale;         // of the next step
    uint64_t hysteresis; // what is left of it; 1: the next overflow halves the scale
    uint64_t good;       // steps since the last overflow
};

// The settings of a run whose loss is not scaled.
extern const struct LossScaleSettings loss_scale_none;

struct LossScale loss_scale_start(const struct LossScaleSettings *settings);

// After each step; overflow: its gradient was not finite.
void loss_scale_update(struct LossScale *s, const struct LossScaleSettings *settings,
                       bool overflow);

// Writes what an overflow did to the scale, as a line's end: ", the loss scale is halved to 2".
void loss_scale_describe(const struct LossScale *before, const struct LossScale *after, char *text,
                         size_t bytes);

#endif
