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

// Returns how many tokens go through the model together, of `count` new ones after `past`: a power
// of two, so that kernels are prepared for few shapes. It may be more than count, if positions are
// left; what is stored after the last token is overwritten before a query sees it.
static size_t pass_length(const struct Rank *r, size_t past, size_t count) {
    size_t t = 1;
    if (!r->model.cache.capacity)
        return acts_sample_length(&r->acts, count);
    size_t most = size_min(r->acts.t_max, PREFILL_TOKENS); // a window's ring has space for as many
    while (t < count && 2 * t <= most)
        t *= 2;
    if (past + t > r->model.config.seq_len)
        while (t > count)
            t /= 2;
    return t;
}

// Runs `count` tokens, at most t, after `past` ones that are in the cache, and makes the logits of
// the last. Without a cache (sparse attention) the tokens are the whole text.
static void run_tokens(struct Rank *r, const int32_t *tokens, size_t past, size_t count, size_t t) {
    struct Acts *acts = &r->acts;
    acts->b = 1;
    acts->t = t;
    acts->mode = HEAD_LOGITS;
    acts->logits_row = count - 1;
    bool cached = r->model.cache.capacity > 0;
    int32_t *host = feed_host(&r->feed), *starts = host + FEED_STARTS * r->feed.tokens;
    for (size_t i = 0; i < t; i++) {
        host[i] = i < count ? tokens[i] : 0;
        if (r->feed.arrays > FEED_STARTS)
            starts[i] = -(int32_t)past;
    }
    feed_send(&r->feed);
    rank_next_batch(r);
    if (cached)
        acts->starts = acts->tokens + FEED_STARTS * r->feed.tokens;
    acts->cache = cached ? &r->model.cache : NULL;
    zero_forward(&r->zero, acts);
    feed_done(&r->feed);
    acts->cache = NULL;
    acts->b = acts->b_max;
    acts->t = acts->t_max;
}

// Computes the logits of the token after text[0 .. length), as fp32 on the host, on the ranks that
// have them. The cache has the first `past` tokens already. If the vocabulary is split over TP
// ranks the logits have been gathered (model/ends.c).
static void next_logits(struct Rank *r, const int32_t *text, size_t past, size_t length,
                        float *logits, void *row) {
    if (!r->model.cache.capacity)
        past = 0;
    while (past < length) {
        size_t t = pass_length(r, past, length - past), count = size_min(t, length - past);
        run_tokens(r, text + past, past, count, t);
        past += count;
    }
    device_sync_queue(r->device, QUEUE_COMPUTE);
    if (has_logits(r))
        read_logits(r, logits, row);
}

size_t rank_generate(struct Rank *r, int32_t *text, size_t length, size_t count,
                     const struct Sampling *s) {
    size_t vocab = r->params.config.vocab, T = r->model.config.seq_len;
    float *logits = base_alloc(vocab * sizeof *logits);
    void *row = device_alloc_host(r->device, vocab * sizeof(float));
    size_t made = 0, first = length > T ? length - T : 0, past = first;
    while (made < count && !(made && sample_stops(s, text[length - 1]))) {
        if (length - first > T) // the window is full: its second half goes on
            past = first = length - T / 2;
        next_logits(r, text + first, past - first, length - first, logits, row);
        past = length;
        int32_t drawn = has_logits(r) ? sample_token(logits, vocab, s, text, length) : 0;
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
