// When a GPU's operations began and ended, for traces: see spans.c.
#ifndef KERNELS_CUDA_SPANS_H
#define KERNELS_CUDA_SPANS_H
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// Around one operation on a stream. Where nobody traces, both do nothing. `name` lives as long as
// the program.
void span_begin(struct Stream *s, const char *name);
void span_end(struct Stream *s);

// Hands the newest spans to the device's trace, as many as were kept. The device must be idle.
void spans_collect(struct Device *d);
void spans_close(struct Spans *spans); // of one stream; NULL: nothing

#ifdef __cplusplus
}
#endif
#endif
