// Records when a GPU's operations began and ended.
//
// The host only queues operations, so their times come from the GPU: a pair of timed events around
// each, in a ring for each stream. An event is reused when the ring comes round, so the newest
// operations are kept, as in a trace's own rings. Collecting reads them, up to the first that has
// not ended: nothing waits for them.
//
// A record ends where the next part of its operation begins, so records of a stream never overlap
// and the ring stays flat. The launches of a record are the difference of the stream's counts.
//
// Times are relative to an event that is recorded, and waited for, on an otherwise idle stream, so
// that its time by the host's clock is known: the host's own queues are in the same trace. An
// event's resolution is half a microsecond, and the time between events a float of milliseconds, so
// such a base must be recent.
#include "kernels/cuda/spans.h"

#include <stdlib.h>

enum { SPANS = TRACE_RING }; // kept for each stream

struct GpuSpan {
    cudaEvent_t begin, end;
    const char *name;
    struct Label label;
    struct Cost cost;
    uint64_t launches; // the stream's count at its begin; from its end on, its own count
};

struct Spans {
    uint64_t count, collected;
    struct GpuSpan span[SPANS];
};

static void open_span(struct Stream *s, const char *name) {
    if (!s->spans)
        s->spans = base_alloc_zeroed(sizeof *s->spans);
    struct GpuSpan *span = &s->spans->span[s->spans->count % SPANS];
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

void span_begin(struct Stream *s, const char *name, const void *args) {
    if (!s->cuda->device.trace)
        return;
    trace_queued(&s->cuda->device, s->number, name, args);
    open_span(s, name);
}

static struct GpuSpan *newest(struct Spans *spans) {
    return &spans->span[spans->count % SPANS];
}

void span_end(struct Stream *s) {
    if (!s->cuda->device.trace)
        return;
    struct GpuSpan *span = newest(s->spans);
    span->launches = s->launches - span->launches;
    s->spans->count++;
    CUDA_CHECK(cudaEventRecord(span->end, s->stream));
}

void span_part(struct Stream *s, const char *name, struct Cost cost) {
    if (!s->cuda->device.trace)
        return;
    if (newest(s->spans)->launches != s->launches) {
        span_end(s);
        open_span(s, name);
    }
    newest(s->spans)->name = name;
    newest(s->spans)->cost = cost;
}

static double seconds_between(cudaEvent_t from, cudaEvent_t to) {
    float ms;
    CUDA_CHECK(cudaEventElapsedTime(&ms, from, to));
    return (double)ms * 1e-3;
}

// Returns base_seconds at the time when the event for it was reached.
static double read_clock(struct Cuda *cuda) {
    if (!cuda->clock) {
        CUDA_CHECK(cudaStreamCreateWithFlags(&cuda->clock, cudaStreamNonBlocking));
        CUDA_CHECK(cudaEventCreateWithFlags(&cuda->now, cudaEventDefault));
    }
    CUDA_CHECK(cudaEventRecord(cuda->now, cuda->clock));
    CUDA_CHECK(cudaEventSynchronize(cuda->now));
    return base_seconds();
}

static bool has_ended(const struct GpuSpan *span) {
    cudaError_t status = cudaEventQuery(span->end);
    if (status == cudaErrorNotReady) {
        cudaGetLastError(); // CUDA records it like an error
        return false;
    }
    CUDA_CHECK_STATUS(status, "cudaEventQuery");
    return true;
}

static void collect_span(struct Stream *s, const struct GpuSpan *span, double now) {
    double begin = now - seconds_between(span->begin, s->cuda->now);
    trace_add(s->cuda->device.trace, s->number,
              (struct TraceRecord){.label = span->label,
                                   .name = span->name,
                                   .begin = begin,
                                   .end = begin + seconds_between(span->begin, span->end),
                                   .cost = span->cost,
                                   .launches = (unsigned)span->launches});
}

static void collect_stream(struct Stream *s, double now) {
    struct Spans *spans = s->spans;
    uint64_t first = spans->count > SPANS ? spans->count - SPANS : 0;
    if (spans->collected < first) { // spans that were not kept are lost
        s->cuda->device.trace->ring[s->number].count += first - spans->collected;
        spans->collected = first;
    }
    for (; spans->collected < spans->count; spans->collected++) {
        const struct GpuSpan *span = &spans->span[spans->collected % SPANS];
        if (!has_ended(span))
            return;
        collect_span(s, span, now);
    }
    spans->count = spans->collected = 0; // the first events are reused
}

void spans_collect(struct Device *d) {
    struct Cuda *cuda = (struct Cuda *)d;
    double now = read_clock(cuda);
    for (int q = 0; q < NQUEUE; q++)
        if (cuda->streams[q]->spans)
            collect_stream(cuda->streams[q], now);
}

void spans_close_clock(struct Cuda *cuda) {
    if (!cuda->clock)
        return;
    CUDA_CHECK(cudaEventDestroy(cuda->now));
    CUDA_CHECK(cudaStreamDestroy(cuda->clock));
}

void spans_close(struct Spans *spans) {
    for (int i = 0; spans && i < SPANS && spans->span[i].begin; i++) {
        CUDA_CHECK(cudaEventDestroy(spans->span[i].begin));
        CUDA_CHECK(cudaEventDestroy(spans->span[i].end));
    }
    free(spans);
}
