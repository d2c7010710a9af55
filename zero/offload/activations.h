// Keeps activations elsewhere between a layer's two passes.
//
// What a layer keeps for its backward pass (model/acts.h) is needed once, and late: the first
// layer's waits for all the others. If it is offloaded, the device has slots for a few layers,
// which take turns. As soon as a layer's forward pass is done its slot is copied to the layer's
// store, in host memory or on NVMe, and goes to the next layer; on the way back a free slot is
// filled with what the next layer kept. Both copies run beside the layers in between (Rajbhandari
// et al. 2021, ZeRO-Infinity, arXiv 2104.07857, section 5.1.3, where the kept tensors are
// checkpoints of activations: `--recompute block` here).
//
// TP ranks have the same checkpoints, so each may keep only its part of them (Rajbhandari et al.
// 2020, "ZeRO", section 6.1, partitioned activation checkpointing). Then only this TP rank's part
// leaves a slot, its store may be on the device, too, and after it has come back all TP ranks
// gather the whole.
//
// With 2 slots for 5 layers:
//
//   compute  forward 0 | 1        | 2        | 3        | 4 head 4 | 3       | 2       | 1  ...
//   out                | copy 0   | copy 1   | copy 2   |
//   in                                                             | copy 2  | copy 1  | copy 0
//
// The last layers never leave: their slots are still theirs when the walk turns. But a pipeline
// stage keeps the activations of several micro-batches (zero/pipe/order.h), a SET for each, and its
// next pass is of another one: then all layers leave, and the first to come back is fetched as soon
// as the pass before has given up its slot. Validation and samples have no backward pass, and keep
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

// Returns how many layers' kept activations are on the device at a time: all `kept` of them, of all
// sets, if the device is their store and they are whole; else one layer's and those fetched ahead
// of it, at least one, but not more than `kept`.
size_t act_offload_slots(enum TierKind store, bool in_parts, size_t kept, size_t prefetch);

struct ActOffloadSpec {
    struct Tier *store, *cpu; // cpu: for staging
    size_t layers, sets, slots;
    size_t forgotten; // how many of the first layers no backward pass follows (model/acts.h)
    char *mem;        // the slots, one after another
    size_t bytes;     // of each slot
    bool dry;         // there is no memory at mem
    const struct TpComm *parts; // TP ranks that keep a part of a slot each; NULL: it is kept whole
};

// Allocates stores for the layers that leave the device; if none does, nothing, and the calls below
// do nothing. Errors: -ENOMEM.
int act_offload_open(struct Zero *z, const struct ActOffloadSpec *spec, struct Error *e);
void act_offload_close(struct Zero *z);

// Called around a visit, which is queued between them.
void act_offload_before_unit(struct Zero *z, const struct Visit *v);
void act_offload_after_unit(struct Zero *z, const struct Visit *v);

#endif
