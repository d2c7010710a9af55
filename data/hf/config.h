// Hugging Face's config.json as flags of ours.
//
// What a model's config.json says becomes flags, as if they stood in a configuration file: so the
// run's own config.json repeats them, and --help explains them. Keys that are absent have the
// default of the model's class in transformers, which differs from class to class; config.c holds
// these as a table. A key whose value would mean another computation than ours is refused by name.
#ifndef DATA_HF_CONFIG_H
#define DATA_HF_CONFIG_H
#include "data/hf/names.h"
#include "kernels/dtype.h"

struct cJSON;

// Writes the flags as a JSON object (data/flags/flags.h) into *text; free() it. path: of config,
// for errors. Errors: -EINVAL with the file, the key, its value and what would be right.
int hf_config_flags(const struct cJSON *config, const char *path, char **text, struct Error *e);

// What is passed over in such a config and is to be told, a line break behind each line; free() it.
char *hf_config_told(const struct cJSON *config, const char *path);

// Fills in what the rest of such flags decides: sizes that are 0 (kv-heads: heads, head-size:
// channels / heads, ffn: 4 channels, positions: seq-len), and the usual numbers of norms and
// angles.
void hf_config_complete(struct cJSON *flags);

// Whether two values of a flag say the same, numbers in them compared as numbers: "linear:2" and
// "linear:2.0".
bool hf_config_same_text(const char *a, const char *b);

// Refuses complete flags of a model, which stand in `where`, if those of this run differ; a
// vocabulary of 0 is not known yet. Errors: -EINVAL with the flag and both values.
int hf_config_check_same(const struct cJSON *model, const char *where, const struct cJSON *run,
                         struct Error *e);

// The sizes that complete flags have.
void hf_config_sizes(const struct cJSON *flags, struct HfSizes *sizes);

// The ids that begin and end a text; -1: none does.
struct HfEnds {
    int32_t begin, end;
};

// The way back: the text of a config.json, from complete flags (config_write.c). free() *text.
// Errors: -EINVAL for what a folder of the family cannot say.
int hf_config_write(const struct cJSON *flags, enum Dtype dtype, struct HfEnds ends, char **text,
                    struct Error *e);

// Or the text of that config, with another dtype. Returns 0.
int hf_config_with_dtype(const struct cJSON *config, enum Dtype dtype, char **text);

#endif
