// Pipeline parallelism between ranks: which passes this one makes in a step (order.h), of which
// units (split.h), and what it hands to its neighbours around each (zero/engine.h, struct
// Parallel).
//
// Ranks with the same place and the same tokens are a line of the grid, a stage each. Neighbours in
// it are a group of two, whose swaps ride in the compute queue: what a pass works on is there when
// it begins, and what it has made leaves before the next one may overwrite it. Every stage has
// groups of parameters of its own, with ranks of its own to share them.
//
// The one group that two stages have is a tied head's, which is the embedding's: the last stage has
// a copy of it. The ends, a group of two as well, add up what each has made of its gradient, as
// Megatron-LM's embedding group does, and then both update it alike. The last stage has its part
// long before the first one; it reduces it behind its last pass, so that nothing of it waits for
// the first stage while that waits for a pass of it.
#ifndef ZERO_PIPE_PIPE_H
#define ZERO_PIPE_PIPE_H
#include "zero/pipe/order.h"
#include "zero/pipe/split.h"
#include "zero/report.h"

struct PipeGroup {
    struct SplitPart part;
    struct Comm *prev, *next; // with the stage before this one, and the one behind it; or NULL
    struct Comm *tied;        // the first stage and the last, where both use one group; or NULL
    struct Block staging;     // of swaps between processes, or GPUs
};

// This rank's ends of its groups along the grid's axis of stages, of which `parallel` is told;
// nothing where that has one. parts: (stages) of split_stages. tied: the ends share a group. dry:
// of a plan. pipe_close is due after all that uses it.
void pipe_join(struct PipeGroup *p, struct Parallel *parallel, struct Comm *all,
               const struct Grid *grid, const struct SplitPart *parts, bool tied, bool dry);
// Behind zero_open, which is told of p. Memory on the device; staged: of a collective's staging, in
// bytes. Errors: -ENOMEM.
int pipe_open(struct PipeGroup *p, struct Zero *z, struct Tier *device, size_t staged,
              struct Error *e);
void pipe_close(struct PipeGroup *p);

#endif
