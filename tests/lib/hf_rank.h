// A rank that has the model of a Hugging Face folder, for tests that look at what it computes:
// tests/model/test_families.c and test_hf_config.c.
#ifndef TESTS_LIB_HF_RANK_H
#define TESTS_LIB_HF_RANK_H
#include "data/hf/model.h"
#include "zero/rank/rank.h"

#include <cjson/cJSON.h>

// From the folder's config.json, as settings_resolve does it, for sequences of seq_len tokens.
// Errors: hf_model_flags', model_config_finish's.
int hf_rank_config(const char *folder, size_t seq_len, enum Dtype dtype, struct ModelConfig *out,
                   struct Error *e);

// Opens a rank, and fills it with the weights of an open folder. rank_close is due in any case.
// Errors: rank_open's, import_weights'.
int hf_rank_open(struct Rank *r, const struct RankSettings *s, struct HfModel *model,
                 struct Error *e);

// Sends what lies in feed_host(&r->feed) to the device, for a loss that is a mean of all.
void hf_rank_send(struct Rank *r);

// n elements of the device's as fp32; free() them.
float *hf_rank_fetch(struct Rank *r, const void *from, enum Dtype d, size_t n);

// The logits (rows, V) of what lies in feed_host(&r->feed), as fp32. They are those of all rows
// only where these are one chunk (acts.h: logit_rows). free() them.
float *hf_rank_logits(struct Rank *r, size_t *rows);

#endif
