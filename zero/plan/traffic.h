// What a training step moves, predicted from the plan: over the network, the bus and to the disk.
#ifndef ZERO_PLAN_TRAFFIC_H
#define ZERO_PLAN_TRAFFIC_H
#include "zero/offload/move.h"
#include "zero/zero.h"

// The bytes that each collective of a training step sends from this rank: what comm.h counts,
// predicted from the plan and its visits. With Psi parameters in 2 bytes and one micro-batch,
// (size - 1) / size times 2 Psi elements at stages 0 to 2 and 3 Psi at stage 3 (the ZeRO paper,
// section 7), and the reports; at stage 3 but 2 Psi of an embedding and a head that are untied,
// each of which is gathered once.
struct Traffic zero_traffic(const struct Zero *z);

// The same collective by collective, and beside which part of a step each is made: the forward
// passes of all micro-batches, their backward passes, the last one's backward pass alone, or behind
// the update, for the next step's first forward pass. bytes: what comm_count wants of it.
enum SendPhase { SEND_FORWARD, SEND_BACKWARD, SEND_LAST, SEND_UPDATE, NSENDPHASE };
typedef void SendsOne(void *context, const struct Comm *over, enum Collective kind, uint64_t bytes,
                      enum SendPhase when);
void zero_sends(const struct Zero *z, SendsOne *each, void *context);

// The bytes that a training step moves over the bus, and from and to the disk: what move.h counts.
// With the optimizer on the CPU of one rank, and one micro-batch in 2 bytes, 4 a parameter cross
// the bus: a gradient out and a weight in (ZeRO-Offload, section 4.1).
struct Moves {
    struct Moved forward, backward; // beside these passes, of all micro-batches
    struct Moved update;            // by an update, and the installing of what it made
};
struct Moves zero_moves(struct Zero *z);

#endif
