// A model file of llm.c as a sink of weights: what --export llmc:FILE writes.
//
// Each rank writes its own ranges of FILE.writing, which one of them has made at its full size. It
// begins with a marker until all are done; then rank 0 puts the header in its place, and gives the
// file its name: FILE is complete or not there. What a dead run has left under the other name is
// removed by the next, which knows it by the marker and by its lock, which nobody holds. Rows
// of padding behind the vocabulary are zeros. The opposite is model.h; folders of Hugging Face are
// written likewise (data/hf/write.h).
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

// Refuses a model that is no GPT-2 as llm.c computes it, dtypes but fp32 and bf16, and a file that
// exists. Errors: -EINVAL, -EEXIST, -errno. llmc_export_close in any case.
int llmc_export_open(struct LlmcExport *x, const char *path, const struct ExportModel *model,
                     struct Error *e);
void llmc_export_close(struct LlmcExport *x);

// The file as a sink of weights; it must stay open.
struct ExportSink llmc_export_sink(struct LlmcExport *x);

#endif
