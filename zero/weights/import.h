// Reads weights that are not our checkpoints, element by element, into the shards that a rank owns,
// in any tier, and of any part of a tensor.
//
// A rank reads only its own elements, at most STATE_CHUNK at a time, so that no rank ever holds
// more of the model than its part, and 4 MB. The source knows files and names (data/hf/,
// data/llmc/); here only ranges of parameters are known. zero/checkpoint/load.c loads a checkpoint
// of another run (import_run.h), and does the same for our own files.
#ifndef ZERO_WEIGHTS_IMPORT_H
#define ZERO_WEIGHTS_IMPORT_H
#include "kernels/weights.h"
#include "zero/engine.h"

// Checks that the source has each parameter of such a model, and no others; for one that is loaded
// as a whole, loading checks it. Errors: those of ask and asked_all.
int import_check(const struct ModelConfig *c, const struct ImportSource *from, struct Error *e);

// Logs the remarks of the source's files, and if sequences are longer than the model's were. (More
// learned positions than it has are refused before.)
void import_log(const struct ModelConfig *c, const struct ImportSource *from);

// Loads master weights and parameters from that source, in place of initial values, after
// zero_init_weights. All ranks call it, and agree. Errors: those of read or load, of any rank.
int import_weights(struct Zero *z, const struct ImportSource *from, struct Error *e);

#endif
