// --breakdown: where the time of a rank's steps went: how long each queue was busy, and what
// compute waited for, as shares of a step.
//
// A step's time is that of its line in the log: from the result before to its own, whichever step's
// operations ran meanwhile. Its shares are known one step later, when everything in it has ended.
// At each moment compute is busy, or waits for a named event, or has nothing to do: these shares
// add up to 1. Those of other queues say how long they were busy beside it; a collective counts as
// busy also while it waits for other ranks.
//
// Opened by zero/train/trainer.c on the rank that logs. Read next: kernels/tally.h.
#ifndef ZERO_RANK_BREAKDOWN_H
#define ZERO_RANK_BREAKDOWN_H
#include "kernels/log_step.h"
#include "kernels/tally.h"

struct Trace;
struct Zero;

// The reasons for which compute waits.
enum WaitReason {
    WAIT_WEIGHTS,     // gathered from ranks, or fetched from where they are kept
    WAIT_UPDATE,      // of the weights, and what goes with it: norm, settings, results
    WAIT_DATA,        // tokens: read, and copied
    WAIT_GRADIENTS,   // reduced, or gone from a bucket that is needed again
    WAIT_ACTIVATIONS, // offloaded ones
    WAIT_OTHER,
    NWAITREASON
};
int breakdown_reason(const char *event); // an enum WaitReason; event: a name of docs/events.md

// Seconds, of a step or of many.
struct BreakdownTimes {
    double all;
    double busy[NQUEUE], host_busy[NQUEUE];
    double wait[NWAITREASON];
};

// Set the names and values for a log, of shares of the time and of seconds, and return how many: at
// most BREAKDOWN_VALUES. `host`: with the host's queues.
enum { BREAKDOWN_VALUES = 16 };
int breakdown_shares(const struct BreakdownTimes *t, bool host, struct LogValue out[]);
int breakdown_waited(const struct BreakdownTimes *t, struct LogValue out[]);
char *breakdown_text(const struct BreakdownTimes *t, bool host); // for people; free() it

struct Breakdown {
    struct Zero *zero; // NULL: not requested
    struct Trace *trace, *host_trace;
    uint64_t step; // whose shares are still pending; 0: none
    uint64_t span; // its span in the tally
    struct BreakdownTimes last, sum;
};

// Call before the first step. The traces of a rank's device and of its host; NULL, or without a
// tally: not requested, or there is no host.
void breakdown_open(struct Breakdown *b, struct Zero *z, struct Trace *trace, struct Trace *host);
// Compute the times of the step before `step`, which has ended, and of the last step, for which it
// waits. Return the step whose times are now in b->last; 0: of no step.
uint64_t breakdown_step(struct Breakdown *b, uint64_t step);
uint64_t breakdown_end(struct Breakdown *b);
void breakdown_pause(struct Breakdown *b); // the time since the last step belongs to no step

#endif
