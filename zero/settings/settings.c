// Resolves 0 and auto: see settings.h. Next: settings_rules.c.
#include "zero/settings/settings.h"

#include "model/presets.h"
#include "zero/qlora/qlora.h"
#include "zero/engine.h"
#include "zero/master/master.h"
#include "zero/pipe/order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- defaults that depend on others ----

static void set_if_zero(size_t *value, size_t otherwise) {
    if (!*value)
        *value = otherwise;
}

// Reads the adapters' flags: the model's layers and family are known.
static int choose_adapters(struct Settings *s, struct Error *e) {
    struct ModelConfig *m = &s->rank.model;
    struct Lora *l = &m->lora;
    const char *targets = s->lora_targets ? s->lora_targets : "all";
    if (!l->rank)
        return 0;
    l->alpha = l->alpha > 0 ? l->alpha : 2 * (double)l->rank;
    int err = lora_read_targets(&l->targets, targets, m->kind == FAMILY_GPT2, e);
    if (!err && (size_t)model_first_trained(m) > m->layers)
        err = error_set(e, -EINVAL, E_LORA,
                        "--freeze %.200s leaves no layer for adapters; name fewer layers, or leave "
                        "out --lora-rank",
                        s->freeze);
    return err;
}

// Fills in the model that --model names, where no flag says otherwise.
static int resolve_model(struct Settings *s, struct Error *e) {
    const struct Preset *p = preset_named(s->preset);
    struct ModelConfig *m = &s->rank.model;
    if (!p) {
        char *names = preset_names();
        const char *nearest = preset_nearest(s->preset);
        error_set(e, -EINVAL, E_MODEL_NAME,
                  "--model %s: no such preset; %s%s%sxpected one of %s, or --init hf:DIR",
                  s->preset, nearest ? "did you mean " : "", nearest ? nearest : "",
                  nearest ? "? E" : "e", names);
        free(names);
        return -EINVAL;
    }
    m->kind = m->kind == NFAMILY ? p->family : m->kind;
    set_if_zero(&m->layers, p->layers);
    set_if_zero(&m->heads, p->heads);
    set_if_zero(&m->channels, p->channels);
    set_if_zero(&m->seq_len, p->seq_len);
    if (m->kind == p->family) { // another family has its own values
        set_if_zero(&m->kv_heads, p->kv_heads);
        set_if_zero(&m->head_size, p->head_size);
        set_if_zero(&m->ffn, p->ffn);
        set_if_zero(&m->window, p->window);
        m->norm_eps = m->norm_eps > 0 ? m->norm_eps : p->norm_eps;
        m->rope.theta = m->rope.theta > 0 ? m->rope.theta : p->rope_theta;
        s->rope_scaling = s->rope_scaling ? s->rope_scaling : p->rope_scaling;
        s->tie = s->tie == TIE_AUTO && p->untied ? TIE_OFF : s->tie;
    }
    s->rope_scaling = s->rope_scaling ? s->rope_scaling : "none";
    m->untied = s->tie == TIE_OFF;
    int err = model_rope_scaling(&m->rope, s->rope_scaling, e);
    if (!err)
        err = freeze_read(&m->freeze, s->freeze ? s->freeze : "none", m->layers, m->untied, e);
    if (!err)
        err = choose_adapters(s, e);
    if (!err)
        err = sparse_read(&m->sparse, s->sparse_attention ? s->sparse_attention : "dense", e);
    s->sparse_attention = m->sparse.text; // all of it: "fixed" and "fixed:block=16" are one
    return err;
}

static bool is_default(const struct SettingsUse *use, const char *name) {
    return use->said.source(use->said.flags, name) == FLAG_FROM_DEFAULT;
}

// True if there are none yet, and some layer may have one.
static bool may_have_adapters(const struct ModelConfig *m) {
    struct ModelConfig with = *m;
    with.lora.rank = FIT_RANK;
    return !m->lora.rank && (size_t)model_first_trained(&with) <= m->layers;
}

