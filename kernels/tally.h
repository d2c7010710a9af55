// Where a device's time went: how long each queue was busy, and what compute waited for.
//
// The caller cuts time into spans, such as the steps of a run; the time of an operation is divided
// among the spans that it overlaps. So the parts of a span never add up to more than its length.
// Waits have reasons, numbers of the caller's, which derives them from the names of events
// (docs/events.md). If compute has nothing to do, the host is late: also for a reason, if it gave
// one (tally_host), else for none.
//
// trace.c adds operations as they end; zero/rank/breakdown.c reads the result. Adding takes a lock
// and some tens of nanoseconds.
#ifndef KERNELS_TALLY_H
#define KERNELS_TALLY_H
#include "kernels/device.h"

enum { TALLY_REASONS = 8, TALLY_SPANS = 8 };

// Returns the reason to wait for this event: below TALLY_REASONS. NULL: an event without a name.
typedef int TallyReason(const char *event);

// Seconds of one span.
struct TallySpan {
    double begin, end;          // base_seconds; end is INFINITY while the span goes on
    double busy[NQUEUE];        // in operations other than records and waits
    double wait[TALLY_REASONS]; // of compute
};

struct Tally;
struct Tally *tally_open(TallyReason *reason_of); // with a first span that begins now
void tally_close(struct Tally *t);                // NULL is allowed

// Adds an operation of the queue, or a wait for that event, between two moments; the moments of one
// queue come in order and do not overlap. Waits of queues other than compute are not kept.
void tally_busy(struct Tally *t, enum Queue q, double begin, double end);
void tally_wait(struct Tally *t, enum Queue q, const char *event, double begin, double end);
// Adds a time in which the host queued nothing, because it waited for that event.
void tally_host(struct Tally *t, const char *event, double begin, double end);

// Ends the span and begins the next. Returns the number of the one that ended, from 0.
uint64_t tally_cut(struct Tally *t, double now);
// Returns a span, with the operations in it that have ended; one of the newest TALLY_SPANS.
struct TallySpan tally_span(struct Tally *t, uint64_t number);

#endif
