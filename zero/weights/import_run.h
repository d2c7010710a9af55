// Another run's checkpoint as a source of weights: what "run:DIR" stands for.
//
// DIR is that run's --out, of which the newest checkpoint that is intact is taken, or a
// checkpoint's folder. Of its state the master weights alone are read, bit by bit; step, moments
// and loss scale are a new run's. How many ranks, which stage and which tiers it was trained with
// leaves no trace in them (zero/checkpoint/checkpoint.h). What model it is stands in the checkpoint
// itself, in the identity of its run. train.c makes the row of its list of this.
#ifndef ZERO_WEIGHTS_IMPORT_RUN_H
#define ZERO_WEIGHTS_IMPORT_RUN_H
#include "kernels/weights.h"

// Finds the checkpoint: its folder, and the identity of its run; free() both. The hash of what is
// read is not checked yet: loading does that, and holds what it loads against the same identity.
// Errors: -ENOENT and others with what is there and what would be right; checkpoint_file_open's.
int import_run_peek(const char *path, char **folder, char **identity, struct Error *e);

// The source. `path` outlives it. Returns 0.
int import_run_open(const char *path, struct ImportSource *out, struct Error *e);

#endif
