// The parts of a forecast in the order of a run: see predict.h. Next: fit.c.
#include "zero/plan/predict.h"

#include "zero/qlora/qlora.h"
#include "zero/plan/table.h"
#include "zero/process/memory.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIT_MOST_BATCH = 65536 }; // as --batch has it

int predict_check(const struct PredictRequest *r, struct Error *e) {
    const struct RankSettings *s = r->settings;
    struct Forecast unused;
    int err = rank_device_check(s, e);
    if (!err && settings_uses_disk(s))
        err = nvme_preflight(&s->nvme, 0, e);
    return err ? err : footprint_predict(s, 0, r->world->count, &unused, e);
}

// Warns, and refuses nothing: a command line is to work with any number of ranks.
static void warn_alone(const struct PredictRequest *r) {
    const struct RankSettings *s = r->settings;
    const struct ZeroStage *stage = zero_stage(s->stage);
    bool shards = stage->shards_param || stage->shards_grad || stage->shards_optimizer;
    if (r->world->first == 0 && settings_data_ranks(s) == 1 && shards)
        log_line(LOG_NORMAL, "--zero %d with one %srank shards nothing; raise --ranks to shard",
                 s->stage, s->ranks > 1 ? "data-parallel " : "");
}

// Warns, and refuses nothing: with few micro-batches a pipeline is only slow.
static void warn_few_micro_batches(const struct PredictRequest *r) {
    const struct RankSettings *s = r->settings;
    int stages = settings_stages(s);
    if (r->world->first == 0 && s->nmicro < (size_t)stages)
        log_line(LOG_NORMAL,
                 "warning: --pp %d with %zu micro-batch%s in a step: stages wait for each other "
                 "most of the time; raise --global-batch or lower --batch for more micro-batches",
                 stages, s->nmicro, s->nmicro == 1 ? "" : "es");
}

// ---- --init without --batch ----

// Halves a limit: the small model may be of any size, and the usual micro-batch may want more
// memory than the machine has, so a run takes no more than half of what is free.
static size_t half_of(size_t bytes) {
    return bytes == SIZE_MAX ? bytes : bytes / 2;
}

// Returns the bytes that each rank of this process may take, of the device tier's memory and of the
// CPU's. A plan for a described device has the memory that is given.
static struct Capacity half_for_each(const struct PredictRequest *r, const struct RankSettings *s,
                                     const struct RankDeviceMemory *place, size_t host) {
    size_t ranks = (size_t)r->world->count, said = s->device_bytes ? s->device_bytes : SIZE_MAX;
    size_t here = ranks * (size_t)r->world->node_size;
    bool described = r->plan && s->device_bytes;
    size_t known = place->free_bytes == SIZE_MAX ? SIZE_MAX : place->free_bytes / ranks;
    struct Capacity half;
    for (enum Shortage of = SHORT_NOT; of < NSHORTAGE; of++)
        half.of[of] = SIZE_MAX;
    half.of[SHORT_PLACE] = half_of(described ? said : size_min(known, said));
    half.of[SHORT_MEMORY] = half_of(r->plan ? SIZE_MAX : host / here);
    return half;
}

// Finds the largest micro-batch that divides the step, up to s->batch, with which a rank fits; the
// smallest if none does. Errors: those of trials_open.
static int largest_batch(const struct RankSettings *s, const struct Capacity *half, int ranks_here,
                         size_t *batch, struct Error *e) {
    struct Trials t;
    size_t *list;
    int err = trials_open(&t, s, half, ranks_here, false, e);
    if (!err) {
        size_t n = candidates_batches(s, s->batch, &list);
        bool found = candidates_largest(list, n, candidate_of(s), trials_fit, &t);
        *batch = found ? t.nearest.batch : n ? list[0] : s->batch;
        free(list);
    }
    trials_close(&t);
    return err;
}