// Finds what --fit may choose. A configuration that repeats a run has --fit, too: a resumed run
// goes on as it was, unless its own command line gives it again.
static void open_to_fit(struct Settings *s, const struct SettingsUse *use) {
    const struct RankSettings *r = &s->rank;
    bool fresh = !use->resumed, fits_again = flag_is_on_line(&use->said, "fit");
    bool fits_formats = fresh && s->fit == FIT_MASTERS, bf16 = r->model.dtype == BF16;
    bool weights_stay = r->hpz_size || r->quantized_weights; // on the device
    s->open = (struct FitOpen){0};
    s->lowers_batch = use->has_init && fresh && s->fit == FIT_OFF && is_default(use, "batch");
    if (s->fit == FIT_OFF || (use->resumed && !fits_again))
        return;
    s->open = (struct FitOpen){.stage = is_default(use, "zero"),
                               .recompute = is_default(use, "recompute"),
                               .opt = is_default(use, "offload-optimizer"),
                               .param = !weights_stay && is_default(use, "offload-param"),
                               .act = is_default(use, "offload-activations"),
                               .batch = fresh && is_default(use, "batch"),
                               .split = fresh && bf16 && is_default(use, "master-dtype"),
                               .master = fits_formats && bf16 && is_default(use, "master-dtype"),
                               .lora = fresh && s->fit == FIT_LORA && may_have_adapters(&r->model),
                               .moments = fits_formats && is_default(use, "adam-dtype"),
                               .tp = r->cluster && is_default(use, "tp"),
                               .pp = r->cluster && is_default(use, "pp"),
                               .keeps_stage_pair = use->resumed};
}

// A run that is resumed on other ranks keeps its global batch. Unless the user gives another, its
// micro-batch becomes the largest one, up to the old one, that divides the global batch. So does
// the one with which --fit, or --init, begins its search.
static void refit_batch(struct Settings *s, const struct SettingsUse *use) {
    size_t ranks = (size_t)settings_data_ranks(&s->rank), each = s->global_batch / ranks;
    if (!(use->resumed || s->open.batch || s->lowers_batch) ||
        flag_is_on_line(&use->said, "batch") || s->global_batch % ranks)
        return; // settings_check checks it as it is
    s->rank.batch = size_min(s->rank.batch, each);
    while (each % s->rank.batch)
        s->rank.batch--;
}

// Chooses device and dtype. The kernels of --kernels are the CPU's.
static void choose_device(struct RankSettings *r, struct RankSettings *said,
                          const struct Chosen *chosen) {
    r->device_from = r->device == NDEVICEKIND ? chosen->from : NULL;
    r->dtype_from = r->model.dtype == NDTYPE ? chosen->from : NULL;
    if (r->device == NDEVICEKIND)
        r->device = r->kernels ? DEVICE_CPU : chosen->device;
    if (r->model.dtype == NDTYPE)
        r->model.dtype = chosen->dtype[r->device];
    said->device = r->device;
    said->model.dtype = r->model.dtype;
}

// If both flags say where the run ends, the one on the command line counts.
static int choose_end(struct Settings *s, struct Settings *said, const struct FlagsSaid *flags,
                      struct Error *e) {
    bool has_steps = flag_is_on_line(flags, "steps"), has_epochs = flag_is_on_line(flags, "epochs");
    if (has_steps && has_epochs && s->epochs)
        return error_set(e, -EINVAL, E_STEPS_AND_EPOCHS,
                         "--steps %llu cannot be combined with --epochs %zu: both say when the run "
                         "ends; drop one of the two",
                         (unsigned long long)s->schedule.steps, s->epochs);
    if (has_epochs && !s->epochs)
        return error_set(e, -EINVAL, E_EPOCHS,
                         "--epochs 0: expected at least 1, or --steps instead of --epochs");
    if (has_steps && s->epochs)
        s->epochs = said->epochs = 0;
    return 0;
}

