// What a model's folder has beside weights and config.json of the run's text: its tokenizer, chat
// template, and the tokens that end a text or an answer, as transformers reads them.
//
// A run of an imported folder that keeps its tokenizer gets that folder's files, byte by byte, but
// for those that must say something else: a template that the run was trained with and the folder
// did not have, and ends that generation_config.json does not know. Every other run gets its
// tokenizer's own file: the .model, the tokenizer.json, or of single bytes one that is made here.
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
    bool other;         // the imported folder's tokenizer is not the run's, and stays behind
    int32_t begin, end; // ids, for config.json; -1: none
    char *told;         // a line about it, or NULL
};

// `from`: the imported folder, or NULL. Without model->tokenizer it is empty. hf_text_free in any
// case. Errors: those of file_read and template_open; -EINVAL for a tokenizer_config.json or
// generation_config.json that is no JSON object.
int hf_text_make(struct HfText *x, const struct ExportModel *model, const char *family,
                 const struct HfFolder *from, struct Error *e);
void hf_text_free(struct HfText *x); // one that is all 0: nothing

// Whether the struct has this file.
bool hf_text_has(const struct HfText *x, const char *name);

#endif
