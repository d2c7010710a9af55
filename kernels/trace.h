// What every queue of a device did, and when: recorded as it runs, written as a Chrome trace.
//
// Each queue's worker adds to its own ring, so recording takes no lock and some tens of
// nanoseconds. The ring keeps the newest records; what is written are those of one step.
#ifndef KERNELS_TRACE_H
#define KERNELS_TRACE_H
#include "kernels/cost.h"
#include "kernels/tally.h"

// An operation; or one of its parts, where a backend tells them apart.
struct TraceRecord {
    struct Label label;
    const char *name;  // of the operation
    double begin, end; // base_seconds
    struct Cost cost;  // of a kernel; of a copy, its bytes
    unsigned launches; // on a GPU: kernels, products, copies and memsets that it queued
};

struct Trace {
    struct TraceRing {
        uint64_t count;             // records so far; the newest TRACE_RING of them are kept
        struct TraceRecord *record; // NULL: none is
    } ring[NQUEUE];
    const char *prefix;  // of the queues' names: "" or "host "
    struct Tally *tally; // where the time went; NULL: nobody asked
};

enum { TRACE_RING = 1 << 14 };

// From now on the device's queues are recorded. Close the trace after the device.
struct Trace *trace_open(struct Device *d, const char *prefix);
// The same, or of a device that is recorded already its trace, with a tally; where it is not, the
// trace keeps no records.
struct Trace *trace_open_tally(struct Device *d, TallyReason *reason_of);
void trace_close(struct Trace *t); // NULL is allowed

void trace_add(struct Trace *t, enum Queue q, struct TraceRecord r);
static inline bool trace_keeps(const struct Trace *t) {
    return t->ring[0].record;
}
// For the tally: the host has waited, until now, for what that event tells of.
void trace_host_waited(struct Device *d, const char *event, double begin);

// Whether an operation only orders queues: it records an event, or waits for one.
bool trace_is_record(const struct TraceRecord *r);
bool trace_is_wait(const struct TraceRecord *r);

// Writes the records of `step` as Chrome trace JSON (chrome://tracing, ui.perfetto.dev): an event
// per operation, a row per queue, the rank as process. A wait and a record have the name of their
// event (docs/events.md), and an arrow goes from each record to the waits for it. traces: of n
// devices; NULL: this one has none. The devices must be idle. Errors: -errno.
int trace_write(const struct Trace *const traces[], int n, const char *path, uint64_t step,
                int rank, struct Error *e);

#endif
