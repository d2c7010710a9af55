// A model file of llm.c as a sink of weights, for --export llmc:FILE.
//
// Each rank writes its own ranges of FILE.writing, which one of them has made at its full size. The
// file begins with a marker until all are done; then rank 0 replaces that by the header, and
// renames the file: FILE is complete or absent. The next run removes a dead run's FILE.writing,
// which has the marker and no lock. Padding rows after the vocabulary are zeros. model.h reads the
// file; data/hf/write.h writes folders of Hugging Face in the same way.
#ifndef DATA_LLMC_EXPORT_H
#define DATA_LLMC_EXPORT_H
#include "data/llmc/format.h"
#include "kernels/weights.h"

struct LlmcExport {
    char *path, *tmp_path;
    struct LlmcShape shape;
    int fd;
    bool made; // by this process, and not yet renamed
};

// Refuses a model that differs from llm.c's GPT-2, dtypes other than fp32 and bf16, and a file that
// exists. Errors: -EINVAL, -EEXIST, -errno. Call llmc_export_close also after an error.
int llmc_export_open(struct LlmcExport *x, const char *path, const struct ExportModel *model,
                     struct Error *e);
void llmc_export_close(struct LlmcExport *x);

// Returns the file as a sink of weights; it must stay open.
struct ExportSink llmc_export_sink(struct LlmcExport *x);

#endif
