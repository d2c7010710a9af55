// Weights that are no checkpoint of ours: from others' files into the shards that a rank owns, or
// from its shards into files, wherever those lie, and whichever part of each tensor they are of.
//
// A rank asks for its own elements alone, at most STATE_CHUNK at a time, so that no rank ever holds
// more of the model than its part, and 4 MB; and each writes its own shard, element range by
// element range, and nothing is gathered. What all places of a model's parts have (model/params.h),
// place 0 writes. Values are the master weights.
//
// Who reads and writes knows files and names (data/hf/, data/llmc/); here only ranges of parameters
// are known, and the order of steps among ranks: rank 0 makes the files, the others open them, all
// write and force what they wrote to the disk, and when all have, rank 0 gives the whole its name.
// Until then it is not there. A checkpoint of another run (import_run.h) is loaded by
// zero/checkpoint/load.c, which does the same for our own files.
#ifndef ZERO_WEIGHTS_WEIGHTS_H
#define ZERO_WEIGHTS_WEIGHTS_H
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

// The sink knows the model's parameters (params_visit). All ranks call it, and agree. joins: this
// process is not rank 0's. Errors: the sink's, of any rank.
int export_weights(struct Zero *z, const struct ExportSink *to, bool joins, struct Error *e);

// The hash of all master weights, by which runs are told apart to the last bit: model/params.h has
// what a range of them adds. All ranks call it, and wait.
uint64_t zero_weights_hash(struct Zero *z);

#endif