// Chooses the batch on rank 0, within half the least memory of any process; keeps the step.
static int choose_batch(const struct PredictRequest *r, struct Settings *resolved,
                        struct Settings *given, struct Error *e) {
    const struct World *w = r->world;
    struct RankSettings s = *r->settings;
    struct RankDeviceMemory device, host = {memory_free_bytes(), memory_resident_bytes()};
    size_t batch = s.batch;
    s.global_batch = resolved->global_batch;
    int err = rank_device_memory(&s, host, w->node_size, &device, e);
    struct Capacity half = {{0}};
    if (!err)
        half = half_for_each(r, &s, &device, host.free_bytes);
    size_t *on_device = &half.of[SHORT_PLACE], *on_host = &half.of[SHORT_MEMORY];
    *on_device = world_least(w, *on_device);
    *on_host = world_least(w, *on_host);
    if (!err && w->first == 0)
        err = largest_batch(&s, &half, w->count, &batch, e);
    uint64_t word = world_broadcast(w, err ? UINT64_MAX : batch);
    if (err || word == UINT64_MAX)
        return err ? err : -EINVAL; // rank 0's process has told why
    settings_set_batch(&s, (size_t)word);
    if (r->steps && s.batch < resolved->rank.batch && w->first == 0)
        log_line(LOG_NORMAL,
                 "--batch %zu of --global-batch %zu is chosen: a larger one would take more than "
                 "half of the %.2f GB that each rank has free",
                 s.batch, resolved->global_batch, 2 * (double)size_min(*on_device, *on_host) / 1e9);
    given->rank.batch = resolved->rank.batch = s.batch;
    resolved->rank.nmicro = s.nmicro;
    resolved->rank.grad_dtype = s.grad_dtype;
    return 0;
}

// ---- --fit ----

static bool is_open(const struct FitOpen *o) {
    return o->stage || o->recompute || o->opt || o->param || o->act || o->batch || o->split ||
           o->master || o->moments || o->lora || o->tp || o->pp;
}

// True if this machine has such a device.
static bool is_here(const struct RankSettings *s) {
    return s->device == DEVICE_CPU || device_count_cuda() > 0;
}

// Measures all speeds that a candidate may depend on, whichever it is.
static int measure_all(const struct PredictRequest *r, struct ChooseRequest *c, struct Error *e) {
    struct RankSettings s = *r->settings;
    bool here = is_here(&s);
    struct Speeds disk = {0};
    KeepMeasured *keep = r->measured;
    s.opt_tier = s.param_tier = s.act_tier = TIER_CPU;
    s.offload_ratio = 1;
    if (here)
        rates_find(&s, r->world->count, keep, r->cache, &c->rates);
    int err = speeds_find(&s, r->plan, keep, r->cache, &c->speeds, e);
    s.opt_tier = TIER_NVME;
    if (!err && s.nvme.folder)
        err = speeds_find(&s, r->plan, keep, r->cache, &disk, e);
    if (err)
        return err;
    c->speeds.read = disk.read;
    c->speeds.written = disk.written;
    c->speeds.update = c->rates.kernels.of[KERNEL_adamw];
    if (s.device == DEVICE_CPU) // the same cores
        c->speeds.update = c->speeds.host_update = fmax(c->speeds.update, c->speeds.host_update);
    if (!here)
        card_assume(&s, &c->rates, &c->speeds);
    // Between processes through memory, in and out.
    c->speeds.sent = c->rates.sent > 0 ? c->rates.sent : c->speeds.in / 2;
    return 0;
}

// Packs a candidate into a word: its batch, then 4 bits for each of its other choices.
static uint64_t pack_candidate(const struct Candidate *c) {
    uint64_t word = c->batch;
    for (int i = 0; i < NCHOOSE; i++)
        word = word << 4 | (uint64_t)c->of[i];
    return word;
}
static struct Candidate unpack_candidate(uint64_t word) {
    struct Candidate c;
    for (int i = NCHOOSE - 1; i >= 0; i--, word >>= 4)
        c.of[i] = word & 15;
    c.batch = word;
    return c;
}

// Sets the adapters of --fit auto,lora. adapters: 0: none, else 1 + an enum BaseFormat.
enum { ADAPTER_BITS = 2 };
static void set_adapters(struct ModelConfig *m, int adapters) {
    if (adapters)
        m->lora = (struct Lora){.rank = FIT_RANK,
                                .alpha = 2 * FIT_RANK,
                                .targets = lora_targets_all(m->kind == FAMILY_GPT2),
                                .base = (enum BaseFormat)(adapters - 1)};
}

