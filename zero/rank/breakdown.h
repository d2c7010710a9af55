// --breakdown: where the time of a rank's steps went. How long each queue was busy, and what
// compute waited for, as shares of a step.
//
// A step's time is that of its line in the log: from the result before to its own, whichever step's
// operations ran meanwhile. Its shares are known one step later, when all that lay in it has ended.
// Compute is at each moment busy, or waits for a named event, or has nothing to do: these shares
// add up to 1. Those of other queues are what they were busy beside it; a collective counts as busy
// also while it waits for other ranks.
//
// Opened by zero/train/trainer.c on the rank that speaks. Read next: kernels/tally.h.
#ifndef ZERO_RANK_BREAKDOWN_H
#define ZERO_RANK_BREAKDOWN_H
#include "kernels/log_step.h"
#include "kernels/tally.h"

struct Trace;
struct Zero;

// Why compute waits.
enum WaitReason {
    WAIT_WEIGHTS,     // gathered from ranks, or fetched from where they are kept
    WAIT_UPDATE,      // of the weights, and what goes with it: norm, settings, results
    WAIT_DATA,        // tokens: read, and copied
    WAIT_GRADIENTS,   // reduced, or gone from a bucket that is wanted again
    WAIT_ACTIVATIONS, // that are offloaded
    WAIT_OTHER,
    NWAITREASON
};
int breakdown_reason(const char *event); // of docs/events.md

// Seconds, of a step or of many.
struct BreakdownTimes {
    double all;
    double busy[NQUEUE], host_busy[NQUEUE];
    double wait[NWAITREASON];
};

// The names and values that a log has: shares of the time, and seconds. The host's queues only
// where there are any.
enum { BREAKDOWN_VALUES = 16 };
int breakdown_shares(const struct BreakdownTimes *t, bool host, struct LogValue out[]);
int breakdown_waited(const struct BreakdownTimes *t, struct LogValue out[]);
char *breakdown_text(const struct BreakdownTimes *t, bool host); // for people; free() it

struct Breakdown {
    struct Zero *zero; // NULL: nobody asked
    struct Trace *trace, *host_trace;
    uint64_t step; // whose shares are still to be told; 0: none
    uint64_t span; // its tally's
    struct BreakdownTimes last, sum;
};

// Before the first step. The traces of a rank's device and of its host; NULL, or without a tally:
// nobody asked, or there is no host.
void breakdown_open(struct Breakdown *b, struct Zero *z, struct Trace *trace, struct Trace *host);
// Whoever asked is told of b->last: of the step that is returned, 0: of none.
uint64_t breakdown_step(struct Breakdown *b, uint64_t step); // has ended: of the one before
uint64_t breakdown_end(struct Breakdown *b);                 // waits: of the last
void breakdown_pause(struct Breakdown *b);                   // what came since belongs to no step

#endif
