// The hash of all weights, which compares runs to the last bit: model/params.h has what a range of
// them adds.
//
// Called at a run's end, and by tests.
#ifndef ZERO_WEIGHTS_WEIGHTS_HASH_H
#define ZERO_WEIGHTS_WEIGHTS_HASH_H
#include "zero/engine.h"

uint64_t zero_weights_hash(struct Zero *z); // of the master weights; all ranks call it, and wait

#endif
