// Scores of sequences: against a forward pass in numpy (tests/fixtures/eval), at every number of
// ranks, stage, tier and micro-batch; and against logits that are made one sequence at a time, for
// models of every family.
#include "zero/state.h"
#include "kernels/hash.h"
#include "tests/lib/eval_fixture.h"
#include "tests/lib/hf_rank.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"
#include "zero/rank/rank.h"
#include "zero/weights/weights.h"

#include <errno.h>
#include <math.h>

static const char MODEL[] = "tests/fixtures/hf/gpt2";

// ---- against numpy ------------------------------------------------------------------------------

struct Scored {
    struct HfModel model;
    const struct EvalItems *items;
    double *out[NEVALPROTOCOL]; // rank 0's
    bool same;                  // on every rank
    int code;
    struct Error e;
};

static void score_items(void *context, struct Rank *r) {
    struct Scored *s = context;
    struct ImportSource from = hf_model_source(&s->model);
    struct Error e = {0};
    uint64_t hash = 0;
    int err = import_weights(&r->zero, &from, &e);
    for (int p = 0; p < NEVALPROTOCOL && !err; p++) {
        const struct EvalList *l = &s->items->list[p];
        double *own = base_alloc(l->count * sizeof *own);
        err = rank_score(r, l->sequence, l->count, own, &e);
        hash = hash64(own, l->count * sizeof *own, hash);
        if (tiny_is_first(r))
            memcpy(s->out[p], own, l->count * sizeof *own);
        free(own);
    }
    const uint64_t *all = zero_share(&r->zero, hash);
    if (tiny_is_first(r)) {
        s->same = true;
        for (int k = 0; k < r->all->size; k++)
            s->same = s->same && all[k] == all[0];
        s->code = err;
        s->e = e;
    }
}

struct RowsLaid {
    int ranks, stage;
    enum TierKind param, optimizer;
    size_t batch;
};

static void score_layout(const struct RowsLaid *l, struct Scored *s) {
    struct Error e = {0};
    struct RankSettings settings = tiny_settings(F32);
    settings.ranks = l->ranks;
    settings.stage = l->stage;
    settings.param_tier = l->param;
    settings.opt_tier = l->optimizer;
    settings.batch = l->batch;
    settings.nmicro = 1;
    settings.threads = 1;
    assert_ok(hf_rank_config(MODEL, FIXTURE_T, F32, &settings.model, &e), &e);
    assert_ok(hf_model_open(&s->model, MODEL, &e), &e);
    tiny_ranks(&settings, score_items, s);
    hf_model_close(&s->model);
    assert_ok(s->code, &s->e);
    assert_true(s->same);
}

static void expect_sums(const struct Fixture *f, const struct Scored *s) {
    static const char *const names[] = {"lm_eval", "llmc"};
    for (int p = 0; p < NEVALPROTOCOL; p++) {
        double *want = fixture_sums(f, "items", names[p]);
        for (size_t i = 0; i < s->items->list[p].count; i++)
            if (fabs(s->out[p][i] - want[i]) > 2e-6 * fabs(want[i]))
                fail_msg("sequence %zu by %s: %.9g, not %.9g", i, names[p], s->out[p][i], want[i]);
        free(want);
    }
}

static void expect_verdicts(const struct Fixture *f, const struct Scored *s) {
    const cJSON *item;
    size_t i = 0;
    cJSON_ArrayForEach(item, fixture_get(f, "items")) {
        for (enum EvalMeasure m = 0; m < NEVALMEASURE; m++) {
            int choice = items_choice(s->items, i, m, s->out[items_protocol(m)]);
            bool right = choice == s->items->item[i].label;
            if (right != (json_get(item, eval_measure_names[m])->valuedouble > 0.5))
                fail_msg("item %zu: %s is %d", i, eval_measure_names[m], right);
        }
        i++;
    }
}

// With each micro-batch's size the first layout is held against numpy, the others to the bit
// against the first.
TEST(scores_are_numpys_in_every_layout) {
    static const struct RowsLaid layouts[] = {
        {1, 0, TIER_DEVICE, TIER_DEVICE, 0}, {3, 0, TIER_DEVICE, TIER_DEVICE, 0},
        {1, 3, TIER_DEVICE, TIER_DEVICE, 0}, {3, 3, TIER_DEVICE, TIER_DEVICE, 0},
        {2, 1, TIER_DEVICE, TIER_CPU, 0},    {3, 3, TIER_CPU, TIER_CPU, 0},
        {1, 0, TIER_CPU, TIER_CPU, 0},
    };
    static const size_t batches[] = {1, 4, 7};
    const struct Fixture *f = *state;
    struct EvalItems items;
    fixture_read(f, "items.jsonl", f->tokenizer, &items);
    for (size_t b = 0; b < 3; b++) {
        double first[NEVALPROTOCOL][200], now[NEVALPROTOCOL][200];
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
            struct RowsLaid l = layouts[i];
            struct Scored s = {.items = &items, .out = {now[0], now[1]}};
            l.batch = batches[b];
            memset(now, 0, sizeof now);
            score_layout(&l, &s);
            if (i == 0) {
                expect_sums(f, &s);
                expect_verdicts(f, &s);
                memcpy(first, now, sizeof first);
            }
            if (memcmp(first, now, sizeof first) != 0)
                fail_msg("%d ranks, stage %d, batch %zu: other bits", l.ranks, l.stage, l.batch);
        }
    }
    items_free(&items);
}

