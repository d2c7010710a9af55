// Does a run fit, and if not, what would make it?
//
// Three things are limited: the device's memory, by what there is or by --device-mem; the host's,
// likewise or by --host-mem and --host-mem-per-rank; and the disk. A forecast costs some
// milliseconds, so the question of what would fit is answered by trying: the same run at a higher
// stage, with more recomputation, with both; with more and more of it offloaded to the host; with
// split master weights, where nobody chose; with less offloaded, where the host's memory is short;
// with the disk, which comes before that where the user named one; then with a smaller batch, which
// changes the training too; and at last all of this at a lower stage than was said.
//
// Called by predict.c. Next: candidates.c.
#include "zero/plan/predict.h"

#include "zero/plan/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

// The search for advice: which of those that fit is the least change.
struct Advice {
    const struct Forecast *run;
    enum Shortage shortage; // the run's
    struct Trials trials;
};

struct Change {
    struct Candidate is;
    uint64_t distance;
};

static int compare_changes(const void *a, const void *b) {
    const struct Change *x = a, *y = b;
    return x->distance < y->distance ? -1 : x->distance > y->distance;
}

// Lists the candidates that are advice, the least change first; returns how many. batches: they
// also get a smaller batch. lower: those of a lower stage than was said; else the others.
static size_t sort_changes(const struct Advice *s, const struct Candidate *list, size_t n,
                           bool batches, bool lower, struct Change *out) {
    struct Candidate said = candidate_of(&s->run->settings);
    bool disk = s->run->settings.nvme.folder != NULL;
    bool host_is_short =
        s->shortage == SHORT_HOST || s->shortage == SHORT_NODE || s->shortage == SHORT_MEMORY;
    size_t found = 0;
    for (size_t i = batches ? 0 : 1; i < n; i++) {
        uint64_t distance = batches ? candidate_distance_with_batch(&list[i], &said)
                                    : candidate_distance(&list[i], &said, host_is_short, disk);
        if (distance != CANDIDATE_NOT && (list[i].stage < said.stage) == lower)
            out[found++] = (struct Change){list[i], distance};
    }
    qsort(out, found, sizeof *out, compare_changes);
    return found;
}

// Tries n candidates, of a lower stage or not; then those with the largest smaller batch that fits.
static bool search_among(struct Advice *s, const struct Candidate *list, size_t n, bool lower) {
    const struct RankSettings *said = &s->run->settings;
    size_t *batch, nbatch = candidates_batches(said, said->batch - 1, &batch);
    struct Change *change = base_alloc(n * sizeof *change);
    bool found = false;
    size_t changes = sort_changes(s, list, n, false, lower, change);
    for (size_t i = 0; i < changes && !found; i++)
        found = trials_fit(&s->trials, &change[i].is);
    changes = found ? 0 : sort_changes(s, list, n, true, lower, change); // which changes training
    for (size_t i = 0; i < changes && !found; i++)
        found = candidates_largest(batch, nbatch, change[i].is, trials_fit, &s->trials);
    free(change);
    free(batch);
    return found;
}

static bool search_advice(struct Advice *s) {
    const struct RankSettings *said = &s->run->settings;
    const struct FitOpen open = {.stage = true,
                                 .recompute = true,
                                 .opt = true,
                                 .param = true,
                                 .act = true,
                                 .split = said->master_open};
    struct Candidate *list;
    size_t n = candidates_list(said, &open, true, &list);
    bool found = search_among(s, list, n, false) || search_among(s, list, n, true);
    free(list);
    return found;
}

// Describes what the fitting candidate needs of each memory that the run lacks.
static void describe_least(const struct Advice *s, const struct Needs *run, char text[LACK_BYTES]) {
    size_t at = 0;
    for (enum Shortage of = SHORT_DEVICE; of < NSHORTAGE; of++) {
        char one[LACK_BYTES];
        if (run->of[of] <= s->trials.room->of[of] || at >= LACK_BYTES)
            continue;
        capacity_describe_need(&s->trials.needs, of, one);
        at += (size_t)snprintf(text + at, LACK_BYTES - at, "%s%s", at ? ", and " : "", one);
    }
}

