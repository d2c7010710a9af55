// A Hugging Face folder as a source of weights, for --init hf:DIR.
//
// First, its config.json becomes flags (hf_model_flags). Then the loader asks for each parameter by
// our name, and the folder must have all of them, in their shapes, and nothing else. Elements are
// read in ranges, by any number of ranks at the same time. Read next: config.h, names.h, pieces.h.
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
    size_t seq_len; // these two: see struct ImportSource
    char *remarks;
};

// Reads the config.json of a folder as flags, a JSON object; free() *text. Errors: those of
// file_read and hf_config_flags.
int hf_model_flags(const char *folder, char **text, struct Error *e);

// Errors: those of hf_folder_open and hf_config_flags. Call hf_model_close also after an error.
int hf_model_open(struct HfModel *m, const char *folder, struct Error *e);
void hf_model_close(struct HfModel *m); // does nothing if it is not open

// Returns the model as a source of weights; it must stay open. If the head is tied, the folder may
// have its matrix instead of the token embedding, or besides as an equal copy. Any other tensor
// that is not asked for is an error.
struct ImportSource hf_model_source(struct HfModel *m);

#endif
