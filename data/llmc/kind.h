// "llmc:FILE" as a source and sink of weights: a row of the list in train.c.
//
// Read next: model.h, export.h.
#ifndef DATA_LLMC_KIND_H
#define DATA_LLMC_KIND_H
#include "kernels/weights.h"

extern const struct WeightsKind llmc_weights;

#endif
