// The work of a step's kernels, kernel by kernel, and the time that it takes where each of them was
// timed.
//
// A dry rank has all but memory. Its device gets a table whose kernels add their cost (cost.h) to a
// sum; then the model walks through a micro-batch as it always does. So what recomputation repeats,
// what a window leaves out and how a vocabulary is cut are counted as a run does them, with no
// second list of a block's kernels. The times come from a small model's real steps (rates.c).
//
// Called by choose.c and cluster.c; rehearse.c counts a whole step so.
#ifndef ZERO_PLAN_COUNT_H
#define ZERO_PLAN_COUNT_H
#include "kernels/cost.h"
#include "kernels/kernels.h"
#include "zero/rank/rank.h"

#define X(op, Args) KERNEL_##op,
enum KernelKind { KERNEL_LIST(X) NKERNEL };
#undef X

struct KernelCount {
    double flops[NKERNEL], bytes[NKERNEL], calls[NKERNEL]; // flops, bytes: as cost.h has them
    // Between kernels, in their queue: what this rank sends to the other TP ranks, and in how
    // many collectives.
    double sent, collectives;
};

// A device whose queues do nothing, and whose kernels add their cost to `to`, which may change: all
// since count_begin, until count_end. Events, memory and answers about scratch are its own.
struct Counter { // stands where a queue does
    struct KernelCount *to;
};
struct Counting {
    struct Device *device, opened;
    struct Kernels kernels;
    struct DeviceOps ops;
    struct Counter counter;
};
void count_begin(struct Counting *c, struct Device *d, struct KernelCount *to);
void count_end(struct Counting *c);

// The counts of one micro-batch; the backward pass includes what it restores. accumulate: gradients
// are added to those that are there.
struct PassCount {
    struct KernelCount forward, backward;
};
void count_passes(struct Rank *dry, bool accumulate, struct PassCount *out);

// The same of one unit of each kind: the embedding, a block (of all the mean), the head.
enum { NUNITKIND = UNIT_HEAD + 1 };
void count_units(struct Rank *dry, bool accumulate, struct PassCount out[NUNITKIND]);

// The rate of each kernel per second: in FLOP if it multiplies, else in bytes. 0: not known.
struct KernelRates {
    double of[NKERNEL];
    double call; // seconds that each call takes besides
};

// Seconds; 0 where a kernel that is called has no rate.
double count_seconds(const struct KernelCount *c, const struct KernelRates *r);

#endif