// ---- against logits -----------------------------------------------------------------------------

enum { SEQUENCES = 13, LONGEST = 71, FULL = 70 };

struct Lists {
    int32_t ids[SEQUENCES][LONGEST];
    struct Sequence list[SEQUENCES];
};

// Of 2 to seq_len + 1 tokens.
static void fill_lists(struct Lists *l, size_t vocab) {
    for (size_t i = 0; i < SEQUENCES; i++) {
        size_t count = i == 0 ? 2 : i == 1 ? LONGEST : 2 + rng_bits(3, i) % (LONGEST - 1);
        for (size_t k = 0; k < count; k++)
            l->ids[i][k] = (int32_t)(rng_bits(4, i * LONGEST + k) % vocab);
        l->list[i] = (struct Sequence){l->ids[i], count, 1 + rng_bits(5, i) % (count - 1)};
    }
}

// -log softmax in fp64, row by row, of logits that one sequence alone has.
static double slow_score(struct Rank *r, const struct Sequence *q) {
    size_t rows, vocab = r->model.config.vocab;
    int32_t *host = feed_host(&r->feed);
    double sum = 0;
    memset(host, 0, 2 * r->feed.tokens * sizeof *host);
    memcpy(host, q->ids, (q->count - 1) * sizeof *host);
    float *logits = hf_rank_logits(r, &rows);
    assert_int_equal(rows, FULL);
    for (size_t i = q->from; i < q->count; i++) {
        const float *row = logits + (i - 1) * vocab;
        double all = 0;
        for (size_t v = 0; v < vocab; v++)
            all += exp((double)row[v]);
        sum += (double)row[q->ids[i]] - log(all);
    }
    free(logits);
    return sum;
}

TEST(scores_are_those_of_logits) {
    for (int family = 0; family < TINY_FAMILIES; family++) {
        struct Lists l;
        struct Error e = {0};
        double got[SEQUENCES];
        struct Rank slow, r;
        struct RankSettings s = tiny_family(family, F32);
        s.model.seq_len = s.model.positions = FULL;
        assert_ok(model_config_finish(&s.model, &e), &e);
        s.nmicro = 1;
        s.threads = 1;
        fill_lists(&l, s.model.vocab);
        s.batch = 3;
        tiny_open(&r, &s, 7);
        for (int step = 0; step < 6; step++) // weights that look at more than one token
            tiny_step(&r);
        assert_ok(rank_score(&r, l.list, SEQUENCES, got, &e), &e);
        assert_int_equal(r.acts.b, 3);
        assert_int_equal(r.acts.t, FULL);
        s.batch = 1;
        tiny_open(&slow, &s, 7);
        tiny_validate(&slow, 1); // a walk, behind which weights have their places
        for (int g = 0; g < slow.params.ngroup; g++)
            memcpy(slow.zero.w[g], r.zero.w[g],
                   r.params.group[g].padded * dtype_size(s.model.dtype));
        for (size_t i = 0; i < SEQUENCES; i++) {
            double want = slow_score(&slow, &l.list[i]);
            if (fabs(got[i] - want) > 3e-6 * fabs(want))
                fail_msg("%s, sequence %zu of %zu tokens: %.9g, not %.9g", tiny_family_name(family),
                         i, l.list[i].count, got[i], want);
        }
        assert_ok(rank_score(&r, NULL, 0, got, &e), &e); // nothing at all
        rank_close(&slow);
        rank_close(&r);
    }
}

// ---- ranks that do not agree --------------------------------------------------------------------

static void score_other_lists(void *context, struct Rank *r) {
    static const int32_t ids[] = {1, 2, 3, 4};
    struct Sequence q = {ids, 4 - (r->all->rank == 1), 1};
    struct Scored *s = context;
    struct Error e = {0};
    double out;
    int err = rank_score(r, &q, 1, &out, &e);
    if (tiny_is_first(r)) {
        s->code = err;
        s->e = e;
    }
}

TEST(other_items_on_a_rank_are_refused) {
    struct RankSettings s = tiny_settings(F32);
    struct Scored scored = {0};
    s.ranks = 2;
    s.threads = 1;
    tiny_ranks(&s, score_other_lists, &scored);
    assert_error(scored.code, -EINVAL, &scored.e, "E_RANKS_DIFFER rank 1");
}

AROUND_ALL(fixture_setup, fixture_teardown);
