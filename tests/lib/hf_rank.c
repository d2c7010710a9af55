// See hf_rank.h.
#include "tests/lib/hf_rank.h"
#include "data/json.h"
#include "model/presets.h"
#include "zero/state.h"
#include "zero/weights/weights.h"

#include <stdlib.h>
#include <string.h>

int hf_rank_config(const char *folder, size_t seq_len, enum Dtype dtype, struct ModelConfig *out,
                   struct Error *e) {
    char *text = NULL;
    int err = hf_model_flags(folder, &text, e);
    if (err)
        return err;
    cJSON *flags = cJSON_Parse(text);
    struct ModelConfig m = {.layers = (size_t)json_number(flags, "layers"),
                            .heads = (size_t)json_number(flags, "heads"),
                            .channels = (size_t)json_number(flags, "channels"),
                            .vocab = (size_t)json_number(flags, "vocab"),
                            .kv_heads = (size_t)json_number(flags, "kv-heads"),
                            .head_size = (size_t)json_number(flags, "head-size"),
                            .ffn = (size_t)json_number(flags, "ffn"),
                            .positions = (size_t)json_number(flags, "positions"),
                            .window = (size_t)json_number(flags, "attention-window"),
                            .norm_eps = json_number(flags, "norm-eps"),
                            .rope.theta = json_number(flags, "rope-theta"),
                            .untied = strcmp(json_text(flags, "tie"), "off") == 0,
                            .seq_len = seq_len,
                            .dtype = dtype};
    while (strcmp(families[m.kind].name, json_text(flags, "family")) != 0)
        m.kind++;
    if (m.kind != FAMILY_GPT2)
        err = model_rope_scaling(&m.rope, json_text(flags, "rope-scaling"), e);
    if (!err)
        err = model_config_finish(&m, e);
    *out = m;
    cJSON_Delete(flags);
    free(text);
    return err;
}

int hf_rank_open(struct Rank *r, const struct RankSettings *s, struct HfModel *model,
                 struct Error *e) {
    int err = rank_open(r, s, false, e);
    if (err)
        return err;
    struct ImportSource from = hf_model_source(model);
    zero_init_weights(&r->zero, 1);
    err = import_check(&s->model, &from, e);
    return err ? err : import_weights(&r->zero, &from, e);
}

void hf_rank_send(struct Rank *r) {
    feed_send(&r->feed);
    r->acts.tokens = feed_next(&r->feed);
    r->acts.targets = r->acts.tokens + r->feed.tokens;
    r->acts.dloss = 1.0f / (float)r->feed.tokens;
}

float *hf_rank_fetch(struct Rank *r, const void *from, enum Dtype d, size_t n) {
    void *stored = base_alloc(n * dtype_size(d));
    float *x = base_alloc(n * sizeof *x);
    device_sync_queue(r->device, QUEUE_COMPUTE);
    device_copy(r->device, QUEUE_OUT, stored, from, n * dtype_size(d));
    device_sync_queue(r->device, QUEUE_OUT);
    for (size_t i = 0; i < n; i++)
        x[i] = dtype_load(stored, d, i);
    free(stored);
    return x;
}

// The logits of a chunk of rows lie there when they are computed, and a forward pass without a
// backward one leaves those of the last.
float *hf_rank_logits(struct Rank *r, size_t *rows) {
    size_t vocab = r->model.config.vocab, padded = r->model.config.vocab_padded;
    hf_rank_send(r);
    zero_eval(&r->zero, &r->acts, true, false);
    feed_done(&r->feed);
    *rows = r->acts.logit_rows;
    float *logits = hf_rank_fetch(r, r->acts.logits, r->model.config.dtype, *rows * padded);
    for (size_t row = 0; row < *rows; row++)
        memmove(logits + row * vocab, logits + row * padded, vocab * sizeof *logits);
    return logits;
}
