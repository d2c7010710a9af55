// Writes a model as a Hugging Face folder, for --export hf:DIR.
//
// The folder is complete or absent (write.h). config.json is the imported one with the new dtype,
// or made from the flags, in the spellings of transformers 4 and 5. The other files of an imported
// folder that belong to the model (tokenizer, chat template, licence) are copied; text.h adds or
// replaces those that depend on the run's text. A head that is tied to the token embedding is not
// written.
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
    struct HfPiece *piece; // the pieces of all parameters, in their order
    size_t npiece;
    struct HfWriter writer;
    bool laid_out;
};

// Refuses a model that a folder of the family cannot express, and a folder that exists. `from`, a
// model of this kind or NULL, must outlive the struct. Errors: -EINVAL, -EEXIST, -errno,
// hf_text_make's. Call hf_export_close also after an error.
int hf_export_open(struct HfExport *x, const char *path, const struct ExportModel *model,
                   const struct HfModel *from, struct Error *e);
void hf_export_close(struct HfExport *x); // does nothing if it is not open

// Returns the folder as a sink of weights; it must stay open.
struct ExportSink hf_export_sink(struct HfExport *x);

#endif
