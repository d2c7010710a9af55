// The search of --fit auto: see choose.h.
#include "zero/plan/choose.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// The work of a micro-batch. It depends on its size, on recomputation and on whether the step has
// several (accumulate), so it is counted once for all candidates that differ otherwise.
struct CountedPasses {
    size_t batch;
    enum Recompute recompute;
    bool accumulate;
    struct PassCount passes;
    struct CountedPasses *next;
};

struct Search {
    const struct ChooseRequest *request;
    struct Trials trials;
    struct CountedPasses *counted;
    struct Choices *out;
    struct Choice trial; // the last one
};

// Returns the counts of a micro-batch with these settings. If there are none yet it opens a dry
// rank, which counts; the forecast's is closed already.
static const struct PassCount *find_or_count_passes(struct Search *s,
                                                    const struct RankSettings *settings) {
    bool accumulate = settings->nmicro > 1;
    for (struct CountedPasses *c = s->counted; c; c = c->next)
        if (c->batch == settings->batch && c->recompute == settings->recompute &&
            c->accumulate == accumulate)
            return &c->passes;
    struct RankSettings plain = settings_unbounded(settings);
    struct CountedPasses *c = base_alloc_zeroed(sizeof *c);
    struct Rank dry;
    struct Error ignored;
    c->batch = settings->batch;
    c->recompute = settings->recompute;
    c->accumulate = accumulate;
    c->next = s->counted;
    s->counted = c;
    plain.borrowed = s->trials.device;
    plain.borrowed_host = s->trials.host;
    if (rank_open(&dry, &plain, true, &ignored) == 0)
        count_passes(&dry, accumulate, &c->passes);
    rank_close(&dry);
    return &c->passes;
}

// Fills in the times of f's passes and its speeds, and returns the bound of its step.
static struct Bound forecast_bound(struct Search *s, struct Forecast *f) {
    const struct ChooseRequest *r = s->request;
    const struct PassCount *passes = find_or_count_passes(s, &f->settings);
    double micros = (double)f->settings.nmicro;
    f->work.forward = micros * count_seconds(&passes->forward, &r->rates.kernels);
    f->work.backward = micros * count_seconds(&passes->backward, &r->rates.kernels);
    f->speeds = r->speeds;
    return bound_of(&f->work, &r->speeds);
}

// Forecasts a candidate into s->trial, whose time is 0 if there is no such run. True if it fits.
static bool try_candidate(void *search, const struct Candidate *c) {
    struct Search *s = search;
    bool fit = trials_fit(&s->trials, c);
    s->trial = (struct Choice){.is = *c, .forecast = s->trials.last};
    if (s->trials.last_exists)
        s->trial.bound = forecast_bound(s, &s->trial.forecast);
    return fit;
}

// Those that come first are smaller changes, and stay before others that are about as fast.
static const double AS_FAST = 0.99;

// Returns the index among the best for a step of so many seconds: it comes before the first that
// takes clearly longer. So none takes clearly longer than one after it.
static size_t find_place(const struct Choices *c, double seconds) {
    size_t at = 0;
    while (at < c->n && seconds >= AS_FAST * c->best[at].bound.step)
        at++;
    return at;
}

static void insert_choice(struct Choices *c, const struct Choice *choice) {
    size_t at = find_place(c, choice->bound.step);
    if (at == BEST)
        return;
    c->n += c->n < BEST;
    for (size_t i = c->n - 1; i > at; i--)
        c->best[i] = c->best[i - 1];
    c->best[at] = *choice;
}

// Tries the largest of n rising batches; if it is too large but fast, the largest that fits.
static void try_batches(struct Search *s, struct Candidate c, const size_t *batch, size_t n) {
    c.batch = batch[n - 1];
    if (try_candidate(s, &c)) {
        insert_choice(s->out, &s->trial);
        return;
    }
    if (find_place(s->out, s->trial.bound.step) == BEST)
        return; // a smaller batch takes longer
    if (candidates_largest(batch, n - 1, c, try_candidate, s))
        insert_choice(s->out, &s->trial);
}

static int report_nothing_fits(const struct Search *s, struct Error *e) {
    const struct ChooseRequest *r = s->request;
    struct Candidate said = candidate_of(r->settings);
    char lack[LACK_BYTES], flags[CANDIDATE_BYTES];
    if (s->trials.excess == SIZE_MAX)
        return candidates_refuse_flags(e);
    candidate_describe(&s->trials.nearest, &said, r->settings->nvme.folder, flags);
    capacity_describe(&r->room, &s->trials.needs, lack);
    return error_set(
        e, -ENOMEM, E_FIT_NOTHING,
        "--fit auto: nothing fits; even with%s, %s; use more --ranks or a smaller model",
        flags[0] ? flags : " the given flags", lack);
}

int choose(const struct ChooseRequest *r, struct Choices *out, struct Error *e) {
    struct Search s = {.request = r, .out = out};
    struct Candidate *list;
    size_t *batch, most = r->settings->batch, nbatch = 1;
    *out = (struct Choices){.n = 0};
    int err = trials_open(&s.trials, r->settings, &r->room, r->ranks_here, false, e);
    if (!err) {
        bool disk = r->settings->nvme.folder != NULL;
        out->candidates = candidates_list(r->settings, &r->open, disk, &list);
        if (r->open.batch)
            nbatch = candidates_batches(r->settings, most, &batch);
        for (size_t i = 0; i < out->candidates && nbatch; i++)
            try_batches(&s, list[i], r->open.batch ? batch : &most, nbatch);
        if (r->open.batch)
            free(batch);
        free(list);
        err = out->n ? 0 : report_nothing_fits(&s, e);
    }
    trials_close(&s.trials);
    for (struct CountedPasses *c = s.counted, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    return err;
}

// ---- in print ----

void choices_print(FILE *out, const struct ChooseRequest *r, const struct Choices *c,
                   double tokens) {
    struct Candidate plain = {0};
    plain.batch = r->open.batch ? 0 : r->settings->batch;
    fprintf(out, "--fit auto: the best of %zu candidates (MiB on each rank)\n", c->candidates);
    fprintf(out, "%12s %12s %12s %10s %12s  %-14s flags\n", "device", "host", "disk", "step (ms)",
            "tokens/s", "longest is");
    for (size_t i = 0; i < c->n; i++) {
        const struct Choice *b = &c->best[i];
        const struct Tier *tier = b->forecast.is.tier;
        char flags[CANDIDATE_BYTES];
        candidate_describe(&b->is, &plain, r->settings->nvme.folder, flags);
        const char *longest = bound_longest(&b->bound);
        fprintf(out, "%12.2f %12.2f %12.2f %10.2f %12.0f  %-14s%s\n", mib(tier[TIER_DEVICE].peak),
                mib(tier[TIER_CPU].peak), mib(tier[TIER_NVME].peak), b->bound.step * 1e3,
                tokens / b->bound.step, strcmp(longest, "host") ? longest : "host's update",
                flags[0] ? flags : " nothing else");
    }
    fflush(out);
}
