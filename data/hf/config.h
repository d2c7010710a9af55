// Hugging Face's config.json as flags of ours.
//
// What a model's config.json says becomes flags, as if they stood in a configuration file: so the
// run's own config.json repeats them, and --help explains them. Keys that are absent have the
// default of the model's class in transformers, which differs from class to class; config.c holds
// these as a table. A key whose value would mean another computation than ours is refused by name.
#ifndef DATA_HF_CONFIG_H
#define DATA_HF_CONFIG_H
#include "kernels/base.h"

struct cJSON;

// Writes the flags as a JSON object (data/flags/flags.h) into *text; free() it. path: of config,
// for errors. Errors: -EINVAL with the file, the key, its value and what would be right.
int hf_config_flags(const struct cJSON *config, const char *path, char **text, struct Error *e);

#endif