// Logs that adapters alone are trained, and how many parameters they have.
static void log_adapters(const struct ModelConfig *m) {
    unsigned long long trained = (unsigned long long)params_trained(m);
    struct Params all;
    params_layout(m, 1, 0, 1, &all);
    log_line(LOG_NORMAL,
             "--fit auto,lora: nothing fits that trains all %llu parameters; %llu of adapters are "
             "trained instead: --lora-rank %zu --base-dtype %s",
             (unsigned long long)all.real - trained, trained, m->lora.rank,
             qlora_words[m->lora.base]);
    params_free(&all);
}

// Chooses on rank 0's process alone. *word: the packed candidate, then adapters in ADAPTER_BITS.
static int choose_first(const struct PredictRequest *r, struct ChooseRequest c, double tokens,
                        uint64_t *word, struct Error *e) {
    struct Choices all;
    struct RankSettings adapted = *c.settings;
    struct Error why = {0};
    int most = adapted.quantized_weights ? 1 : NBASE; // which travel in another form
    int adapters = 0, err = measure_all(r, &c, &why);
    if (!err)
        err = choose(&c, &all, &why);
    c.settings = &adapted;
    while (err == -ENOMEM && c.open.lora && adapters < most) {
        set_adapters(&adapted.model, ++adapters);
        err = choose(&c, &all, &why);
    }
    if (err)
        *e = why;
    if (err)
        return err;
    if (adapters)
        log_adapters(&adapted.model);
    *word = pack_candidate(&all.best[0].is) << ADAPTER_BITS | (uint64_t)adapters;
    if (r->out && !r->json)
        choices_print(r->out, &c, &all, tokens);
    return 0;
}

static void set_choice(struct Settings *to, const struct Candidate *c, bool with_batch) {
    candidate_apply(c, &to->rank);
    if (with_batch)
        to->rank.batch = c->batch;
}

// Chooses the best settings on a cluster that is not here, into `resolved`.
static int choose_on_cluster(const struct PredictRequest *r, const struct RankSettings *s,
                             struct Settings *resolved, struct Error *e) {
    struct Cluster c;
    struct ClusterChoices *all = base_alloc_zeroed(sizeof *all);
    int err = cluster_read(s->cluster, r->read_json(s->cluster, e), &c, e);
    if (!err)
        err = cluster_choose(&c, s, &resolved->open, all, e);
    if (!err) {
        const struct RankSettings *best = &all->best[0].rank.settings;
        struct Candidate chosen = candidate_of(best);
        set_choice(resolved, &chosen, true);
        resolved->rank.tp = best->tp;
        resolved->rank.pp = best->pp;
        resolved->rank.shard_size = (size_t)settings_shard_ranks(best);
        resolved->rank.nmicro = best->nmicro;
        resolved->rank.grad_dtype = best->grad_dtype;
        if (!r->json)
            cluster_choices_print(r->out, all);
    }
    free(all);
    return err;
}

int predict_choose(const struct PredictRequest *r, struct Settings *resolved,
                   struct Settings *given, struct Error *e) {
    const struct World *w = r->world;
    struct RankSettings s = *r->settings;
    struct RankDeviceMemory device, host = {memory_free_bytes(), memory_resident_bytes()};
    uint64_t word = UINT64_MAX;
    if (resolved->lowers_batch && !s.cluster)
        return choose_batch(r, resolved, given, e);
    if (!r->steps || !is_open(&resolved->open))
        return 0;
    s.global_batch = resolved->global_batch;
    if (s.cluster)
        return choose_on_cluster(r, &s, resolved, e);
    size_t ranks = (size_t)settings_data_ranks(&s);
    resolved->open.stage &= ranks > 1; // one rank shards nothing
    if (resolved->open.batch)
        settings_set_batch(&s, size_min(resolved->global_batch / ranks, FIT_MOST_BATCH));
    int err = rank_device_memory(&s, host, w->node_size, &device, e);
    device.free_bytes = world_least(w, err ? 0 : device.free_bytes);
    host.free_bytes = world_least(w, host.free_bytes);
    struct ChooseRequest c = {
        .settings = &s,
        .open = resolved->open,
        .room = capacity_of(&s, &device, host.free_bytes, w->count, w->node_size, r->plan),
        .ranks_here = w->count};
    if (!err && w->first == 0)
        err = choose_first(r, c, (double)(resolved->global_batch * s.model.seq_len), &word, e);
    word = world_broadcast(w, word);
    if (err || word == UINT64_MAX)
        return err ? err : -EINVAL; // rank 0's process has told why
    struct Candidate chosen = unpack_candidate(word >> ADAPTER_BITS);
    set_adapters(&resolved->rank.model, (int)(word % (1 << ADAPTER_BITS)));
    set_adapters(&given->rank.model, (int)(word % (1 << ADAPTER_BITS)));
    settings_set_batch(&s, chosen.batch);
    set_choice(resolved, &chosen, true);
    resolved->rank.nmicro = s.nmicro;
    resolved->rank.grad_dtype = s.grad_dtype;
    set_choice(given, &chosen, resolved->open.batch);
    return 0;
}

