// Generation: passes, and the tokens drawn after each. See generate.h.
#include "zero/rank/generate.h"
#include "zero/report.h"

#include "kernels/dtype.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool has_cache(const struct Generation *g) {
    return g->rank->model.cache.capacity > 0;
}

// Only the last pipeline stage has the logits.
static bool has_logits(const struct Rank *r) {
    return r->zero.parallel->stage + 1 == r->zero.parallel->stages;
}

void generation_open(struct Generation *g, struct Rank *r) {
    *g = (struct Generation){.rank = r};
    g->texts = size_max(1, r->model.cache.sequences);
    g->text = base_alloc_zeroed(g->texts * sizeof *g->text);
    g->logits = base_alloc(r->params.config.vocab * sizeof *g->logits);
    size_t row = r->acts.tp_size * r->model.config.vocab_padded * dtype_size(r->model.config.dtype);
    g->rows = device_alloc_host(r->device, has_logits(r) ? g->texts * row : 0);
}

void generation_close(struct Generation *g) {
    for (size_t i = 0; i < g->texts; i++)
        free(g->text[i].ids);
    free(g->text);
    free(g->logits);
    device_free_host(g->rank->device, g->rows);
}

// Returns how many tokens of the prompt text x has in the cache already; the prompt's last is not
// counted, as it is run for its logits.
static size_t cached_prefix(const struct Generation *g, const struct GenText *x,
                            const int32_t *prompt, size_t count) {
    const struct ModelConfig *m = &g->rank->model.config;
    size_t same = 0;
    if (x->first || count > m->seq_len) // one of them does not begin at its first token
        return 0;
    while (same < x->cached && same + 1 < count && x->ids[same] == prompt[same])
        same++;
    // A window's ring may have lost what a token further back sees.
    bool lost =
        m->window && same < x->cached && x->cached + PREFILL_TOKENS > g->rank->model.cache.capacity;
    return lost ? 0 : same;
}

void generation_begin(struct Generation *g, size_t i, const int32_t *prompt, size_t count,
                      size_t most_new, const struct Sampling *s) {
    struct GenText *x = &g->text[i], old = *x;
    size_t T = g->rank->model.config.seq_len;
    *x = (struct GenText){.ids = base_alloc((count + most_new) * sizeof *x->ids),
                          .sampling = s,
                          .count = count,
                          .prompt = count,
                          .full_at = count + most_new,
                          .active = most_new > 0,
                          .first = count > T ? count - T : 0,
                          .cached = cached_prefix(g, &old, prompt, count)};
    memcpy(x->ids, prompt, count * sizeof *prompt);
    free(old.ids);
}

// ---- a pass ----

// Returns how many tokens of a text go through the model together, of `count` new ones after
// `past`: a power of two, so that kernels are prepared for few shapes. It may be more than count,
// if positions are left; what is stored after the last token is overwritten before a query sees it.
static size_t pass_length(const struct Generation *g, size_t past, size_t count) {
    const struct Rank *r = g->rank;
    size_t t = 1, most = size_min(r->acts.t_max, PREFILL_TOKENS);
    if (!has_cache(g))
        return acts_sample_length(&r->acts, count);
    while (t < count && 2 * t <= most) // a window's ring has space for as many
        t *= 2;
    if (past + t > r->model.config.seq_len)
        while (t > count)
            t /= 2;
    return t;
}

// Writes the next t tokens of text x into a row of the batch, and for each where the text begins,
// counted from the row's first token: at minus its cached tokens. A text that no token is wanted of
// takes part with any token, which is stored behind its own.
static void fill_row(struct Generation *g, struct GenText *x, int32_t *tokens, int32_t *starts,
                     size_t t) {
    size_t have = x->count - x->first - x->cached;
    if (!have)
        x->cached = size_min(x->cached, g->rank->model.config.seq_len - 1);
    for (size_t i = 0; i < t; i++) {
        tokens[i] = i < have ? x->ids[x->first + x->cached + i] : 0;
        if (starts)
            starts[i] = -(int32_t)x->cached;
    }
}

// Runs t tokens of each of b texts from text `from` on, and makes the logits of row `last`, and of
// those after it if there are several texts. Without a cache the tokens are the whole text.
static void run_pass(struct Generation *g, size_t from, size_t b, size_t t, size_t last) {
    struct Rank *r = g->rank;
    struct Feed *feed = &r->feed;
    struct Acts *acts = &r->acts;
    int32_t *host = feed_host(feed);
    int32_t *starts = feed->arrays > FEED_STARTS ? host + FEED_STARTS * feed->tokens : NULL;
    for (size_t i = 0; i < b; i++)
        fill_row(g, &g->text[from + i], host + i * t, starts ? starts + i * t : NULL, t);
    feed_send(feed);
    rank_next_batch(r);
    acts->b = b;
    acts->t = t;
    acts->mode = HEAD_LOGITS;
    acts->logits_row = last;
    acts->logits_count = b;
    acts->cache_first = from;
    if (has_cache(g)) {
        acts->starts = acts->tokens + FEED_STARTS * feed->tokens;
        acts->cache = &r->model.cache;
    }
    zero_forward(&r->zero, acts);
    feed_done(feed);
    acts->cache = NULL;
    acts->b = acts->b_max;
    acts->t = acts->t_max;
}

