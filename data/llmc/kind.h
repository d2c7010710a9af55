// "llmc:FILE" as a source and sink of weights: a row of the list in train.c.
//
// Read next: format.h, model.c, export.c.
#ifndef DATA_LLMC_KIND_H
#define DATA_LLMC_KIND_H
#include "kernels/weights.h"

extern const struct WeightsKind llmc_weights;

// The row's `make`. Refuses a model that differs from llm.c's GPT-2, dtypes other than fp32 and
// bf16, and a file that exists. Errors: -EINVAL, -EEXIST, -errno.
int llmc_make_sink(const char *path, const struct ExportModel *model, struct ExportSink *out,
                   struct Error *e);

#endif
