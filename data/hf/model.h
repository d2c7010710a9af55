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

struct HfModel {
    struct HfFolder folder;
    char *family;
    struct HfSizes sizes;
};

// The flags that the config.json of a folder stands for, as a JSON object; free() *text. Errors:
// those of file_read and hf_config_flags.
int hf_model_flags(const char *folder, char **text, struct Error *e);

// Errors: those of hf_folder_open and hf_config_flags. hf_model_close in any case.
int hf_model_open(struct HfModel *m, const char *folder, struct Error *e);
void hf_model_close(struct HfModel *m); // one that is not open: nothing

// That the folder has this parameter. layer: of a block, else -1. Errors: -EINVAL.
int hf_model_ask(void *model, int layer, const char *param, struct Error *e);

// That it has no other tensor than those that were asked for. A head's matrix beside a tied one may
// be there, if it is a copy of the token embedding. Errors: -EINVAL; those of safetensors_read.
int hf_model_asked_all(void *model, struct Error *e);

// Elements [first, first + n) of a parameter that was asked for. Errors: those of safetensors_read.
int hf_model_read(void *model, int layer, const char *param, size_t first, size_t n, float *out,
                  struct Error *e);

#endif
