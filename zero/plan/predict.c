// The parts of a forecast in the order of a run: see predict.h. Next: fit.c.
#include "zero/plan/predict.h"

#include "zero/plan/table.h"

#include <errno.h>

int predict_check(const struct PredictRequest *r, struct Error *e) {
    const struct RankSettings *s = r->settings;
    struct Forecast unused;
    int err = place_check(s, e);
    if (!err && settings_use_disk(s))
        err = nvme_preflight(&s->nvme, 0, e);
    return err ? err : footprint_predict(s, 0, r->world->count, &unused, e);
}

// No error: a command line is to work with any number of ranks.
static void tell_alone(const struct PredictRequest *r) {
    const struct RankSettings *s = r->settings;
    const struct ZeroStage *stage = zero_stage(s->stage);
    bool shards = stage->shards_param || stage->shards_grad || stage->shards_optimizer;
    if (r->world->first == 0 && s->ranks == 1 && shards)
        log_line(LOG_NORMAL, "--zero %d with one rank shards nothing: --ranks N for more",
                 s->stage);
}

int predict(const struct PredictRequest *r, struct Forecast *out, struct Error *e) {
    const struct MachineCalls *m = r->machine;
    struct Speeds speeds = {0};
    if (r->world->first == 0 && r->steps &&
        speeds_find(r->settings, r->plan, m->measured, r->cache, &speeds, e))
        return -EINVAL;
    m->peak_reset();
    struct FitRequest fit = {.settings = r->settings,
                             .host = {m->free_bytes(), m->resident_bytes()},
                             .processes_here = r->world->node_size,
                             .ranks_here = r->world->count,
                             .speeds = speeds,
                             .plan = r->plan,
                             .out = r->world->first == 0 ? r->out : NULL,
                             .json = r->json};
    int err = fit_or_refuse(&fit, out, e);
    if (!err && r->steps)
        tell_alone(r);
    return err;
}

int predict_parameters(const struct PredictRequest *r, uint64_t parameters, struct Error *e) {
    if (r->world->first)
        return 0;
    int err = table_of_parameters(r->out, parameters, r->settings, r->json, e);
    if (!err)
        tell_alone(r);
    return err;
}

char *predict_compare(const struct PredictRequest *r, const struct Forecast *forecast,
                      const struct Rank *rank, bool exceeded) {
    struct Footprint measured = footprint_measure(rank, r->settings, r->machine->peak_bytes());
    char *json = table_json(forecast, &measured, NULL);
    table_print(r->out, forecast, &measured);
    rank_tell_fallbacks(rank, r->out);
    if (exceeded)
        speed_doubt(r->settings, r->machine->doubt, r->cache);
    return json;
}
