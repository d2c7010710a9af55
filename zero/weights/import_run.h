// Another run's checkpoint as a source of weights, for "run:DIR".
//
// DIR is that run's --out, whose newest intact checkpoint is taken, or a checkpoint's folder. Only
// the master weights of its state are read, bit by bit; step, moments and loss scale are a new
// run's. Its number of ranks, stage and tiers leave no trace in them
// (zero/checkpoint/checkpoint.h). The checkpoint itself says which model it is, in the identity of
// its run. train.c lists it as a source.
#ifndef ZERO_WEIGHTS_IMPORT_RUN_H
#define ZERO_WEIGHTS_IMPORT_RUN_H
#include "kernels/weights.h"

// Finds the checkpoint: its folder, and the identity of its run; free() both. Its hash is not
// checked yet: loading does that, and compares the identity again. Errors: -ENOENT and others with
// what is there and what would be right; checkpoint_file_open's.
int import_run_peek(const char *path, char **folder, char **identity, struct Error *e);

// Fills in the source. `path` outlives it. Returns 0.
int import_run_open(const char *path, struct ImportSource *out, struct Error *e);

#endif
