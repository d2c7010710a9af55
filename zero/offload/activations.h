// Activations that are kept elsewhere between a layer's two passes.
//
// What a layer keeps for its backward pass (model/acts.h) is needed once, and late: the first
// layer's waits for all the others. Where it is offloaded, the device has slots for a few layers,
// which take turns. As soon as a layer's forward pass is done its slot is copied to the layer's
// store, in host memory or on NVMe, and is the next layer's; on the way back a slot that is free
// again is filled with what the layer to come kept. Both run beside the layers in between
// (Rajbhandari et al. 2021, ZeRO-Infinity, arXiv 2104.07857, section 5.1.3, where the kept tensors
// are checkpoints of activations: `--recompute block` here).
//
// Places of tensor parallelism have the same checkpoints, so each may keep a part of one alone
// (Rajbhandari et al. 2020, "ZeRO", section 6.1, partitioned activation checkpointing). Then what
// leaves a slot is this place's part, whose store may be on the device, too, and behind what comes
// back all places gather the whole.
//
// With 2 slots for 5 layers:
//
//   compute  forward 0 | 1        | 2        | 3        | 4 head 4 | 3       | 2       | 1  ...
//   out                | copy 0   | copy 1   | copy 2   |
//   in                                                             | copy 2  | copy 1  | copy 0
//
// The last layers never leave: their slots are still theirs when the walk turns. But a stage of a
// pipeline keeps what several micro-batches left (zero/pipe/order.h), a SET for each, and its next
// pass is of another one: then all layers leave, and the first to come back is fetched as soon as
// the pass before has given up its slot. Validation and samples have no backward pass, and keep
// nothing.
//
// Called around each visit through struct BackingOps (attach.c); opened by zero/rank/rank.c. Read
// next: offload/activations.c.
#ifndef ZERO_OFFLOAD_ACTIVATIONS_H
#define ZERO_OFFLOAD_ACTIVATIONS_H
#include "kernels/tp_comm.h"
#include "zero/offload/move.h"

struct ActOffload;
struct Visit;
struct Zero;

// How many layers' kept activations are on the device at a time: all of all sets, `kept` of them,
// where that is their store and they are not in parts; else a layer's and those that are fetched
// ahead of it, and never less than two.
size_t act_offload_slots(enum TierKind store, bool in_parts, size_t kept, size_t prefetch);

struct ActOffloadSpec {
    struct Tier *store, *cpu; // cpu: for staging
    size_t layers, sets, slots;
    char *mem;                  // the slots, one after another
    size_t bytes;               // of each
    bool dry;                   // there is nothing at mem
    const struct TpComm *parts; // which keep a part of a slot each; NULL: it is kept whole
};

// Takes stores for the layers that leave; where none does, nothing, and the calls below do nothing.
// Errors: -ENOMEM.
int act_offload_open(struct Zero *z, const struct ActOffloadSpec *spec, struct Error *e);
void act_offload_close(struct Zero *z);

// Around a visit, which is queued between before and after.
void act_offload_before_unit(struct Zero *z, const struct Visit *v);
void act_offload_after_unit(struct Zero *z, const struct Visit *v);

#endif
