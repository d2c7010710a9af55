// A model file of llm.c as a source of weights, for --init llmc:FILE.
//
// An open file is only read; threads may share it. Read next: format.h.
#ifndef DATA_LLMC_MODEL_H
#define DATA_LLMC_MODEL_H
#include "data/llmc/format.h"
#include "kernels/weights.h"

struct LlmcModel {
    char *path;
    int fd;
    struct LlmcShape shape;
};

// Opens a file and checks its header and its length. Errors: those of file_open and
// llmc_read_header; -EINVAL for a file shorter than a header. Call llmc_model_close also after one.
int llmc_model_open(struct LlmcModel *m, const char *path, struct Error *e);
void llmc_model_close(struct LlmcModel *m);

// Describes the model as a JSON object of flags. free() it.
char *llmc_model_flags(const struct LlmcModel *m);

// Returns the model as a source of weights; it must stay open.
struct ImportSource llmc_model_source(struct LlmcModel *m);

#endif