// Runs the tokens of text i that are not in the cache.
static void run_prompt(struct Generation *g, size_t i) {
    struct GenText *x = &g->text[i];
    size_t have;
    if (!has_cache(g))
        x->cached = 0;
    while ((have = x->count - x->first - x->cached) > 0) {
        size_t t = pass_length(g, x->cached, have), ran = size_min(t, have);
        run_pass(g, i, 1, t, ran - 1);
        x->cached += ran;
    }
}

// ---- the next token ----

// Draws the token that follows text x, from row `row` of the n that the last pass made: there each
// TP rank's part of the vocabulary has rows of its own.
static int32_t draw(struct Generation *g, const struct GenText *x, size_t row, size_t n) {
    const struct Rank *r = g->rank;
    size_t part = r->model.config.vocab_padded, vocab = r->params.config.vocab;
    for (size_t i = 0; i < vocab; i++)
        g->logits[i] =
            dtype_load(g->rows, r->model.config.dtype, (i / part * n + row) * part + i % part);
    return sample_token(g->logits, vocab, x->sampling, x->ids, x->count);
}

// Adds the token that follows text x, the same on all ranks, from row `row` of n as in draw.
static void add_token(struct Generation *g, struct GenText *x, size_t row, size_t n) {
    struct Rank *r = g->rank;
    int32_t drawn = has_logits(r) ? draw(g, x, row, n) : 0;
    // The token that the last rank, one of the last stage, has drawn.
    if (r->all->size > 1) // others have no logits, or a GPU's that were summed in another order
        drawn = (int32_t)zero_share(&r->zero, (uint64_t)drawn)[r->all->size - 1];
    if (drawn < 0) {
        g->not_finite = true;
        x->active = false;
        return;
    }
    x->ids[x->count++] = drawn;
    x->active = x->count < x->full_at && !sample_stops(x->sampling, drawn);
}

// Waits for the last pass, and brings its n rows of logits to the host.
static void wait_for_pass(struct Generation *g, size_t n) {
    struct Rank *r = g->rank;
    size_t row = r->model.config.vocab_padded * dtype_size(r->model.config.dtype);
    device_sync_queue(r->device, QUEUE_COMPUTE);
    if (!has_logits(r))
        return;
    device_copy(r->device, QUEUE_OUT, g->rows, r->acts.logits, n * r->acts.tp_size * row);
    device_sync_queue(r->device, QUEUE_OUT);
}

// A text that grew past what the model sees goes on with its second half.
static void slide(const struct Generation *g, struct GenText *x) {
    size_t T = g->rank->model.config.seq_len;
    if (x->count - x->first <= T)
        return;
    x->first = x->count - T / 2;
    x->cached = 0;
}

// True if a text goes on, and the cache has all of it but its last token.
static bool needs_pass_of_one(const struct GenText *x) {
    return x->active && x->cached + 1 == x->count - x->first;
}

// Makes a token of each text that needs one pass of one token, if there are several of them;
// done[i]: text i has its token.
static void step_together(struct Generation *g, bool *done) {
    size_t n = 0;
    for (size_t i = 0; i < g->texts; i++)
        n += needs_pass_of_one(&g->text[i]);
    if (n < 2)
        return;
    run_pass(g, 0, g->texts, 1, 0);
    wait_for_pass(g, g->texts);
    for (size_t i = 0; i < g->texts; i++)
        if ((done[i] = needs_pass_of_one(&g->text[i]))) {
            g->text[i].cached++;
            add_token(g, &g->text[i], i, g->texts);
        }
}

static void step_alone(struct Generation *g, size_t i) {
    run_prompt(g, i);
    wait_for_pass(g, 1);
    add_token(g, &g->text[i], 0, 1);
}

size_t generation_step(struct Generation *g) {
    bool *done = base_alloc_zeroed(g->texts * sizeof *done);
    size_t active = 0;
    for (size_t i = 0; i < g->texts; i++)
        slide(g, &g->text[i]);
    step_together(g, done);
    for (size_t i = 0; i < g->texts; i++) {
        if (g->text[i].active && !done[i])
            step_alone(g, i);
        active += g->text[i].active;
    }
    free(done);
    return active;
}

int generation_check(const struct Generation *g, struct Error *e) {
    if (!g->not_finite)
        return 0;
    if (g->rank->all->rank > 0)
        return -EDOM;
    return error_set(e, -EDOM, E_LOGITS_NOT_FINITE,
                     "the logits are not finite, so no token can be drawn: the model's numbers "
                     "overflow; try --dtype fp32, or another checkpoint");
}

int32_t *generation_share(struct Rank *r, const int32_t *ids, size_t *count) {
    *count = zero_share(&r->zero, *count)[0];
    int32_t *all = base_alloc((*count + 1) * sizeof *all);
    for (size_t i = 0; i < *count; i += 2) { // two ids a word
        uint64_t mine = 0;
        if (r->all->rank == 0)
            mine = (uint32_t)ids[i] | (uint64_t)(uint32_t)ids[size_min(i + 1, *count - 1)] << 32;
        uint64_t got = zero_share(&r->zero, mine)[0];
        all[i] = (int32_t)(uint32_t)got;
        all[i + 1] = (int32_t)(uint32_t)(got >> 32);
    }
    return all;
}
