// "hf:DIR" as a source and sink of weights: a row of the list in train.c.
//
// An export after an import from such a folder copies the files beside its weights. Read next:
// model.h, export.c.
#ifndef DATA_HF_KIND_H
#define DATA_HF_KIND_H
#include "kernels/weights.h"

extern const struct WeightsKind hf_weights;

// The row's `make`. Refuses a model that a folder of the family cannot express, and a folder that
// exists. Errors: -EINVAL, -EEXIST, -errno, hf_text_make's.
int hf_make_sink(const char *folder, const struct ExportModel *model, struct ExportSink *out,
                 struct Error *e);

#endif
