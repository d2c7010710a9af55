// Makes the files of an exported folder that depend on the run's text: tokenizer, chat template,
// and the tokens that end a text or an answer, as transformers reads them.
//
// A run that keeps the tokenizer of an imported folder gets that folder's files, byte by byte,
// except to add a template with which the run was trained, and end tokens that
// generation_config.json lacks. Any other run gets its tokenizer's file: the .model, the
// tokenizer.json, or for single bytes one that is made here.
//
// Used by export.c. Read next: data/text/tokenizer.h, data/chat/template.h.
#ifndef DATA_HF_TEXT_H
#define DATA_HF_TEXT_H
#include "data/hf/folder.h"
#include "kernels/weights.h"

enum { HF_TEXT_FILES = 8 };

struct HfText {
    struct HfTextFile {
        const char *name;
        char *text;
        size_t bytes;
    } file[HF_TEXT_FILES];
    size_t count;
    bool replaces_tokenizer; // the imported folder's is not the run's, and is not copied
    int32_t begin, end;      // ids, for config.json; -1: none
    char *remark;            // a log line about the tokenizer, or NULL
};

// Makes the files; without model->tokenizer there are none. `from`: the imported folder, or NULL.
// Call hf_text_free also after an error. Errors: those of file_read and template_open; -EINVAL for
// a tokenizer_config.json or generation_config.json that is no JSON object.
int hf_text_make(struct HfText *x, const struct ExportModel *model, const char *family,
                 const struct HfFolder *from, struct Error *e);
void hf_text_free(struct HfText *x); // does nothing if all is 0

bool hf_text_has(const struct HfText *x, const char *name);

#endif
