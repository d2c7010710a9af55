// What the readers of config.json share: config.c, and config_rope.c for rotary embedding.
#ifndef DATA_HF_CONFIG_READ_H
#define DATA_HF_CONFIG_READ_H
#include "kernels/base.h"

#include <cjson/cJSON.h>

enum HfClass { HF_GPT2, HF_LLAMA, HF_MISTRAL, HF_QWEN2, HF_QWEN3, HF_NCLASS };

struct HfReading {
    const cJSON *config;
    const char *path; // of config, for errors
    enum HfClass class;
    cJSON *flags; // which it becomes
    struct Error *e;
};

// A member that is there and not null; else NULL.
const cJSON *hf_config_value(const cJSON *object, const char *key);

// An error line with the file, the key and its value. Returns -EINVAL.
int hf_config_refuse(struct HfReading *r, const char *key, const cJSON *item, const char *expected);

// The flags rope-theta and rope-scaling. `positions`: max_position_embeddings, or what the class
// has for it. Errors: -EINVAL.
int hf_config_rope(struct HfReading *r, double positions);

// Whether rope_scaling, which counts, says something else than the rope_parameters beside it.
bool hf_config_rope_differs(const cJSON *config);

// The way back, from complete flags: with_theta: rope_parameters of transformers 5; without: what 4
// calls rope_scaling.
cJSON *hf_config_rope_object(const cJSON *flags, bool with_theta);

#endif
