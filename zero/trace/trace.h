// What became of every block of memory in a step: which hops and units wrote and read its bytes, in
// which order, and which waits made that order.
//
// Nothing of it is declared anywhere. What an operation of a queue reads and writes follows from
// its operands, when it is queued (kernels/access.h); for collectives and the disk, from those of
// their calls. When it began and ended is in the queues' own rings (kernels/trace.h), and so are
// records of events and waits for them. The watch around hops (zero/hop.h) and the device's label
// say for what it was queued. So the file is about what the queues did, on any device, stage and
// tier; and a wait that is missing is missing there, too.
//
//   record.c   notes operations as they are queued
//   order.c    makes operations of the file from them, and the order of these
//   lives.c    how long bytes were in use
//   write.c    the file: docs/trace.md
//
// Opened and closed by zero/rank/rank.c. With no trace open nothing of this runs.
#ifndef ZERO_TRACE_TRACE_H
#define ZERO_TRACE_TRACE_H
#include "kernels/tier.h"
#include "zero/offload/move.h"
#include "zero/zero.h"

struct ZeroTrace;
struct Trace;

// What a run is, for the head of the file.
struct ZeroTraceRun {
    const char *model, *device;
    int stage;
    enum TierKind param_tier, opt_tier, act_tier;
    size_t micro_batch, seq_len, layers;
    struct Grid grid;
    int rank, ranks;
};

enum { ZERO_TRACE_COMMS = 10 };

// Begins to list blocks of the tiers (NTIER), before the first is allocated. zero_trace_close frees
// it; the tiers point into it until then.
struct ZeroTrace *zero_trace_open(struct Tier *tiers);

// Begins to note operations, of an opened rank: its devices' traces record (NULL: there is none),
// and these are all groups in which it sends (NULL: it is in no such group).
struct ZeroTraceParts {
    struct Zero *zero;
    struct Trace *traces[2]; // of the device, and of the host
    struct Mover *mover;     // NULL: nothing is offloaded
    struct Comm *comms[ZERO_TRACE_COMMS];
};
void zero_trace_watch(struct ZeroTrace *t, const struct ZeroTraceParts *parts);

// Writes what the last step did; the devices must be idle. Errors: -errno.
int zero_trace_write(const struct ZeroTrace *t, const struct ZeroTraceRun *run, const char *path,
                     struct Error *e);

void zero_trace_close(struct ZeroTrace *t); // after the tiers' last block; NULL is allowed

#endif
