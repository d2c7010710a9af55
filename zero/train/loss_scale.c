// Describes what an overflow did to the loss scale: see loss_scale.h.
#include "zero/train/loss_scale.h"

#include <inttypes.h>
#include <stdio.h>

void loss_scale_describe(const struct LossScale *before, const struct LossScale *after, char *text,
                         size_t bytes) {
    double scale = (double)after->scale;
    *text = '\0';
    if (before->scale == 0)
        return;
    if (after->hysteresis < before->hysteresis)
        snprintf(text, bytes,
                 ", the loss scale stays at %.10g (of --loss-scale-hysteresis %" PRIu64 " left)",
                 scale, after->hysteresis);
    else if (after->scale < before->scale)
        snprintf(text, bytes, ", the loss scale is halved to %.10g", scale);
    else
        snprintf(text, bytes, ", the loss scale stays at %.10g, its minimum", scale);
}
