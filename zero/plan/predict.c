// The parts of a forecast in the order of a run: see predict.h. Next: fit.c.
#include "zero/plan/predict.h"

#include "zero/plan/table.h"

#include <errno.h>

int predict_check(const struct Predicting *f, struct Error *e) {
    const struct RankSettings *s = f->settings;
    struct Forecast unused;
    int err = place_check(s, e);
    if (!err && settings_use_disk(s))
        err = nvme_preflight(&s->nvme, 0, e);
    return err ? err : footprint_predict(s, 0, f->world->count, &unused, e);
}

int predict(const struct Predicting *f, struct Forecast *out, struct Error *e) {
    const struct MachineCalls *m = f->machine;
    struct Speeds speeds = {0};
    if (f->world->first == 0 && f->steps &&
        speeds_find(f->settings, f->plan, m->measured, f->cache, &speeds, e))
        return -EINVAL;
    m->peak_reset();
    struct FitRequest r = {.settings = f->settings,
                           .host = {m->free_bytes(), m->resident_bytes()},
                           .processes_here = f->world->node_size,
                           .ranks_here = f->world->count,
                           .speeds = speeds,
                           .plan = f->plan,
                           .out = f->world->first == 0 ? f->out : NULL,
                           .json = f->json};
    return fit_or_refuse(&r, out, e);
}

int predict_parameters(const struct Predicting *f, uint64_t parameters, struct Error *e) {
    return f->world->first ? 0 : table_of_parameters(f->out, parameters, f->settings, f->json, e);
}

char *predict_compare(const struct Predicting *f, const struct Forecast *forecast,
                      const struct Rank *r, bool exceeded) {
    struct Footprint measured = footprint_measure(r, f->settings, f->machine->peak_bytes());
    char *json = table_json(forecast, &measured, NULL);
    table_print(f->out, forecast, &measured);
    rank_tell_fallbacks(r, f->out);
    if (exceeded)
        speed_doubt(f->settings, f->machine->doubt, f->cache);
    return json;
}
