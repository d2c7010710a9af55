// Records and writes traces: see trace.h. The format: "Trace Event Format", Google, complete events
// ("ph": "X"), times in microseconds; an arrow from a record to a wait for it is a pair of flow
// events ("ph": "s" and "f") with an id of its own, since several waits may wait for one record.
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

struct Trace *trace_open_tally(struct Device *d, TallyReason *reason_of) {
    if (!d->trace)
        d->trace = base_alloc_zeroed(sizeof *d->trace);
    d->trace->tally = tally_open(reason_of);
    return d->trace;
}

void trace_close(struct Trace *t) {
    for (int q = 0; t && q < NQUEUE; q++)
        free(t->ring[q].record);
    if (t)
        tally_close(t->tally);
    free(t);
}

void trace_add(struct Trace *t, enum Queue q, struct TraceRecord r) {
    struct TraceRing *ring = &t->ring[q];
    if (ring->record && (r.label.step || r.label.number))
        ring->record[ring->count++ % TRACE_RING] = r;
    if (t->tally && trace_is_wait(&r))
        tally_wait(t->tally, q, r.label.event.name, r.begin, r.end);
    else if (t->tally && !trace_is_record(&r))
        tally_busy(t->tally, q, r.begin, r.end);
}

void trace_host_waited(struct Device *d, const char *event, double begin) {
    if (d->label.event.event)
        trace_queued(d, QUEUE_COMPUTE, TRACE_HOST_WAIT, NULL);
    if (d->trace && d->trace->tally)
        tally_host(d->trace->tally, event, begin, base_seconds());
}

// ---- writing ----

static const char *const queue_names[NQUEUE] = {"compute", "comm", "in", "out"};

// The record of an event, from which arrows go to the waits for it.
struct Point {
    struct EventLabel event;
    const char *prefix; // of the queue's name
    int row;            // of the queue
    double at;
};

struct TraceWriter {
    FILE *f;
    int rank;
    uint64_t step;
    double start; // when the step began
    struct Point *point;
    size_t npoint, arrows;
};

bool trace_is_record(const struct TraceRecord *r) {
    return strcmp(r->name, "record") == 0;
}

bool trace_is_wait(const struct TraceRecord *r) {
    return strcmp(r->name, "wait") == 0 || (r->label.event.event && !trace_is_record(r));
}

// first_row: the row of the first queue.
static void write_names(const struct TraceWriter *w, const struct Trace *t, int first_row) {
    for (int q = 0; q < NQUEUE; q++)
        fprintf(w->f,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                "\"args\":{\"name\":\"%s%s\"}}",
                w->rank, first_row + q, t->prefix, queue_names[q]);
}

static int compare_points(const void *a, const void *b) {
    const struct EventLabel *x = &((const struct Point *)a)->event,
                            *y = &((const struct Point *)b)->event;
    if (x->event != y->event)
        return (uintptr_t)x->event < (uintptr_t)y->event ? -1 : 1;
    return x->record < y->record ? -1 : x->record > y->record;
}

// Returns the record that a wait of this step waited for, if that is in this step, too.
static const struct Point *find_point(const struct TraceWriter *w, const struct TraceRecord *wait) {
    struct Point key = {.event = wait->label.event};
    if (!key.event.record)
        return NULL;
    return bsearch(&key, w->point, w->npoint, sizeof key, compare_points);
}

// Writes one end of an arrow: "s" where it starts, "f" where it finishes.
static void write_arrow_end(const struct TraceWriter *w, const char *name, const char *phase,
                            int row, double at) {
    fprintf(w->f,
            ",\n{\"name\":\"%s\",\"cat\":\"event\",\"ph\":\"%s\",\"bp\":\"e\",\"id\":%zu,"
            "\"pid\":%d,\"tid\":%d,\"ts\":%.3f}",
            name, phase, w->arrows, w->rank, row, (at - w->start) * 1e6);
}

// An arrow ends inside the wait: the next operation begins at the wait's very end.
static void write_arrow(struct TraceWriter *w, const struct Point *from,
                        const struct TraceRecord *wait, int row) {
    w->arrows++;
    write_arrow_end(w, from->event.name, "s", from->row, from->at);
    write_arrow_end(w, from->event.name, "f", row, fmax(wait->begin, wait->end - 1e-9));
}

// Writes whom the operation has to do with: a collective's ranks, or an event and, of a wait, the
// queue that recorded it (from; NULL: unknown).
static void write_others(const struct TraceWriter *w, const struct TraceRecord *r,
                         const struct Point *from) {
    const char *name = r->label.event.name;
    if (r->label.group)
        fprintf(w->f, "\"group\":\"%s\",", r->label.group);
    if (name)
        fprintf(w->f, "\"%s\":\"%s\",", trace_is_record(r) ? "records" : "waits for", name);
    if (from)
        fprintf(w->f, "\"recorded by\":\"%s%s\",", from->prefix, queue_names[from->row % NQUEUE]);
}

