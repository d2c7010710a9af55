// A model as a Hugging Face folder: what --export hf:DIR writes.
//
// The folder is complete or not there (write.h). config.json is the imported one with the new
// dtype, else made from the flags, in the spellings of transformers 4 and 5; what else an imported
// folder holds that belongs to the model (tokenizer, chat template, licence) is copied, and what
// the run's text adds or puts in its place is text.h's. A head that is tied to the token embedding
// is not written.
#ifndef DATA_HF_EXPORT_H
#define DATA_HF_EXPORT_H
#include "data/hf/model.h"
#include "data/hf/text.h"
#include "data/hf/write.h"

struct HfExport {
    char *path, *family;
    const struct HfModel *from; // NULL: the model was made here
    struct HfSizes sizes;
    enum Dtype dtype;
    char *config; // text of config.json
    struct HfText text;
    struct HfPiece *piece; // of all parameters, in their order
    size_t npiece;
    struct HfWriter writer;
    bool laid_out;
};

// Refuses what a folder of that family cannot say, and a folder that exists. `from`, a model of
// this kind or NULL, must outlive the struct. Errors: -EINVAL, -EEXIST, -errno, hf_text_make's.
// hf_export_close in any case.
int hf_export_open(struct HfExport *x, const char *path, const struct ExportModel *model,
                   const struct HfModel *from, struct Error *e);
void hf_export_close(struct HfExport *x); // one that is not open: nothing

// The folder as a sink of weights; it must stay open.
struct ExportSink hf_export_sink(struct HfExport *x);

#endif
