// "hf:DIR" as a kind of place that weights come from or go to: its row of the list in train.c.
//
// An export that follows an import from another folder copies what that one has beside its weights.
// Read next: model.h, export.h.
#ifndef DATA_HF_KIND_H
#define DATA_HF_KIND_H
#include "kernels/weights.h"

extern const struct WeightsKind hf_weights;

#endif
