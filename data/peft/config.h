// PEFT's adapter_config.json: what a folder's adapter is, read and written.
//
// An absent key has the default of PEFT's LoraConfig. A key whose value would mean other values,
// other places or another training than ours is refused by name; so is a key that is not known and
// not empty. Keys that say nothing about the adapter (revision, auto_mapping, how A and B began)
// are ignored. (PEFT 0.21, peft/tuners/lora/config.py.) Read next: adapter.h, names.h.
#ifndef DATA_PEFT_CONFIG_H
#define DATA_PEFT_CONFIG_H
#include "kernels/lora.h"

enum { PEFT_BASE_BYTES = 4096, PEFT_RANK_MAX = 1 << 20 };

struct PeftConfig {
    size_t rank;
    double alpha, dropout;      // the products count alpha / rank times
    unsigned targets;           // a bit each: 1 << LORA_Q
    char base[PEFT_BASE_BYTES]; // base_model_name_or_path: a folder, a name of the hub's, or ""
};

// Reads DIR/adapter_config.json, of an adapter for GPT-2 or for a family with Llama's names.
// Errors: json_read's line, as -EINVAL; -EINVAL with the file, the key, its value and what would be
// right.
int peft_config_read(struct PeftConfig *out, const char *dir, bool gpt2, struct Error *e);

// Returns the text of an adapter_config.json; free() it. A folder of hf_writer's gets it by
// hf_writer_put, so that it is complete or absent with the tensors.
char *peft_config_write(const struct PeftConfig *c, bool gpt2);

#endif
