// --fit auto for a cluster: of the layouts that fit, the one whose step is forecast to be shortest.
//
// What no flag says is open: TP ranks, stages of a pipeline, the stage of ZeRO, recomputation,
// offload and the micro-batch. A larger micro-batch takes less time and more memory, so of each
// layout the largest that fits is taken; and offload moves more than it saves, so of each layout
// the least that fits.
#include "zero/plan/cluster.h"

#include <errno.h>

// More and more of it, in this order; but activations alone, of which a pipeline's first stage has
// those of many micro-batches, are no less than the optimizer state alone: both are tried.
static const struct {
    enum TierKind opt, param, act;
} offloads[] = {{TIER_DEVICE, TIER_DEVICE, TIER_DEVICE}, {TIER_DEVICE, TIER_DEVICE, TIER_CPU},
                {TIER_CPU, TIER_DEVICE, TIER_DEVICE},    {TIER_CPU, TIER_CPU, TIER_DEVICE},
                {TIER_CPU, TIER_CPU, TIER_CPU},          {TIER_NVME, TIER_CPU, TIER_DEVICE},
                {TIER_NVME, TIER_NVME, TIER_CPU}};
enum { NOFFLOADS = sizeof offloads / sizeof offloads[0], ACTIVATIONS_ALONE = 1 };

struct Search {
    const struct Cluster *c;
    const struct FitOpen *open;
    const struct RankSettings *said;
    struct ClusterChoices *out;
    size_t least; // bytes of a GPU, of all valid settings; SIZE_MAX: there are none
};

// Those that come first are smaller changes, and stay before others that are about as fast.
static const double AS_FAST = 0.99;

static void insert_forecast(struct ClusterChoices *c, const struct ClusterForecast *f) {
    size_t at = c->n < CLUSTER_BEST ? c->n++ : CLUSTER_BEST;
    if (at == CLUSTER_BEST && f->step >= AS_FAST * c->best[--at].step)
        return;
    for (; at > 0 && f->step < AS_FAST * c->best[at - 1].step; at--)
        c->best[at] = c->best[at - 1];
    c->best[at] = *f;
}

// True if the settings are valid and fit; then keeps them, if they are among the best.
static bool try_settings(struct Search *s, const struct RankSettings *r) {
    struct ClusterForecast f;
    struct Error ignored;
    s->out->tried++;
    if (settings_check_shards(r, &ignored) || cluster_forecast(s->c, r, &f, &ignored))
        return false;
    s->least = size_min(s->least, f.device);
    if (cluster_check_room(s->c, &f, &ignored))
        return false;
    insert_forecast(s->out, &f);
    return true;
}

// Tries settings with the largest micro-batch that fits; false: none does.
static bool try_batches(struct Search *s, struct RankSettings r) {
    size_t each = s->said->global_batch / (size_t)settings_data_ranks(&r);
    if (!s->open->batch)
        return settings_set_batch(&r, s->said->batch) == 0 && try_settings(s, &r);
    for (size_t batch = size_min(each, CLUSTER_MOST_BATCH); batch > 0; batch--)
        if (settings_set_batch(&r, batch) == 0 && try_settings(s, &r))
            return true;
    return false;
}

static void try_offloads(struct Search *s, struct RankSettings r) {
    const struct FitOpen *open = s->open;
    const struct RankSettings *said = s->said;
    for (int i = 0; i < NOFFLOADS; i++) {
        r.opt_tier = open->opt ? offloads[i].opt : said->opt_tier;
        r.param_tier = open->param ? offloads[i].param : said->param_tier;
        r.act_tier = open->act ? offloads[i].act : said->act_tier;
        bool as_listed = r.opt_tier == offloads[i].opt && r.param_tier == offloads[i].param &&
                         r.act_tier == offloads[i].act;
        if ((as_listed || i == 0) && try_batches(s, r) && i != ACTIVATIONS_ALONE)
            return;
    }
}

static void try_zero_stages(struct Search *s, struct RankSettings r) {
    for (int stage = 0; zero_stage(stage); stage++)
        for (int level = 0; level < NRECOMPUTE; level++) {
            r.stage = s->open->stage ? stage : s->said->stage;
            r.recompute = s->open->recompute ? (enum Recompute)level : s->said->recompute;
            if (r.stage == stage && (int)r.recompute == level)
                try_offloads(s, r);
        }
}

static void try_grid(struct Search *s, size_t tp, size_t pp) {
    struct RankSettings r = *s->said;
    struct Error ignored;
    r.tp = tp;
    r.pp = pp;
    bool is_valid = (size_t)r.ranks % (tp * pp) == 0 && pp <= r.model.layers &&
                    !model_config_check_parts(&r.model, tp, &ignored) &&
                    s->said->global_batch % (size_t)settings_data_ranks(&r) == 0;
    if (is_valid)
        try_zero_stages(s, r);
}

// Tries powers of two, as far as they are open; TP ranks lie on one node.
static void search_grids(struct Search *s) {
    const struct RankSettings *said = s->said;
    const struct FitOpen *open = s->open;
    size_t tp = (size_t)settings_tp_size(said), pp = (size_t)settings_stages(said);
    for (size_t t = open->tp ? 1 : tp; t <= (open->tp ? s->c->node_gpus : tp); t *= 2)
        for (size_t p = open->pp ? 1 : pp; p <= (open->pp ? said->model.layers : pp); p *= 2)
            try_grid(s, t, p);
}

int cluster_choose(const struct Cluster *c, const struct RankSettings *asked,
                   const struct FitOpen *open, struct ClusterChoices *out, struct Error *e) {
    struct RankSettings said = *asked;
    bool all = said.shard_size == (size_t)settings_data_ranks(&said);
    struct Search s = {c, open, &said, out, SIZE_MAX};
    said.shard_size = all ? 0 : said.shard_size; // else each grid has its own
    *out = (struct ClusterChoices){.n = 0};
    int err = cluster_check(c, &said, e);
    if (!err)
        err = cluster_open(&said, e);
    if (err)
        return err;
    search_grids(&s);
    cluster_close(&said);
    if (out->n)
        return 0;
    if (s.least == SIZE_MAX)
        return candidates_refuse_flags(e);
    return error_set(e, -ENOMEM, E_FIT_NOTHING,
                     "--fit auto: nothing fits --cluster %s: the smallest configuration needs %.2f "
                     "GB of a GPU's memory, which is limited to %.2f GB, or more memory than a "
                     "node has; use more --ranks or a smaller model",
                     said.cluster, (double)s.least / 1e9,
                     (double)cluster_limit(c->device_bytes, said.device_bytes) / 1e9);
}

void cluster_choices_print(FILE *out, const struct ClusterChoices *c) {
    fprintf(out, "--fit auto: the best of %zu forecasts (GB)\n", c->tried);
    fprintf(out, "%10s %10s %12s %14s  layout\n", "each GPU", "each node", "step (ms)",
            "tokens/s a GPU");
    for (size_t i = 0; i < c->n; i++) {
        const struct ClusterForecast *f = &c->best[i];
        const struct RankSettings *s = &f->rank.settings;
        struct Candidate is = candidate_of(s), plain = {0};
        char flags[CANDIDATE_BYTES];
        candidate_describe(&is, &plain, "", flags);
        fprintf(out, "%10.2f %10.2f %12.2f %14.0f  --tp %zu --pp %zu%s\n", (double)f->device / 1e9,
                (double)f->host / 1e9, f->step * 1e3, f->tokens / f->step / s->ranks, f->tp_size,
                f->stages, flags);
    }
}