// Forecasts a run on a cluster that is not here, and measures nothing of this machine.
static int predict_cluster(const struct PredictRequest *r, struct ClusterForecast *out,
                           struct Error *e) {
    struct Cluster c;
    int err = cluster_read(r->settings->cluster, r->read_json(r->settings->cluster, e), &c, e);
    if (!err)
        err = cluster_forecast(&c, r->settings, out, e);
    if (err)
        return err;
    char *json = cluster_json(&c, out);
    if (r->json)
        fputs(json, r->out);
    else
        cluster_print(r->out, &c, out);
    free(json);
    return cluster_check_room(&c, out, e);
}

int predict(const struct PredictRequest *r, struct Forecast *out, struct Error *e) {
    struct ClusterForecast there;
    struct Speeds speeds = {0};
    if (r->settings->cluster)
        return r->world->first ? 0 : predict_cluster(r, &there, e);
    if (r->world->first == 0 && r->steps &&
        speeds_find(r->settings, r->plan, r->measured, r->cache, &speeds, e))
        return -EINVAL;
    struct Rates unused;
    if (r->steps && !is_here(r->settings))
        card_assume(r->settings, &unused, &speeds);
    memory_peak_reset();
    struct RankDeviceMemory host = {memory_free_bytes(), memory_resident_bytes()};
    int err = 0;
    if (r->world->first == 0 && r->out && r->settings->show_chain)
        err = chains_print(r->out, r->settings, e);
    if (!err)
        err = fit_or_refuse(r, host, &speeds, out, e);
    if (!err && r->steps) {
        warn_alone(r);
        warn_few_micro_batches(r);
    }
    return err;
}

int predict_parameters(const struct PredictRequest *r, uint64_t parameters, struct Error *e) {
    if (r->world->first)
        return 0;
    int err = table_of_parameters(r->out, parameters, r->settings, r->json, e);
    if (!err)
        warn_alone(r);
    return err;
}

// Makes the forecast of another rank, with the demand of all ranks as in `f`.
static int forecast_other_rank(const struct PredictRequest *r, int rank, const struct Forecast *f,
                               struct Forecast *out, struct Error *e) {
    int err = footprint_of_rank(r->settings, rank, f->ranks_here, out, e);
    struct Demand here = f->ranks_here > 1 ? f->demand : out->demand; // of this process
    out->speeds = f->speeds;
    out->demand = f->demand;
    out->unlike = f->unlike;
    out->is.process_bytes = f->is.process_bytes;
    out->is.all_bytes = f->is.all_bytes - f->demand.place_bytes + here.place_bytes;
    out->is.host_bytes = f->is.host_bytes - f->demand.host_bytes + here.host_bytes;
    return err;
}

char *predict_compare(const struct PredictRequest *r, const struct Forecast *forecast,
                      const struct Rank *rank) {
    struct Footprint measured = footprint_measure(rank, r->settings, memory_peak_bytes());
    struct Forecast own = *forecast; // of the rank that measured
    struct Error e;
    if (own.settings.rank != rank->all->rank)
        CHECK(!forecast_other_rank(r, rank->all->rank, forecast, &own, &e), "%s", e.text);
    char *json = table_json(&own, NULL, &measured, NULL);
    table_print(r->out, &own, &measured);
    rank_print_fallbacks(rank, r->out);
    return json;
}
