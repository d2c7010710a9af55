// When a GPU's operations began and ended, for traces: see spans.c.
#ifndef KERNELS_CUDA_SPANS_H
#define KERNELS_CUDA_SPANS_H
#include "kernels/cost.h"
#include "kernels/cuda/cuda.h"
#include "kernels/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

// Enclose one operation on a stream. Without a trace both do nothing. `name` lives as long as the
// program; args: see struct TraceWatch.
void span_begin(struct Stream *s, const char *name, const void *args);
void span_end(struct Stream *s);

// Sets the cost of a span or of a part. Testing first whether records are kept saves other runs the
// computation of a cost:
//
//   if (span_is_on(s))
//       span_part(s, "gelu_forward", cost_gelu_forward(&gelu));
//
// Called between span_begin and span_end. Later work is a part of the operation, with a record, a
// name and a cost of its own. A record without queued work becomes this one, so that an operation's
// first part leaves no empty record.
//
// A part's bytes are those that it must move by itself, even if a fused kernel would not; its
// operations are a share of the whole's, so that parts never add up to more than the whole.
static inline bool span_is_on(const struct Stream *s) {
    const struct Trace *trace = s->cuda->device.trace;
    return trace && trace_keeps_records(trace);
}
void span_part(struct Stream *s, const char *name, struct Cost cost);

// Hands the new spans since the last call to the device's trace, as many as were kept, up to the
// first that has not ended: all of them if the device is idle.
void spans_collect(struct Device *d);
void spans_close(struct Spans *spans); // of one stream; NULL: does nothing
void spans_close_clock(struct Cuda *cuda);

#ifdef __cplusplus
}
#endif
#endif
