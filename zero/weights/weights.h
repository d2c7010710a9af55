// Reads and writes weights that are not our checkpoints: from files into the shards that a rank
// owns, or from its shards into files, in any tier, and of any part of a tensor.
//
// A rank reads only its own elements, at most STATE_CHUNK at a time, so that no rank ever holds
// more of the model than its part, and 4 MB. Each rank writes its own shard, element range by
// element range, and nothing is gathered; TP rank 0 writes tensors that all TP ranks hold
// (model/params.h). Values are the master weights.
//
// The source and the sink know files and names (data/hf/, data/llmc/); here only ranges of
// parameters are known, and the order of steps among ranks: rank 0 makes the files, the others open
// them, all write and force their bytes to disk, and when all have, rank 0 gives the whole its
// name. Until then the export does not exist. zero/checkpoint/load.c loads a checkpoint of another
// run (import_run.h), and does the same for our own files.
#ifndef ZERO_WEIGHTS_WEIGHTS_H
#define ZERO_WEIGHTS_WEIGHTS_H
#include "kernels/weights.h"
#include "zero/engine.h"

// Checks that the source has each parameter of such a model, and no others; for one that is loaded
// as a whole, loading checks it. Errors: those of ask and check_all_asked.
int import_check(const struct ModelConfig *c, const struct ImportSource *from, struct Error *e);

// Logs the remarks of the source's files, and if sequences are longer than the model's were. (More
// learned positions than it has are refused before.)
void import_log(const struct ModelConfig *c, const struct ImportSource *from);

// Loads master weights and parameters from that source, or the adapters' alone, in place of initial
// values, after zero_init_weights. All ranks call it, and agree. Errors: those of read or load, of
// any rank.
int import_weights(struct Zero *z, const struct ImportSource *from, struct Error *e);

// The sink knows the model's parameters, or its adapters' (params_visit); a model is exported with
// its adapters merged. All ranks call it, and agree. joins: this process is not rank 0's. Errors:
// the sink's, of any rank.
int export_weights(struct Zero *z, const struct ExportSink *to, bool joins, struct Error *e);

// Returns the hash of all master weights, which compares runs to the last bit: model/params.h has
// what a range of them adds. All ranks call it, and wait.
uint64_t zero_weights_hash(struct Zero *z);

// Returns the same of the weights that adapters are added to, for z->base_hash; 0: there are no
// adapters.
uint64_t zero_base_hash(struct Zero *z);

#endif
