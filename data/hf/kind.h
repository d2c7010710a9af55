// "hf:DIR" as a source and sink of weights: a row of the list in train.c.
//
// An export after an import from such a folder copies the files beside its weights. Read next:
// model.h, export.h.
#ifndef DATA_HF_KIND_H
#define DATA_HF_KIND_H
#include "kernels/weights.h"

extern const struct WeightsKind hf_weights;

#endif
