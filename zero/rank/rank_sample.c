// Samples: a rank continues a text, token by token, together with all others. See rank.h.
#include "zero/rank/rank.h"
#include "zero/report.h"

#include "kernels/dtype.h"
#include "model/sample.h"

#include <stdlib.h>
#include <string.h>

// Only the last pipeline stage has the logits.
static bool has_logits(const struct Rank *r) {
    return r->zero.parallel->stage + 1 == r->zero.parallel->stages;
}

static void read_logits(struct Rank *r, float *logits, void *row) {
    enum Dtype dtype = r->model.config.dtype;
    size_t vocab = r->params.config.vocab;
    device_copy(r->device, QUEUE_OUT, row, r->acts.logits, vocab * dtype_size(dtype));
    device_sync_queue(r->device, QUEUE_OUT);
    for (size_t i = 0; i < vocab; i++)
        logits[i] = dtype_load(row, dtype, i);
}

// Computes the logits of the token after text[0 .. length), length at most seq_len, as fp32 on the
// host, on the ranks that have them. If the vocabulary is split over TP ranks they have been
// gathered (model/ends.c).
static void next_logits(struct Rank *r, const int32_t *text, size_t length, float *logits,
                        void *row) {
    struct Acts *acts = &r->acts;
    acts->b = 1;
    acts->t = acts_sample_length(acts, length);
    acts->mode = HEAD_LOGITS;
    acts->logits_row = length - 1;
    int32_t *host = feed_host(&r->feed);
    memset(host, 0, acts->t * sizeof *host);
    if (r->feed.arrays > FEED_STARTS)
        memset(host + FEED_STARTS * r->feed.tokens, 0, r->feed.tokens * sizeof *host);
    memcpy(host, text, length * sizeof *text);
    feed_send(&r->feed);
    rank_next_batch(r);
    zero_forward(&r->zero, acts);
    feed_done(&r->feed);
    device_sync_queue(r->device, QUEUE_COMPUTE);
    if (has_logits(r))
        read_logits(r, logits, row);
    acts->b = acts->b_max;
    acts->t = acts->t_max;
}

size_t rank_generate(struct Rank *r, int32_t *text, size_t length, size_t count,
                     const struct Sampling *s) {
    size_t vocab = r->params.config.vocab, T = r->model.config.seq_len;
    float *logits = base_alloc(vocab * sizeof *logits);
    void *row = device_alloc_host(r->device, vocab * sizeof(float));
    size_t made = 0;
    while (made < count && !(made && sample_stops(s, text[length - 1]))) {
        size_t seen = size_min(length, T);
        next_logits(r, text + length - seen, seen, logits, row);
        int32_t drawn = has_logits(r) ? sample_token(logits, vocab, s, length) : 0;
        // The token that the last rank, one of the last stage, has drawn.
        if (r->zero.parallel->stages > 1)
            drawn = (int32_t)zero_share(&r->zero, (uint64_t)drawn)[r->all->size - 1];
        text[length++] = drawn;
        made++;
    }
    free(logits);
    device_free_host(r->device, row);
    return made;
}

int32_t *rank_continue(struct Rank *r, const int32_t *prompt, size_t length, size_t count,
                       const struct Sampling *s, size_t *made) {
    int32_t *text = base_alloc((length + count) * sizeof *text);
    memcpy(text, prompt, length * sizeof *text);
    *made = rank_generate(r, text, length, count, s);
    return text;
}
