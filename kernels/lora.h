// The places of LoRA's adapters: which matrices of a block may have one, and what PEFT calls them.
//
// Beside a matrix W (out, in) an adapter has A (rank, in) and B (out, rank), and the layer computes
// x W^T + alpha / rank * x A^T B^T. (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language
// Models", section 4.1.)
//
// A place is named as transformers names the module, for flags and files alike. Used by model/ and
// by data/peft/, which see nothing of each other.
#ifndef KERNELS_LORA_H
#define KERNELS_LORA_H
#include "kernels/base.h"

// Of GPT-2: LORA_Q is all of attn.c_attn (one A, one B of 3 C rows), LORA_O attn.c_proj, LORA_UP
// mlp.c_fc, LORA_DOWN mlp.c_proj; the others are not there.
enum LoraTarget { LORA_Q, LORA_K, LORA_V, LORA_O, LORA_GATE, LORA_UP, LORA_DOWN, NLORA };

enum LoraMatrix { LORA_A, LORA_B };

// Reads a parameter's name as model/ has it, "q.lora_A". False: it is none of an adapter's.
bool lora_param_read(const char *name, enum LoraTarget *t, enum LoraMatrix *m);

// Returns the module's name within its block, "self_attn.q_proj" or "attn.c_attn"; NULL: the family
// has none. gpt2: the family is GPT-2, not one with Llama's names.
const char *lora_target_module(enum LoraTarget t, bool gpt2);

// Returns the shortest name that is the target's alone, "q_proj" or "attn.c_proj"; NULL: as above.
const char *lora_target_name(enum LoraTarget t, bool gpt2);

// Returns the targets, a bit each, that a name of n bytes has by PEFT's rule: it is a module's, or
// the end of one behind a dot, as "c_proj" is of two. 0: of none.
unsigned lora_targets_named(const char *name, size_t n, bool gpt2);

// Returns all targets that the family has, a bit each.
unsigned lora_targets_all(bool gpt2);

#endif
