// The names of an adapter's tensors in PEFT's files, and their shapes.
//
//   base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight
//   base_model.model.transformer.h.3.attn.c_attn.lora_B.weight
//
// A is (rank, in) and B (out, rank) in every family: PEFT does not transpose them where the base's
// weight is a Conv1D's, (in, out).
#ifndef DATA_PEFT_NAMES_H
#define DATA_PEFT_NAMES_H
#include "data/hf/names.h"
#include "kernels/lora.h"

struct PeftName {
    size_t layer;
    enum LoraTarget target;
    enum LoraMatrix matrix;
};

// Returns the tensor's name; free() it. The family has the target.
char *peft_name(const struct PeftName *name, bool gpt2);

// Reads a name, also one with the adapter's ("lora_A.default.weight"). False: it is no matrix of an
// adapter of the family's.
bool peft_name_read(struct PeftName *out, const char *text, bool gpt2);

// Writes the rows and columns of the matrix: (rank, in) or (out, rank).
void peft_shape(const struct PeftName *name, bool gpt2, const struct HfSizes *sizes, size_t rank,
                uint64_t shape[2]);

#endif
