// Which adapters a model has (--lora-rank and the flags beside it), and its list of targets.
//
// A model with adapters trains them alone. Read next: kernels/lora.h.
#ifndef MODEL_LORA_H
#define MODEL_LORA_H
#include "kernels/lora.h"

// How the weights of blocks are kept, if not as they are computed with (zero/qlora/qlora.h), and
// the elements of a run, which is packed on its own.
enum BaseFormat { BASE_PLAIN, BASE_INT8, BASE_NF4, NBASE };
enum { BASE_RUN = 16384 };

enum { LORA_BESIDE = 3 }; // targets of one product, at most

struct Lora {
    size_t rank;           // 0: no adapters
    double alpha, dropout; // the products count alpha / rank times
    unsigned targets;      // a bit each: 1 << LORA_Q
    enum BaseFormat base;  // of the blocks' weights, which are not trained
};

// Reads a list of targets, words with commas between: attention (q, k, v, o), mlp (gate, up, down),
// all or PEFT's all-linear, and names that PEFT takes in target_modules (lora_targets_named). gpt2:
// the family is GPT-2. Errors: -EINVAL with --lora-targets, its value and what would be right.
int lora_read_targets(unsigned *out, const char *text, bool gpt2, struct Error *e);

#endif
