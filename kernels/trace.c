// Recording and writing of traces: see trace.h. The format: "Trace Event Format", Google, complete
// events ("ph": "X"), times in microseconds.
#include "kernels/trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Trace *trace_open(struct Device *d, const char *prefix) {
    struct Trace *t = base_alloc_zeroed(sizeof *t);
    t->prefix = prefix;
    for (int q = 0; q < NQUEUE; q++)
        t->ring[q].record = base_alloc(TRACE_RING * sizeof(struct TraceRecord));
    d->trace = t;
    return t;
}

void trace_close(struct Trace *t) {
    for (int q = 0; t && q < NQUEUE; q++)
        free(t->ring[q].record);
    free(t);
}

void trace_add(struct Trace *t, enum Queue q, struct TraceRecord r) {
    struct TraceRing *ring = &t->ring[q];
    ring->record[ring->count++ % TRACE_RING] = r;
}

// ---- writing ----

static const char *const queue_names[NQUEUE] = {"compute", "comm", "in", "out"};

// first: the row of the first queue.
static void write_names(FILE *f, const struct Trace *t, int rank, int first) {
    for (int q = 0; q < NQUEUE; q++)
        fprintf(f,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                "\"args\":{\"name\":\"%s%s\"}}",
                rank, first + q, t->prefix, queue_names[q]);
}

static void write_record(FILE *f, const struct TraceRecord *r, int rank, int row, double start) {
    fprintf(f, ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d",
            r->label.what ? r->label.what : r->name, queue_names[row % NQUEUE], rank, row);
    fprintf(f, ",\"ts\":%.3f,\"dur\":%.3f", (r->begin - start) * 1e6, (r->end - r->begin) * 1e6);
    fprintf(f, ",\"args\":{\"operation\":\"%s\",\"unit\":%d,\"bytes\":%.0f", r->name, r->label.unit,
            r->label.bytes ? (double)r->label.bytes : r->cost.bytes);
    fprintf(f, ",\"flops\":%.0f,\"launches\":%u,\"shape\":\"%s\"}}", r->cost.flops, r->launches,
            r->cost.shape);
}

// When the step began, as far as it was kept.
static double first_time(const struct Trace *t, uint64_t step) {
    double first = INFINITY;
    for (int q = 0; q < NQUEUE; q++)
        for (size_t i = 0; i < size_min(t->ring[q].count, TRACE_RING); i++) {
            const struct TraceRecord *r = &t->ring[q].record[i];
            first = r->label.step == step && r->begin < first ? r->begin : first;
        }
    return first;
}

static void write_ring(FILE *f, const struct Trace *t, int queue, uint64_t step, int rank, int row,
                       double start) {
    const struct TraceRing *ring = &t->ring[queue];
    uint64_t begin = ring->count > TRACE_RING ? ring->count - TRACE_RING : 0;
    if (begin && ring->record[begin % TRACE_RING].label.step == step)
        log_line(LOG_NORMAL,
                 "--trace: the step had more operations than are kept; the first of the "
                 "%s%s queue are missing",
                 t->prefix, queue_names[queue]);
    for (uint64_t i = begin; i < ring->count; i++) {
        const struct TraceRecord *r = &ring->record[i % TRACE_RING];
        if (r->label.step == step)
            write_record(f, r, rank, row, start);
    }
}

int trace_write(const struct Trace *const traces[], int n, const char *path, uint64_t step,
                int rank, struct Error *e) {
    FILE *f = fopen(path, "w");
    if (!f)
        return error_set(e, -errno, "--trace %s: %s", path, strerror(errno));
    double start = INFINITY;
    for (int i = 0; i < n; i++)
        start = traces[i] ? fmin(start, first_time(traces[i], step)) : start;
    fprintf(f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    fprintf(f,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
            rank, rank);
    for (int i = 0; i < n; i++)
        if (traces[i])
            write_names(f, traces[i], rank, i * NQUEUE);
    for (int row = 0; row < n * NQUEUE; row++)
        if (traces[row / NQUEUE])
            write_ring(f, traces[row / NQUEUE], row % NQUEUE, step, rank, row, start);
    fprintf(f, "\n]}\n");
    bool failed = ferror(f);
    if (fclose(f) != 0 || failed)
        return error_set(e, -EIO, "--trace %s: cannot write", path);
    return 0;
}