void settings_log_epochs(const struct Settings *s, uint64_t samples) {
    if (samples)
        log_line(LOG_NORMAL,
                 "--epochs %zu makes --steps %llu of %zu sequences; an epoch has %llu sequences",
                 s->epochs, (unsigned long long)s->schedule.steps, s->global_batch,
                 (unsigned long long)samples);
    else
        log_line(LOG_NORMAL,
                 "--epochs %zu: the number of steps is %zu times that of the training sequences, "
                 "divided by --global-batch %zu; it is known once the data are prepared",
                 s->epochs, s->epochs, s->global_batch);
}

int settings_set_epochs(struct Settings *s, struct Settings *said, uint64_t samples,
                        double warmup_share, struct Error *e) {
    const uint64_t most = 99999999;
    if (!s->epochs)
        return 0;
    uint64_t steps = (s->epochs * samples + s->global_batch - 1) / s->global_batch;
    if (samples > UINT64_MAX / s->epochs - s->global_batch || steps > most)
        return error_set(
            e, -EINVAL, E_EPOCHS,
            "--epochs %zu needs more than %llu steps for %llu sequences; expected fewer epochs",
            s->epochs, (unsigned long long)most, (unsigned long long)samples);
    s->schedule.steps = said->schedule.steps = steps;
    if (warmup_share >= 0)
        s->schedule.warmup = said->schedule.warmup = (uint64_t)(warmup_share * (double)steps);
    return settings_check_warmup(&s->schedule, e);
}

// A split is for one number of stages: a command line with another --pp needs another split, or
// gets one by cost, as with `auto`.
static void resolve_split(struct RankSettings *r, struct RankSettings *said,
                          const struct SettingsUse *use) {
    bool other_stages = use->resumed && flag_is_on_line(&use->said, "pp") &&
                        !flag_is_on_line(&use->said, "pp-split");
    if (r->pp_split && (other_stages || !strcmp(r->pp_split, "auto")))
        r->pp_split = said->pp_split = NULL;
}

int settings_resolve(struct Settings *s, struct Settings *said, const struct SettingsUse *use,
                     struct Error *e) {
    struct RankSettings *r = &s->rank;
    int err = resolve_model(s, e);
    if (!err)
        err = choose_end(s, said, &use->said, e);
    if (err)
        return err;
    choose_device(r, &said->rank, &use->chosen);
    resolve_split(r, &said->rank, use);
    open_to_fit(s, use);
    r->global_batch = s->global_batch;
    r->grad_auto = r->grad_dtype == NDTYPE;
    if ((err = settings_check_tp(r, e)))
        return err;
    size_t together = (size_t)settings_data_ranks(r);
    set_if_zero(&s->global_batch, r->batch * together);
    said->global_batch = s->global_batch;
    refit_batch(s, use);
    r->nmicro = s->global_batch / (r->batch * together);
    set_if_zero(&r->shard_size, together);
    if (r->quantized_gradients && !use->launched && !r->cluster) // it shapes their sums
        set_if_zero(&r->node_size, (size_t)r->ranks);
    r->threads = r->threads ? r->threads : use->cores;
    r->master_open = r->master_format == MASTER_FP32 && r->model.dtype == BF16 && !use->resumed &&
                     is_default(use, "master-dtype");
    if (r->grad_auto)
        r->grad_dtype = r->nmicro > 1 ? F32 : r->model.dtype;
    err = settings_check(s, use, e);
    // Checks the ranks' settings as far as they do not depend on the text.
    const struct World alone = world_of_threads(r->ranks);
    struct RankSettings unused;
    return err ? err : settings_of_ranks(s, &alone, 1, &unused, e);
}

void settings_use_rank_info(struct RankSettings *s, const struct World *w) {
    s->processes = w->launched && s->ranks > 1;
    s->node_rank = w->node_rank;
    s->node_ranks = w->node_size;
}

