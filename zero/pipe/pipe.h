// Pipeline parallelism between ranks: the passes that a rank makes in a step (order.h), the units
// that they run (split.h), and what it exchanges with its neighbours around each (zero/engine.h,
// struct Parallel).
//
// Ranks with the same TP rank and the same tokens are a line of the grid, one per stage. Neighbours
// in it are a group of two, whose sendrecv runs in the compute queue: the input of a pass is there
// when it begins, and its output leaves before the next one may overwrite it. Every stage has its
// own groups of parameters, sharded over its own ranks.
//
// Only one group can be on two stages: a tied head's, which is the embedding's. The last stage has
// a copy of it. The first and the last stage, a group of two as well, sum their gradients of it, as
// Megatron-LM's embedding group does, and then both update it alike. The last stage has its
// gradient long before the first one; it reduces it after its last pass, so that it never waits for
// the first stage while that waits for one of its passes.
#ifndef ZERO_PIPE_PIPE_H
#define ZERO_PIPE_PIPE_H
#include "zero/pipe/order.h"
#include "zero/pipe/split.h"
#include "zero/report.h"

struct PipeGroup {
    struct SplitPart part;
    int first;                // the first stage with parameters that are trained
    struct Comm *prev, *next; // to the previous and to the next stage; NULL: none
    struct Comm *tied;        // first and last stage, if both use one group; or NULL
    struct Block staging;     // of sendrecv between processes, or GPUs
};

// Opens this rank's groups along the grid's axis of stages, and fills in `parallel`; does nothing
// for one stage. parts: (stages) of split_stages. first_trained: unit (model/params.h). tied: the
// first and the last stage share a group. dry: only planned. Call pipe_close after all that uses
// it.
void pipe_join(struct PipeGroup *p, struct Parallel *parallel, struct Comm *all,
               const struct Grid *grid, const struct SplitPart *parts, int first_trained, bool tied,
               bool dry);
// Called after zero_open: allocates on the device, and adds hops to z's chains; staged: bytes of
// the collectives' staging. Errors: -ENOMEM.
int pipe_open(struct PipeGroup *p, struct Zero *z, struct Tier *device, size_t staged,
              struct Error *e);
void pipe_close(struct PipeGroup *p);

#endif
