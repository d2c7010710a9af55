// PEFT's folder of an adapter, opened to be read: adapter_config.json, adapter_model.safetensors.
//
// An open adapter has A and B of every target in every layer, in the shapes that the base asks for,
// and no other tensor. It is only read; threads may share it. Read next: config.h, names.h.
#ifndef DATA_PEFT_ADAPTER_H
#define DATA_PEFT_ADAPTER_H
#include "data/hf/safetensors.h"
#include "data/peft/config.h"
#include "data/peft/names.h"

#define PEFT_STEM "adapter_model"

// The model that the adapter is for.
struct PeftBase {
    bool gpt2;
    size_t layers;
    struct HfSizes sizes;
};

struct PeftAdapter {
    struct PeftBase base;
    struct PeftConfig config;
    struct Safetensors file;
    const struct Tensor **tensor; // by layer, target and matrix; NULL: no such target
};

// Opens the adapter in `dir`. Errors: peft_config_read's, safetensors_open's; -ENOENT for weights
// in another format; -EINVAL for a tensor that is missing, there twice, of another shape, of no
// adapter, or of a dtype that cannot be read. Call peft_adapter_close also after an error.
int peft_adapter_open(struct PeftAdapter *a, const char *dir, const struct PeftBase *base,
                      struct Error *e);
void peft_adapter_close(struct PeftAdapter *a); // does nothing if it is not open

// Reads elements [first, first + n) of a matrix, row by row, as fp32. Errors:
// safetensors_read_finite's.
int peft_adapter_read(const struct PeftAdapter *a, const struct PeftName *name, uint64_t first,
                      size_t n, float *out, struct Error *e);

#endif
