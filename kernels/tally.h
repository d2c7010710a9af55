// Where a device's time went: how long each queue was busy, and what compute waited for.
//
// Time is cut into spans by whoever asks, such as the steps of a run; what an operation took is
// shared out among the spans that it lay in. So a span's parts never add up to more than its
// length. Waits have reasons, numbers of the caller's, who names them by the events that are waited
// for (docs/events.md). Where compute has nothing to do, the host comes late: for a reason, too,
// where it says so (tally_host), else for none.
//
// Filled in by trace.c, as operations end; read by zero/rank/breakdown.c. Adding takes a lock and
// some tens of nanoseconds.
#ifndef KERNELS_TALLY_H
#define KERNELS_TALLY_H
#include "kernels/device.h"

enum { TALLY_REASONS = 8, TALLY_SPANS = 8 };

// The reason to wait for this event: below TALLY_REASONS. NULL: of an event without a name.
typedef int TallyReason(const char *event);

// Seconds of one span.
struct TallySpan {
    double begin, end;          // base_seconds; INFINITY: it goes on
    double busy[NQUEUE];        // in operations that do more than order queues
    double wait[TALLY_REASONS]; // of compute
};

struct Tally;
struct Tally *tally_open(TallyReason *reason_of); // with a first span that begins now
void tally_close(struct Tally *t);                // NULL is allowed

// The queue did something, or waited for that event, between two moments; the moments of one queue
// come in order and do not overlap.
void tally_busy(struct Tally *t, enum Queue q, double begin, double end);
void tally_wait(struct Tally *t, enum Queue q, const char *event, double begin, double end);
// The host queued nothing meanwhile, since it waited for that.
void tally_host(struct Tally *t, const char *event, double begin, double end);

// Ends the span and begins the next. Returns the number of the one that has ended, from 0.
uint64_t tally_cut(struct Tally *t, double now);
// A span as far as operations that lay in it have ended; one of the newest TALLY_SPANS.
struct TallySpan tally_span(struct Tally *t, uint64_t number);

#endif
