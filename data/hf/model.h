// A Hugging Face folder as a source of weights: what --init hf:DIR opens.
//
// Its config.json becomes flags before anything else happens (hf_model_flags). Then whoever makes
// the model asks for each parameter by our name for it, and the folder must have all of them, in
// their shapes, and nothing else. Elements are read in ranges, by as many ranks at a time as like.
// Read next: config.h, names.h, pieces.h.
#ifndef DATA_HF_MODEL_H
#define DATA_HF_MODEL_H
#include "data/hf/folder.h"
#include "data/hf/names.h"
#include "kernels/weights.h"

struct HfModel {
    struct HfFolder folder;
    char *family;
    struct HfSizes sizes;
    bool tied;
    size_t seq_len; // as in struct ImportSource,
    char *told;     // and this
};

// The flags that the config.json of a folder stands for, as a JSON object; free() *text. Errors:
// those of file_read and hf_config_flags.
int hf_model_flags(const char *folder, char **text, struct Error *e);

// Errors: those of hf_folder_open and hf_config_flags. hf_model_close in any case.
int hf_model_open(struct HfModel *m, const char *folder, struct Error *e);
void hf_model_close(struct HfModel *m); // one that is not open: nothing

// The format of its first matrix.
enum Dtype hf_model_dtype(const struct HfModel *m);

// The model as a source of weights; it must stay open. It may have a head's matrix beside a tied
// one, if that is a copy of the token embedding, or in place of it, and else no tensor that it is
// not asked for.
struct ImportSource hf_model_source(struct HfModel *m);

#endif
