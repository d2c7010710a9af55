// The loss scale on the host's side: where it begins, and how it is told. What it is for, and how a
// step changes it, is in kernels/step_state.h: the device does that, and the host learns of it with
// the step's result. Part of a checkpoint (checkpoint.h).
#ifndef ZERO_LOSS_SCALE_H
#define ZERO_LOSS_SCALE_H
#include "kernels/step_state.h"

// The settings of a run whose loss is not scaled.
extern const struct LossScaleSettings loss_scale_none;

struct LossScale loss_scale_start(const struct LossScaleSettings *settings);

// Writes what an overflow did to the scale, as a line's end: ", the loss scale is halved to 2". A
// scale of 0 before it: there is none, and nothing to say.
void loss_scale_describe(const struct LossScale *before, const struct LossScale *after, char *text,
                         size_t bytes);

#endif