// Searches for advice, and makes the error. advice: the change as flags, or "" where none helps.
static int refuse_run(struct Advice *s, char advice[CANDIDATE_BYTES], struct Error *e) {
    const char *none = "no stage, recomputation, offload or batch makes it fit";
    struct Candidate said = candidate_of(&s->run->settings);
    char lack[LACK_BYTES], least[LACK_BYTES], flags[CANDIDATE_BYTES];
    capacity_describe(s->trials.room, &s->trials.needs, lack);
    struct Needs lacks = s->trials.needs;
    bool found = search_advice(s);
    describe_least(s, &lacks, least);
    candidate_describe(&s->trials.nearest, &said, s->run->settings.nvme.folder, flags);
    snprintf(advice, CANDIDATE_BYTES, "%s", found ? flags + 1 : "");
    if (found)
        return error_set(e, -ENOMEM, E_MEMORY, "%s: with%s it would fit, in %s", lack, flags,
                         least);
    if (!flags[0])
        return error_set(e, -ENOMEM, E_MEMORY, "%s; %s; use more --ranks or a smaller model", lack,
                         none);
    capacity_describe(s->trials.room, &s->trials.needs, least);
    return error_set(e, -ENOMEM, E_MEMORY,
                     "%s; %s; even with%s, %s; use more --ranks or a smaller model", lack, none,
                     flags, least);
}

// The devices of dry ranks are opened once for the whole search.
static int advise(const struct Forecast *run, const struct Capacity *room,
                  char advice[CANDIDATE_BYTES], struct Error *e) {
    struct Advice s = {.run = run, .shortage = capacity_shortage(run, room)};
    int err = trials_open(&s.trials, &run->settings, room, run->ranks_here, true, e);
    s.trials.excess = capacity_excess(run, room);
    s.trials.needs = capacity_needs(run);
    err = err ? err : refuse_run(&s, advice, e);
    trials_close(&s.trials);
    return err;
}

// Checks the space on the disk, which nothing but files can tell about: a plan leaves it alone.
static int check_disk(const struct PredictRequest *r, const struct Forecast *f, struct Error *e) {
    size_t bytes = f->demand.of[TIER_NVME].here; // of each process that shares the disk
    size_t processes = (size_t)(f->work.disk_ranks / f->ranks_here);
    return r->plan || !bytes ? 0 : nvme_preflight(&r->settings->nvme, bytes * processes, e);
}

// Prints the forecast, with its stages. advice: NULL where it fits.
static int print_forecast(const struct PredictRequest *r, const struct Forecast *f,
                          const char *advice, struct Error *e) {
    struct PipelineForecast pipeline;
    int err = pipeline_predict(r->settings, &pipeline, e);
    if (!err && r->json) {
        char *json = table_json(f, &pipeline, NULL, advice);
        fputs(json, r->out);
        free(json);
    } else if (!err) {
        table_print(r->out, f, NULL);
        table_print_pipeline(r->out, &pipeline);
    }
    pipeline_free(&pipeline);
    return err;
}

int fit_or_refuse(const struct PredictRequest *r, struct RankDeviceMemory host,
                  const struct Speeds *speeds, struct Forecast *out, struct Error *e) {
    const struct World *w = r->world;
    struct RankDeviceMemory memory;
    int err = rank_device_memory(r->settings, host, w->node_size, &memory, e);
    if (!err)
        err = footprint_predict(r->settings, memory.process_bytes, w->count, out, e);
    if (err)
        return err;
    out->speeds = *speeds;
    out->is.host_bytes = host.process_bytes + out->is.own_bytes + out->demand.host_bytes;
    char advice[CANDIDATE_BYTES] = "";
    struct Capacity room =
        capacity_of(r->settings, &memory, host.free_bytes, w->count, w->node_size, r->plan);
    struct Error unprinted;
    int print_err = 0;
    err = capacity_shortage(out, &room) ? advise(out, &room, advice, e) : check_disk(r, out, e);
    if (r->out && w->first == 0)
        print_err = print_forecast(r, out, err ? advice : NULL, err ? &unprinted : e);
    return err ? err : print_err;
}
