// Records what every queue of a device did, and when, to be written as a Chrome trace.
//
// Each queue's worker adds to its own ring, so recording takes no lock and some tens of
// nanoseconds. The ring keeps the newest records of steps; those of one step are written. What runs
// outside of steps, a validation, is not recorded, unless somebody numbers it (struct TraceWatch).
#ifndef KERNELS_TRACE_H
#define KERNELS_TRACE_H
#include "kernels/cost.h"
#include "kernels/tally.h"

// An operation; or one of its parts, if a backend records them separately.
struct TraceRecord {
    struct Label label;
    const char *name;  // of the operation
    double begin, end; // base_seconds
    struct Cost cost;  // of a kernel; of a copy, its bytes
    unsigned launches; // on a GPU: kernels, products, copies and memsets queued by it
};

// Is told of each operation when it is queued, on the thread that does so: it may set the number in
// the device's label. args: of a kernel its struct of operands, of "copy" and "zero" a struct
// CopyOperands; else nothing that it could read. TRACE_HOST_WAIT is no operation: the host has
// waited for the label's event.
#define TRACE_HOST_WAIT "host wait"
struct TraceWatch {
    void (*queued)(void *context, struct Device *, enum Queue, const char *name, const void *args);
    void *context;
};

struct CopyOperands {
    void *dst;
    const void *src; // NULL: dst becomes zeros
    size_t bytes;
};

struct Trace {
    struct TraceRing {
        uint64_t count;             // so far, in steps; the newest TRACE_RING of them are kept
        struct TraceRecord *record; // NULL: not recorded
    } ring[NQUEUE];
    const char *prefix;      // of the queues' names: "" or "host "
    struct Tally *tally;     // where the time went; NULL: not wanted
    struct TraceWatch watch; // queued NULL: nobody
};

enum { TRACE_RING = 1 << 14 };

// Starts recording the device's queues. Close the trace after the device.
struct Trace *trace_open(struct Device *d, const char *prefix);
// The same with a tally; if the device is recorded already, returns its trace, else one that keeps
// no records.
struct Trace *trace_open_tally(struct Device *d, TallyReason *reason_of);
void trace_close(struct Trace *t); // NULL is allowed

void trace_add(struct Trace *t, enum Queue q, struct TraceRecord r);
// True if the trace keeps a record of each operation; false: a tally alone.
static inline bool trace_keeps_records(const struct Trace *t) {
    return t->ring[0].record;
}
static inline void trace_queued(struct Device *d, enum Queue q, const char *name,
                                const void *args) {
    if (d->trace && d->trace->watch.queued)
        d->trace->watch.queued(d->trace->watch.context, d, q, name, args);
}
// The host has waited from `begin` (base_seconds) until now for what `event` names, for the tally.
// If the device's label has an event, that is what it has waited for, and the watch is told.
void trace_host_waited(struct Device *d, const char *event, double begin);

// True if an operation only orders queues: it records an event, or waits for one.
bool trace_is_record(const struct TraceRecord *r);
bool trace_is_wait(const struct TraceRecord *r);

// Writes the records of `step` as Chrome trace JSON (chrome://tracing, ui.perfetto.dev): an event
// per operation, a row per queue, the rank as process. A wait and a record have the name of their
// event (docs/events.md), and an arrow goes from each record to the waits for it. traces: of n
// devices; NULL: not recorded. The devices must be idle. Errors: -errno.
int trace_write(const struct Trace *const traces[], int n, const char *path, uint64_t step,
                int rank, struct Error *e);

#endif
