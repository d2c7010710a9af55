// The loss scale in words. kernels/step_state.h has its purpose, and how a step changes it: the
// device does that, and the host learns of it with the step's result.
#ifndef ZERO_TRAIN_LOSS_SCALE_H
#define ZERO_TRAIN_LOSS_SCALE_H
#include "kernels/step_state.h"

#include <stddef.h>

// Writes what an overflow did to the scale, as a line's end: ", the loss scale is halved to 2". A
// scale of 0 before it: there is none, and the text is empty.
void loss_scale_describe(const struct LossScale *before, const struct LossScale *after, char *text,
                         size_t bytes);

#endif
