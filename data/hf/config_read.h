// The state of reading config.json, for config.c, and for config_rope.c (rotary embedding).
#ifndef DATA_HF_CONFIG_READ_H
#define DATA_HF_CONFIG_READ_H
#include "kernels/base.h"

#include <cjson/cJSON.h>

enum HfClass { HF_GPT2, HF_LLAMA, HF_MISTRAL, HF_QWEN2, HF_QWEN3, HF_NCLASS };

struct HfReading {
    const cJSON *config;
    const char *path; // of config, for errors
    enum HfClass class;
    cJSON *flags; // the result
    struct Error *e;
};

// Returns a member that is present and not null; else NULL.
const cJSON *hf_config_value(const cJSON *object, const char *key);

// Sets an error with the file, the key and its value. Returns -EINVAL.
int hf_config_refuse(struct HfReading *r, const char *key, const cJSON *item, const char *expected);

// Sets the flags rope-theta and rope-scaling. `positions`: max_position_embeddings, or the class's
// default. Errors: -EINVAL.
int hf_config_rope(struct HfReading *r, double positions);

// True if rope_scaling, which takes precedence, differs from rope_parameters in the same file.
bool hf_config_rope_differs(const cJSON *config);

// Makes the JSON object from complete flags. with_theta: rope_parameters of transformers 5; else
// rope_scaling of transformers 4.
cJSON *hf_config_rope_object(const cJSON *flags, bool with_theta);

#endif
