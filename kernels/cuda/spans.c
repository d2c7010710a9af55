// When a GPU's operations began and ended.
//
// The host only queues operations, so their times come from the GPU: a pair of timed events around
// each, in a ring for each stream. An event is used again when the ring comes round, so that the
// newest operations are kept, as in a trace's own rings. They are read when the device is idle:
// nothing waits for them before.
//
// A record ends where the next part of its operation begins, so records of a stream never overlap
// and the ring stays flat. How many launches a record had is the difference of the stream's counts.
//
// Times are measured from the oldest begin that the first stream with any has kept. An event's
// resolution is half a microsecond, and its distance from another a float of milliseconds, so the
// base must be near. When that was on the host's clock an event tells that is recorded, and waited
// for, while the device is idle: the host's own queues stand in the same trace.
#include "kernels/cuda/spans.h"

#include "kernels/trace.h"

#include <stdlib.h>

enum { SPANS = TRACE_RING }; // kept for each stream

struct Span {
    cudaEvent_t begin, end;
    const char *name;
    struct Label label;
    struct Cost cost;
    uint64_t launches; // of the stream at its begin; from its end on, its own
};

struct Spans {
    uint64_t count;
    struct Span span[SPANS];
};

void span_begin(struct Stream *s, const char *name) {
    if (!s->cuda->device.trace)
        return;
    if (!s->spans)
        s->spans = base_alloc_zeroed(sizeof *s->spans);
    struct Span *span = &s->spans->span[s->spans->count % SPANS];
    if (!span->begin) {
        CUDA_CHECK(cudaEventCreateWithFlags(&span->begin, cudaEventDefault));
        CUDA_CHECK(cudaEventCreateWithFlags(&span->end, cudaEventDefault));
    }
    span->name = name;
    span->label = s->cuda->device.label;
    span->cost = (struct Cost){0};
    span->launches = s->launches;
    CUDA_CHECK(cudaEventRecord(span->begin, s->stream));
}

static struct Span *newest(struct Spans *spans) {
    return &spans->span[spans->count % SPANS];
}

void span_end(struct Stream *s) {
    if (!s->cuda->device.trace)
        return;
    struct Span *span = newest(s->spans);
    span->launches = s->launches - span->launches;
    s->spans->count++;
    CUDA_CHECK(cudaEventRecord(span->end, s->stream));
}

void span_part(struct Stream *s, const char *name, struct Cost cost) {
    if (!s->cuda->device.trace)
        return;
    if (newest(s->spans)->launches != s->launches) {
        span_end(s);
        span_begin(s, name);
    }
    newest(s->spans)->name = name;
    newest(s->spans)->cost = cost;
}

static const struct Span *oldest(const struct Spans *spans) {
    return &spans->span[spans->count > SPANS ? spans->count % SPANS : 0];
}

static double seconds_between(cudaEvent_t from, cudaEvent_t to) {
    float ms;
    CUDA_CHECK(cudaEventElapsedTime(&ms, from, to));
    return (double)ms * 1e-3;
}

// base_seconds when an event was reached. Nothing is queued in its stream.
static double time_of(struct Stream *s, cudaEvent_t event) {
    cudaEvent_t now;
    CUDA_CHECK(cudaEventCreateWithFlags(&now, cudaEventDefault));
    CUDA_CHECK(cudaEventRecord(now, s->stream));
    CUDA_CHECK(cudaEventSynchronize(now));
    double seconds = base_seconds() - seconds_between(event, now);
    CUDA_CHECK(cudaEventDestroy(now));
    return seconds;
}

static void collect_stream(struct Stream *s, cudaEvent_t base, double base_at,
                           struct Trace *trace) {
    struct Spans *spans = s->spans;
    uint64_t first = spans->count > SPANS ? spans->count - SPANS : 0;
    trace->ring[s->number].count += first; // what was not kept counts as lost
    for (uint64_t i = first; i < spans->count; i++) {
        const struct Span *span = &spans->span[i % SPANS];
        double begin = base_at + seconds_between(base, span->begin);
        double end = begin + seconds_between(span->begin, span->end);
        trace_add(trace, s->number,
                  (struct TraceRecord){.label = span->label,
                                       .name = span->name,
                                       .begin = begin,
                                       .end = end,
                                       .cost = span->cost,
                                       .launches = (unsigned)span->launches});
    }
    spans->count = 0;
}

void spans_collect(struct Device *d) {
    struct Cuda *cuda = (struct Cuda *)d;
    const struct Span *base = NULL;
    double base_at = 0;
    for (int q = 0; q < NQUEUE && !base; q++)
        if (cuda->own[q]->spans && cuda->own[q]->spans->count) {
            base = oldest(cuda->own[q]->spans);
            base_at = time_of(cuda->own[q], base->begin);
        }
    for (int q = 0; q < NQUEUE && base; q++)
        if (cuda->own[q]->spans)
            collect_stream(cuda->own[q], base->begin, base_at, d->trace);
}

void spans_close(struct Spans *spans) {
    for (int i = 0; spans && i < SPANS && spans->span[i].begin; i++) {
        CUDA_CHECK(cudaEventDestroy(spans->span[i].begin));
        CUDA_CHECK(cudaEventDestroy(spans->span[i].end));
    }
    free(spans);
}
