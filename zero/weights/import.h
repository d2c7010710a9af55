// Weights that are no checkpoint of ours: read element by element into the shards that a rank owns,
// wherever those lie, and whichever part of each tensor they are of.
//
// A rank asks for its own elements alone, at most STATE_CHUNK at a time, so that no rank ever holds
// more of the model than its part, and 4 MB. Who reads knows files and names (data/hf/,
// data/llmc/); here only ranges of parameters are known. A checkpoint of another run (import_run.h)
// is loaded by zero/checkpoint/load.c, which does the same for our own files.
#ifndef ZERO_WEIGHTS_IMPORT_H
#define ZERO_WEIGHTS_IMPORT_H
#include "kernels/weights.h"
#include "zero/engine.h"

// That the source has each parameter of such a model, and no others; of one that is loaded as a
// whole its loading tells. Errors: those of ask and asked_all.
int import_check(const struct ModelConfig *c, const struct ImportSource *from, struct Error *e);

// Tells what there is to tell of the source's files, and says so where sequences are longer than
// the model's were. (Learned positions, of which there are no more, are refused before.)
void import_log(const struct ModelConfig *c, const struct ImportSource *from);

// Master weights and parameters from that source, in place of initial values (zero_init_weights
// comes before). All ranks call it, and agree. Errors: those of read or load, of any rank.
int import_weights(struct Zero *z, const struct ImportSource *from, struct Error *e);

#endif
