// A model's folder as Hugging Face's transformers saves it: config.json, and the weights in
// model.safetensors or in shards that model.safetensors.index.json lists.
//
// A loader asks for each tensor by its name, whichever file has it. A tensor that is never asked
// for is unknown to the program, and a model with such a tensor is refused. Names are those of the
// model with its head ("transformer.h.0...", "model.layers.0..."); a model that was saved without a
// head has them without the first word, and either is found. Masks and tables that old versions
// saved (GPT-2's attn.bias, rotary inv_freq) are no weights and are ignored.
//
// Opened once, a folder is only read; threads may share it. Read next: pieces.h, names.h.
#ifndef DATA_HF_FOLDER_H
#define DATA_HF_FOLDER_H
#include "data/hf/safetensors.h"

struct cJSON;

struct HfTensor {
    const struct Safetensors *file;
    const struct Tensor *tensor;
    bool asked;
};

struct HfFolder {
    char *path;
    struct cJSON *config; // config.json
    size_t nfile;
    struct Safetensors *file; // sorted by name
    size_t ntensor;
    struct HfTensor *tensor; // sorted by name
};

// Reads config.json and the headers. Errors: those of file_read and safetensors_open; -EINVAL for a
// malformed index, one that names a file outside of the folder or a tensor that its shard lacks, or
// a tensor that is in two shards; -ENOENT for a folder without weights in this format.
int hf_folder_open(struct HfFolder *f, const char *path, struct Error *e);
void hf_folder_close(struct HfFolder *f);

// Returns the tensor, with or without the first word of its name; NULL: there is none.
struct HfTensor *hf_folder_find(const struct HfFolder *f, const char *name);

// Finds as hf_folder_find, and notes that the tensor was asked for.
const struct HfTensor *hf_folder_ask(struct HfFolder *f, const char *name);

// Returns the name of the first tensor, in the order of names, that was not asked for and is no
// mask; NULL: there is none. *count (may be NULL): the number of such tensors.
const char *hf_folder_unasked(const struct HfFolder *f, size_t *count);

// Compares shapes and values of two tensors, to the bit: for a head that is stored although it is
// tied to the token embedding. Errors: those of safetensors_read.
int hf_folder_compare(const struct HfTensor *a, const struct HfTensor *b, bool *same,
                      struct Error *e);

#endif
