// Weights into files that are no checkpoint of ours: each rank writes its own shard, element range
// by element range, and nothing is gathered. What all places of a model's parts have
// (model/params.h), place 0 writes.
//
// Who writes knows files and names (data/hf/export.h); here only ranges of parameters are known,
// and the order of steps among ranks: rank 0 makes the files, the others open them, all write and
// force what they wrote to the disk, and when all have, rank 0 gives the whole its name. Until then
// it is not there. Values are the master weights, at most STATE_CHUNK at a time. Its opposite is
// import.h.
#ifndef ZERO_WEIGHTS_EXPORT_H
#define ZERO_WEIGHTS_EXPORT_H
#include "kernels/weights.h"
#include "zero/engine.h"

// The sink knows the model's parameters (params_visit). All ranks call it, and agree. joins: this
// process is not rank 0's. Errors: the sink's, of any rank.
int export_weights(struct Zero *z, const struct ExportSink *to, bool joins, struct Error *e);

// The hash of all master weights, by which runs are told apart to the last bit: model/params.h has
// what a range of them adds. All ranks call it, and wait.
uint64_t zero_weights_hash(struct Zero *z);

#endif
