// Adds adapters to the weights that they are for, where a model is exported:
// W + (alpha / rank) B A, in fp32, from master weights. (Hu et al. 2021, section 4.1; PEFT's
// merge_and_unload.)
#ifndef ZERO_WEIGHTS_MERGE_H
#define ZERO_WEIGHTS_MERGE_H
#include "zero/engine.h"

struct Merge {
    int group;          // whose adapter is in `whole`; -1: none
    float *own, *whole; // one adapter's master weights: this rank's shard, and all of it
};

void merge_open(struct Merge *m, struct Zero *z);
void merge_close(struct Merge *m);

// Gathers the adapter of a block's group, if it has one. All ranks that share state call it for the
// same groups, in order.
void merge_gather(struct Merge *m, struct Zero *z, int g);

#endif
