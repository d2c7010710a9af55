// Replicas: ranks that keep the same shard of everything, each with tokens of its own. Once a step
// the gradients of a shard are summed over them (Zhang et al. 2022, "MiCS", section 3).
//
// Called by zero/rank/rank.c. Read next: zero/hop.h.
#ifndef ZERO_REPLICA_REPLICA_H
#define ZERO_REPLICA_REPLICA_H
#include "zero/zero.h"

// Adds that sum to the chains of all groups, after zero_open. replicas: NULL: no others.
void replica_join(struct Zero *z, struct Comm *replicas);

#endif
