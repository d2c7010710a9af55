// Writes weights into files that are not our checkpoints: each rank writes its own shard, element
// range by element range, and nothing is gathered. TP rank 0 writes tensors that all TP ranks hold
// (model/params.h).
//
// The sink knows files and names (data/hf/export.h); here only ranges of parameters are known, and
// the order of steps among ranks: rank 0 makes the files, the others open them, all write and force
// their bytes to disk, and when all have, rank 0 gives the whole its name. Until then the export
// does not exist. Values are the master weights, at most STATE_CHUNK at a time. Its opposite is
// import.h.
#ifndef ZERO_WEIGHTS_EXPORT_H
#define ZERO_WEIGHTS_EXPORT_H
#include "kernels/weights.h"
#include "zero/engine.h"

// The sink knows the model's parameters (params_visit). All ranks call it, and agree. joins: this
// process is not rank 0's. Errors: the sink's, of any rank.
int export_weights(struct Zero *z, const struct ExportSink *to, bool joins, struct Error *e);

#endif
