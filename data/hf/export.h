// A model as a Hugging Face folder: what --export hf:DIR writes.
//
// The folder is complete or not there (write.h). config.json is the imported one with the new
// dtype, else made from the flags, in the spellings of transformers 4 and 5; what else an imported
// folder holds that belongs to the model (tokenizer, chat template, licence) is copied. A head that
// is tied to the token embedding is not written.
#ifndef DATA_HF_EXPORT_H
#define DATA_HF_EXPORT_H
#include "data/hf/model.h"
#include "data/hf/write.h"

struct HfExport {
    char *path, *family;
    const struct HfModel *from; // NULL: the model was made here
    struct HfSizes sizes;
    enum Dtype dtype;
    char *config;          // text of config.json
    struct HfPiece *piece; // of all parameters, in their order
    size_t npiece;
    struct HfWriter writer;
    bool laid_out;
};

// flags: a JSON object as hf_config_flags makes it. Refuses what a folder of that family cannot
// say, and a folder that exists. `from` must outlive the struct. Errors: -EINVAL, -EEXIST, -errno.
// hf_export_close in any case.
int hf_export_open(struct HfExport *x, const char *path, const char *flags, enum Dtype dtype,
                   const struct HfModel *from, struct Error *e);
void hf_export_close(struct HfExport *x); // one that is not open: nothing

// The folder as a sink of weights; it must stay open.
struct ExportSink hf_export_sink(struct HfExport *x);

#endif
