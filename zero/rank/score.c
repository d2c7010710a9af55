// Scores sequences in micro-batches, each by one rank: see rank.h. Next: rank_step.c.
#include "zero/rank/rank.h"

#include "kernels/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// Sequences order[begin .. begin + count), padded to `t` tokens.
struct ScoreBatch {
    size_t begin, count, t;
};

struct Scoring {
    struct Rank *rank;
    const struct Sequence *list;
    size_t count;
    size_t *order; // of the list, by padded length
    struct ScoreBatch *batch;
    size_t batches;
    float *losses; // (b, t) of one walk, in pinned memory
};

// Returns the length to which sequence i is padded: the shortest is that of a sample; but with an
// attention window the first keys of several rows are laid out for the full length.
static size_t padded_length(const struct Scoring *s, size_t i) {
    const struct Acts *acts = &s->rank->acts;
    size_t inputs = s->list[i].count - 1;
    CHECK(inputs >= 1 && inputs <= acts->t_max, "sequence %zu: %zu tokens for a model of %zu", i,
          inputs + 1, acts->t_max);
    return s->rank->model.config.window ? acts->t_max : acts_sample_length(acts, inputs);
}

// Returns the least padded length above t.
static size_t next_length(const struct Scoring *s, size_t t) {
    size_t next = SIZE_MAX;
    for (size_t i = 0; i < s->count; i++) {
        size_t length = padded_length(s, i);
        next = length > t ? size_min(next, length) : next;
    }
    return next;
}

// Cuts the sequences of one length into batches; the last of a length may have fewer sequences, but
// has as many rows, so that the kernels see few shapes.
static void plan_batches(struct Scoring *s) {
    size_t b = s->rank->acts.b_max, n = 0, t = 0;
    s->order = base_alloc((s->count + 1) * sizeof *s->order);
    s->batch = base_alloc((s->count + 1) * sizeof *s->batch);
    while (n < s->count) {
        size_t begin = n;
        t = next_length(s, t);
        for (size_t i = 0; i < s->count; i++)
            if (padded_length(s, i) == t)
                s->order[n++] = i;
        for (; begin < n; begin += b)
            s->batch[s->batches++] = (struct ScoreBatch){begin, size_min(b, n - begin), t};
    }
}

// A BatchReader: `first` is a batch's number, and acts.t its length; past the last batch it gives
// zeros, and the rank only takes part.
static int fill_batch(void *scoring, uint64_t first, size_t n, const struct Batch *batch,
                      struct Error *e) {
    const struct Scoring *s = scoring;
    size_t t = s->rank->acts.t, bytes = n * t * sizeof *batch->inputs;
    (void)e;
    memset(batch->inputs, 0, bytes);
    memset(batch->targets, 0, bytes);
    if (batch->starts)
        memset(batch->starts, 0, bytes);
    if (first >= s->batches)
        return 0;
    const struct ScoreBatch *now = &s->batch[first];
    for (size_t i = 0; i < now->count; i++) {
        const struct Sequence *q = &s->list[s->order[now->begin + i]];
        memcpy(batch->inputs + i * t, q->ids, (q->count - 1) * sizeof *q->ids);
        memcpy(batch->targets + i * t, q->ids + 1, (q->count - 1) * sizeof *q->ids);
    }
    return 0;
}

// Walks once with all ranks, and reads this rank's losses, if it has a batch. Errors: -EINTR.
static int score_batch(struct Scoring *s, uint64_t number, struct Error *e) {
    struct Rank *r = s->rank;
    struct Acts *acts = &r->acts;
    bool has_batch = number < s->batches;
    acts->b = has_batch ? acts->b_max : 1;
    acts->t = s->batch[has_batch ? number : 0].t;
    struct BatchSource batches = {.read = fill_batch, .data = s};
    CHECK(!feed_read(&r->feed, &batches, number, acts->b, e), "%s", e->text);
    rank_next_batch(r);
    struct StepResult all = zero_eval(&r->zero, acts, false, request_to_stop(r->requests));
    feed_done(&r->feed);
    device_copy(r->device, QUEUE_OUT, s->losses, acts->losses, acts_rows(acts) * sizeof *s->losses);
    device_sync_queue(r->device, QUEUE_OUT);
    return all.words & REQUEST_STOP ? -EINTR : 0;
}

// Returns the log-probability of sequence i of batch b, the one that was walked last.
static double log_probability(const struct Scoring *s, const struct ScoreBatch *b, size_t i) {
    const struct Sequence *q = &s->list[s->order[b->begin + i]];
    double sum = 0;
    for (size_t k = q->from; k < q->count; k++)
        sum -= (double)s->losses[i * b->t + k - 1];
    return sum;
}

// Gives every rank the results of each rank's batch; the first of them is batch number `first`.
static void share_logprobs(struct Scoring *s, uint64_t first, double *logprob) {
    struct Zero *z = &s->rank->zero;
    size_t ranks = rank_data_ranks(s->rank), most = s->batch[first].count;
    uint64_t mine = first + rank_data_rank(s->rank);
    for (size_t r = 1; r < ranks && first + r < s->batches; r++)
        most = size_max(most, s->batch[first + r].count);
    for (size_t i = 0; i < most; i++) {
        bool has = mine < s->batches && i < s->batch[mine].count;
        double own = has ? log_probability(s, &s->batch[mine], i) : 0;
        uint64_t word;
        memcpy(&word, &own, sizeof word);
        const uint64_t *all = zero_share(z, word);
        for (size_t r = 0; r < ranks && first + r < s->batches; r++)
            if (i < s->batch[first + r].count)
                memcpy(&logprob[s->order[s->batch[first + r].begin + i]],
                       &all[rank_of_losses(s->rank, r)], sizeof *all);
    }
}

// Checks that all ranks have one list: else they would walk different numbers of times, and wait.
static int compare_lists(struct Scoring *s, struct Error *e) {
    struct Zero *z = &s->rank->zero;
    uint64_t hash = hash64(&s->count, sizeof s->count, 0);
    for (size_t i = 0; i < s->count; i++) {
        const struct Sequence *q = &s->list[i];
        hash = hash64(&q->from, sizeof q->from, hash);
        hash = hash64(q->ids, q->count * sizeof *q->ids, hash);
    }
    const uint64_t *all = zero_share(z, hash);
    int other = 0;
    while (other < z->all->size && all[other] == all[0])
        other++;
    if (other == z->all->size)
        return 0;
    return error_set(e, -EINVAL, E_RANKS_DIFFER,
                     "--eval: rank %d read different items than rank 0; put the same files on all "
                     "machines",
                     other);
}

int rank_score(struct Rank *r, const struct Sequence *list, size_t count, double *logprob,
               struct Error *e) {
    struct Acts *acts = &r->acts;
    struct Scoring s = {.rank = r, .list = list, .count = count};
    size_t ranks = rank_data_ranks(r);
    int err = compare_lists(&s, e);
    if (err)
        return err;
    plan_batches(&s);
    s.losses = device_alloc_host(r->device, acts->b_max * acts->t_max * sizeof *s.losses);
    for (uint64_t first = 0; first < s.batches && !err; first += ranks) {
        err = score_batch(&s, first + rank_data_rank(r), e);
        if (!err)
            share_logprobs(&s, first, logprob);
    }
    acts->b = acts->b_max;
    acts->t = acts->t_max;
    device_free_host(r->device, s.losses);
    free(s.order);
    free(s.batch);
    return err;
}