static void write_record(struct TraceWriter *w, const struct TraceRecord *r, int row) {
    FILE *f = w->f;
    const char *event = r->label.event.name;
    const struct Point *from = trace_is_wait(r) ? find_point(w, r) : NULL;
    const char *kind = !event ? "" : trace_is_record(r) ? "record: " : "wait: ";
    fprintf(f, ",\n{\"name\":\"%s%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", kind,
            event           ? event
            : r->label.what ? r->label.what
                            : r->name,
            queue_names[row % NQUEUE], w->rank, row);
    fprintf(f, ",\"ts\":%.3f,\"dur\":%.3f,\"args\":{", (r->begin - w->start) * 1e6,
            (r->end - r->begin) * 1e6);
    write_others(w, r, from);
    fprintf(f, "\"operation\":\"%s\",\"unit\":%d,\"bytes\":%.0f", r->name, r->label.unit,
            r->label.bytes ? (double)r->label.bytes : r->cost.bytes);
    fprintf(f, ",\"flops\":%.0f,\"launches\":%u,\"shape\":\"%s\"}}", r->cost.flops, r->launches,
            r->cost.shape);
    if (from)
        write_arrow(w, from, r, row);
}

// Returns the next kept record of the step in one ring, from *i on. NULL: there are no more.
static const struct TraceRecord *next_of_step(const struct TraceRing *ring, uint64_t step,
                                              uint64_t *i) {
    *i = *i < ring->count && ring->count - *i > TRACE_RING ? ring->count - TRACE_RING : *i;
    while (*i < ring->count) {
        const struct TraceRecord *r = &ring->record[(*i)++ % TRACE_RING];
        if (r->label.step == step)
            return r;
    }
    return NULL;
}

// Finds when the step began, as far as it was kept, and where events were recorded in it.
static void find_points(struct TraceWriter *w, const struct Trace *t, int first_row) {
    const struct TraceRecord *r;
    for (int q = 0; q < NQUEUE; q++)
        for (uint64_t i = 0; (r = next_of_step(&t->ring[q], w->step, &i));) {
            w->start = fmin(w->start, r->begin);
            if (trace_is_record(r) && r->label.event.event)
                w->point[w->npoint++] =
                    (struct Point){r->label.event, t->prefix, first_row + q, r->begin};
        }
}

static void write_ring(struct TraceWriter *w, const struct Trace *t, int queue, int row) {
    const struct TraceRing *ring = &t->ring[queue];
    uint64_t begin = ring->count > TRACE_RING ? ring->count - TRACE_RING : 0, i = begin;
    if (begin && ring->record[begin % TRACE_RING].label.step == w->step)
        log_line(LOG_NORMAL,
                 "--trace: the step had more operations than the trace can hold; the file lacks "
                 "the first ones of the %s%s queue",
                 t->prefix, queue_names[queue]);
    const struct TraceRecord *r;
    while ((r = next_of_step(ring, w->step, &i)))
        write_record(w, r, row);
}

static void write_all(struct TraceWriter *w, const struct Trace *const traces[], int n) {
    w->start = INFINITY;
    w->point = base_alloc((size_t)n * NQUEUE * TRACE_RING * sizeof *w->point);
    for (int i = 0; i < n; i++)
        if (traces[i])
            find_points(w, traces[i], i * NQUEUE);
    qsort(w->point, w->npoint, sizeof *w->point, compare_points);
    fprintf(w->f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    fprintf(w->f,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
            w->rank, w->rank);
    for (int i = 0; i < n; i++)
        if (traces[i])
            write_names(w, traces[i], i * NQUEUE);
    for (int row = 0; row < n * NQUEUE; row++)
        if (traces[row / NQUEUE])
            write_ring(w, traces[row / NQUEUE], row % NQUEUE, row);
    fprintf(w->f, "\n]}\n");
    free(w->point);
}

int trace_write(const struct Trace *const traces[], int n, const char *path, uint64_t step,
                int rank, struct Error *e) {
    struct TraceWriter w = {.f = fopen(path, "w"), .rank = rank, .step = step};
    if (!w.f)
        return error_io(e, -errno, E_FILE_WRITE, "--trace %s: cannot create the file", path);
    write_all(&w, traces, n);
    bool failed = ferror(w.f);
    if (fclose(w.f) != 0)
        return error_io(e, -errno, E_FILE_WRITE, "--trace %s: cannot write the file", path);
    if (failed)
        return error_set(e, -EIO, E_FILE_WRITE,
                         "--trace %s: cannot write the file; check the space on its disk", path);
    return 0;
}
