// A rehearsal: a training step of a dry rank, on devices that do nothing.
//
// The step is queued by the lines that queue it in a run, so what it sends, moves and computes is
// counted where a run counts it: in the collectives (comm.h), in the moves between tiers (move.h),
// and by the cost of each kernel (count.h). A run must find the same bytes: a fetch too many is a
// slow run that nobody notices. Tests hold the sums against closed formulas.
//
// The last of two steps is counted, since an update leaves something for the next step; of three
// where updates come late.
//
// Called by footprint.c, cluster.c and chains.c. Read next: bound.h, the time that it takes at
// least.
#ifndef ZERO_PLAN_REHEARSE_H
#define ZERO_PLAN_REHEARSE_H
#include "zero/plan/count.h"

// Beside which part of a step something is sent: the forward passes of all micro-batches, their
// backward passes, the last one's backward pass alone, or behind the update, for the next step's
// first forward pass.
enum SendPhase { SEND_FORWARD, SEND_BACKWARD, SEND_LAST, SEND_UPDATE, NSENDPHASE };

// The bytes that cross the bus, and that the disk reads and writes. With the optimizer on the CPU
// of one rank, and one micro-batch in 2 bytes, 4 a parameter cross the bus: a gradient out and a
// weight in (ZeRO-Offload, section 4.1).
struct Moves {
    struct Moved forward, backward; // beside these passes, of all micro-batches
    struct Moved update;            // by an update, and the installing of what it made
};

struct Rehearsal {
    // The bytes that each collective sends from this rank. With Psi parameters in 2 bytes and one
    // micro-batch (size - 1) / size times 2 Psi elements at stages 0 to 2 and 3 Psi at stage 3 (the
    // ZeRO paper, section 7), and the reports; at stage 3 but 2 Psi of an embedding and a head that
    // are untied, each of which is gathered once.
    struct Traffic traffic;
    double sent[NSENDPHASE]; // bytes of collectives beside the compute queue
    double sums[2];          // and in it, between TP ranks, in each pass
    struct Moves moves;
    struct KernelCount kernels; // of both devices; 0 where `each` was told of them
};

// The work since the last report: of a hop, or of something else (hop NULL), such as the reports
// or a unit. over, collective, bytes: the last group of ranks in which something was sent, and the
// bytes sent to each other rank of it; a hop has one at most.
struct Rehearsed {
    enum ChainKind kind;
    const struct Hop *hop;
    const struct HopArgs *args;
    enum SendPhase when;
    const struct Comm *over; // NULL: nothing was sent
    enum Collective collective;
    uint64_t bytes;
    struct Moved moved;
    double kernel_bytes; // of memory
};
typedef void RehearseOne(void *context, const struct Rehearsed *one);

// each: NULL: nobody is told.
void rehearse(struct Rank *dry, RehearseOne *each, void *context, struct Rehearsal *out);

#endif
