// The dynamic loss scale: see loss_scale.h.
#include "zero/loss_scale.h"

#include <inttypes.h>
#include <stdio.h>

// Far above what any gradient survives, and far enough below infinity: a gradient of zeros alone
// would let the scale grow for ever.
static const float MOST = 0x1p100f;

const struct LossScaleSettings loss_scale_none = {.initial = 1, .least = 1, .hysteresis = 1};

struct LossScale loss_scale_start(const struct LossScaleSettings *settings) {
    return (struct LossScale){settings->initial, settings->hysteresis, 0};
}

static void shrink(struct LossScale *s, const struct LossScaleSettings *settings) {
    s->good = 0;
    if (s->hysteresis > 1)
        s->hysteresis--;
    else
        s->scale = s->scale / 2 < settings->least ? settings->least : s->scale / 2;
}

void loss_scale_update(struct LossScale *s, const struct LossScaleSettings *settings,
                       bool overflow) {
    if (overflow) {
        shrink(s, settings);
        return;
    }
    s->good++;
    if (settings->window == 0 || s->good % settings->window != 0)
        return;
    s->hysteresis = settings->hysteresis;
    if (s->scale < MOST)
        s->scale *= 2;
}

void loss_scale_describe(const struct LossScale *before, const struct LossScale *after, char *text,
                         size_t bytes) {
    double scale = (double)after->scale;
    if (after->hysteresis < before->hysteresis)
        snprintf(text, bytes,
                 ", the loss scale stays at %.10g (of --loss-scale-hysteresis %" PRIu64 " left)",
                 scale, after->hysteresis);
    else if (after->scale < before->scale)
        snprintf(text, bytes, ", the loss scale is halved to %.10g", scale);
    else
        snprintf(text, bytes, ", the loss scale stays at %.10g, its least", scale);
}
