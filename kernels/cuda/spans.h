// When a GPU's operations began and ended, for traces: see spans.c.
#ifndef KERNELS_CUDA_SPANS_H
#define KERNELS_CUDA_SPANS_H
#include "kernels/cost.h"
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// Around one operation on a stream. Where nobody traces, both do nothing. `name` lives as long as
// the program.
void span_begin(struct Stream *s, const char *name);
void span_end(struct Stream *s);

// What such a span costs, and its parts. Whoever asks first whether somebody traces spares an
// untraced run the computing of a cost:
//
//   if (span_is_on(s))
//       span_part(s, "gelu_forward", cost_gelu_forward(&gelu));
//
// Between span_begin and span_end. What is queued from here on is a part of the operation, with a
// record, a name and a cost of its own. A record behind which nothing was queued yet becomes this
// one, so that an operation's first part leaves none that is empty.
//
// A part's bytes are what it must move by itself, even if a fused kernel would not; its operations
// are those of the whole shared out, so that parts never add up to more than there are.
static inline bool span_is_on(const struct Stream *s) {
    return s->cuda->device.trace;
}
void span_part(struct Stream *s, const char *name, struct Cost cost);

// Hands the newest spans to the device's trace, as many as were kept. The device must be idle.
void spans_collect(struct Device *d);
void spans_close(struct Spans *spans); // of one stream; NULL: nothing

#ifdef __cplusplus
}
#endif
#endif
