// See outcome.h.
#include "zero/state.h"
#include "tests/lib/outcome.h"

struct Run {
    int validated;
    struct Outcome *out;
};

void outcome_keep(struct Outcome *out, const struct Rank *r, int i, struct TinyStep step) {
    if (!tiny_is_first(r))
        return;
    out->loss[i] = step.loss;
    out->norm[i] = step.grad_norm;
}

static void train_steps(void *context, struct Rank *r) {
    const struct Run *run = context;
    struct Outcome *out = run->out;
    float validation = 0;
    for (int i = 0; i < out->steps; i++) {
        outcome_keep(out, r, i, tiny_step(r));
        if (i == run->validated)
            validation = tiny_validate(r, OUTCOME_VALIDATED);
    }
    uint64_t hash = zero_weights_hash(&r->zero);
    if (!tiny_is_first(r))
        return;
    out->validation = validation;
    out->hash = hash;
}

struct Outcome outcome_of(const struct RankSettings *s, int steps, int validated) {
    struct Outcome out = {.steps = steps};
    struct Run run = {validated, &out};
    CHECK(steps <= OUTCOME_STEPS, "%d steps; an outcome holds %d", steps, OUTCOME_STEPS);
    tiny_ranks(s, train_steps, &run);
    return out;
}

const char *settings_text(const struct RankSettings *s) {
    static char text[320];
    snprintf(text, sizeof text,
             "stage %d, %d ranks (tp %zu, pp %zu), %s, %zu micro-batches, vocabulary %zu, prefetch "
             "%zu, recompute "
             "%d, optimizer on %s (%g), parameters on %s, activations on %s%s%s%s",
             s->stage, s->ranks, s->tp, s->pp, dtype_name(s->model.dtype), s->nmicro,
             s->model.vocab, s->prefetch, (int)s->recompute, tier_name(s->opt_tier),
             s->offload_ratio, tier_name(s->param_tier), tier_name(s->act_tier),
             s->delayed ? ", late" : "", s->one_queue ? ", one queue" : "",
             s->packed ? ", packed" : "");
    return text;
}

static bool is_same(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

// The first step that differs; a->steps: none.
static int first_difference(const struct Outcome *a, const struct Outcome *b) {
    int i = 0;
    while (i < a->steps && is_same(a->loss[i], b->loss[i]) &&
           is_same((double)a->norm[i], (double)b->norm[i]))
        i++;
    return i;
}

bool outcome_is_same(const struct Outcome *a, const struct Outcome *b) {
    return a->steps == b->steps && first_difference(a, b) == a->steps &&
           a->validation == b->validation && a->hash == b->hash;
}

void outcome_expect_same(const struct Outcome *a, const struct Outcome *b,
                         const struct RankSettings *s, const char *what) {
    if (outcome_is_same(a, b))
        return;
    int i = first_difference(a, b);
    if (a->steps != b->steps)
        fail_msg("%s%s: %d steps, not %d", settings_text(s), what, b->steps, a->steps);
    if (i < a->steps)
        fail_msg("%s%s: loss %.9g and norm %.9g, not %.9g and %.9g, at step %d", settings_text(s),
                 what, b->loss[i], (double)b->norm[i], a->loss[i], (double)a->norm[i], i + 1);
    fail_msg("%s%s: hash %016llx, not %016llx; validation loss %.9g, not %.9g", settings_text(s),
             what, (unsigned long long)b->hash, (unsigned long long)a->hash, (double)b->validation,
             (double)a->validation);
}
