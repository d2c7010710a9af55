// What several ranks have beside their shards, and must have alike: see shared.c.
#ifndef ZERO_CHECKPOINT_SHARED_H
#define ZERO_CHECKPOINT_SHARED_H
#include "zero/comm/grid.h"
#include "zero/engine.h"

// Whether it is the same on all of them. All ranks call it, between steps, when what was queued is
// finished. Errors: -EIO; on rank 0 with a line that names a rank that differs.
int shared_check(struct Zero *z, struct Error *e);

// The grid that the ranks stand in.
struct Grid shared_grid(const struct Zero *z);

#endif