// A packed document must see what it would see alone in a sequence, but blocks are counted from the
// sequence's beginning.
static int check_packed(const struct RankSettings *r, struct Error *e) {
    if (!r->packed || r->model.sparse.mode == SPARSE_DENSE)
        return 0;
    return error_set(e, -EINVAL, E_SPARSE_PACKED,
                     "--sparse-attention %s cannot be combined with packed documents, because they "
                     "do not begin where its blocks do; expected dense, or --pack off",
                     r->model.sparse.text);
}

int settings_of_ranks(const struct Settings *s, const struct World *w, size_t vocab,
                      struct RankSettings *out, struct Error *e) {
    *out = s->rank;
    settings_use_rank_info(out, w);
    out->model.vocab = vocab;
    if (out->processes && s->rank.quantized_gradients && !s->rank.node_size)
        return error_set(e, -EINVAL, E_QUANT_NODES,
                         "--zero-quantized-gradients needs --node-size, because it sums gradients "
                         "within a node first; add --node-size N, the ranks of a node");
    int err = check_packed(out, e);
    if (!err)
        err = model_config_finish(&out->model, e);
    if (!err)
        err = model_config_check_parts(&out->model, (size_t)settings_tp_size(out), e);
    if (!err)
        err = settings_check_split(out, e);
    return err;
}

int settings_set_batch(struct RankSettings *s, size_t batch) {
    size_t together = batch * (size_t)settings_data_ranks(s);
    if (!together || s->global_batch % together)
        return -EINVAL;
    s->batch = batch;
    s->nmicro = s->global_batch ? s->global_batch / together : 1;
    if (s->grad_auto)
        s->grad_dtype = s->nmicro > 1 ? F32 : s->model.dtype;
    return 0;
}

void settings_set_inference(struct RankSettings *s) {
    s->inference = true;
    s->nmicro = 1;
    s->opt_tier = s->act_tier = TIER_DEVICE;
    s->offload_ratio = 0;
    s->delayed = s->save_async = s->quantized_gradients = false;
    s->sequence_parallel = s->partition_activations = false;
    s->recompute = RECOMPUTE_BLOCK; // nothing is kept
}

void settings_set_cache(struct RankSettings *s, size_t sequences) {
    if (s->model.sparse.mode != SPARSE_DENSE || s->sequence_parallel)
        return;
    s->cache_tokens = s->model.seq_len;
    if (s->inference)
        s->batch = sequences;
}

struct ZeroOptions settings_zero(const struct RankSettings *s) {
    return (struct ZeroOptions){
        .stage = s->stage,
        .nmicro = s->nmicro,
        .prefetch = s->prefetch,
        .dtype = s->model.dtype,
        .grad_dtype = s->grad_dtype,
        .moments_dtype = s->moments_dtype,
        .quantized_weights = s->quantized_weights,
        .inference = s->inference,
        .pack = &qlora_pack,
        .host_threads = s->threads,
        .masters = s->inference ? &zero_masters_none : master_ops(s->master_format),
        .loss_scale = s->loss_scale,
    };
}

size_t settings_acts_in_flight(const struct RankSettings *s) {
    struct Grid grid = settings_grid(s);
    int stage = grid_coord(&grid, s->rank, AXIS_PP);
    return s->acts_in_flight ? s->acts_in_flight : order_kept(settings_stages(s), stage, s->nmicro);
}

bool settings_needs_offload(const struct RankSettings *s) {
    return s->param_tier != TIER_DEVICE || s->opt_tier != TIER_DEVICE ||
           s->act_tier != TIER_DEVICE || s->partition_activations;
}

bool settings_uses_disk(const struct RankSettings *s) {
    return s->param_tier == TIER_NVME || s->opt_tier == TIER_NVME || s->act_tier == TIER_NVME;
}
