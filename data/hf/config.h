// Reads Hugging Face's config.json as our flags, and writes flags as a config.json.
//
// A model's config.json becomes flags, as if they were in a configuration file: so the run's own
// config.json repeats them, and --help explains them. An absent key has the default of the model's
// class in transformers, which config.c has as a table. A key whose value would mean a computation
// different from ours is refused by name.
#ifndef DATA_HF_CONFIG_H
#define DATA_HF_CONFIG_H
#include "data/hf/names.h"
#include "kernels/dtype.h"

struct cJSON;

// Writes the flags as a JSON object (data/flags/flags.h) into *text; free() it. path: of config,
// for errors. Errors: -EINVAL with the file, the key, its value and what would be right.
int hf_config_flags(const struct cJSON *config, const char *path, char **text, struct Error *e);

// Returns log lines about keys that are ignored, each with a line break; free() them.
char *hf_config_remarks(const struct cJSON *config, const char *path);

// Fills in the flags that follow from others: sizes that are 0 (kv-heads: heads, head-size:
// channels / heads, ffn: 4 channels, positions: seq-len), and the usual constants of norms and
// rotary embedding.
void hf_config_complete(struct cJSON *flags);

// True if two values of a flag are equal, with numbers compared as numbers: "linear:2" and
// "linear:2.0".
bool hf_config_same_text(const char *a, const char *b);

// Refuses a model whose complete flags differ from this run's; a vocabulary of 0 is not known yet.
// `where` names the model's file. Errors: -EINVAL with the flag, both values and the caller's cure.
int hf_config_check_same(const struct cJSON *model, const char *where, const struct cJSON *run,
                         const char *cure, struct Error *e);

// Copies the sizes out of complete flags.
void hf_config_sizes(const struct cJSON *flags, struct HfSizes *sizes);

// Writes the text of a config.json from complete flags (config_write.c). begin, end: the ids with
// which a text begins and ends; -1: none. free() *text. Errors: -EINVAL for a model that a folder
// of the family cannot express.
int hf_config_write(const struct cJSON *flags, enum Dtype dtype, int32_t begin, int32_t end,
                    char **text, struct Error *e);

// Returns the text of an existing config with another dtype; free() it.
char *hf_config_with_dtype(const struct cJSON *config, enum Dtype dtype);

#endif
