// When a GPU's operations began and ended, for traces: see spans.c.
#ifndef KERNELS_CUDA_SPANS_H
#define KERNELS_CUDA_SPANS_H
#include "kernels/cost.h"
#include "kernels/cuda/cuda.h"
#include "kernels/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

// Around one operation on a stream. Where nobody traces, both do nothing. `name` lives as long as
// the program.
void span_begin(struct Stream *s, const char *name);
void span_end(struct Stream *s);

// What such a span costs, and its parts. Whoever asks first whether somebody keeps records spares
// another run the computing of a cost:
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
    const struct Trace *trace = s->cuda->device.trace;
    return trace && trace_keeps(trace);
}
void span_part(struct Stream *s, const char *name, struct Cost cost);

// Hands the newest spans since the last time to the device's trace, as many as were kept, up to the
// first that has not ended: where the device is idle, all.
void spans_collect(struct Device *d);
void spans_close(struct Spans *spans); // of one stream; NULL: nothing
void spans_close_clock(struct Cuda *cuda);

#ifdef __cplusplus
}
#endif
#endif
