// The rules for settings that exclude or need each other: see settings.h. They are tables as far as
// possible (kernels/flag.h); the rest is computed: the grid of ranks (zero/comm/grid.h), and the
// batches that they share. Each refusal is one line: the flag, its value, and what would be right.
#include "zero/engine.h"
#include "zero/pipe/split.h"
#include "zero/settings/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_RANKS = 1024 }; // of a run

// ---- the grid of ranks ----

#define QUANTIZED "zero-quantized-weights|zero-quantized-gradients"

static const struct FlagRule layout_rules[] = {
    {E_CLUSTER_FLAG, "pp-split cluster",
     "a plan for a cluster gives all stages the same number of layers; drop one of the two"},
    {E_PP_SPLIT, "pp-split pp<2",
     "the model has only one stage; leave it out, or give --pp 2 or more"},
    {E_SHARD_SIZE_RANKS, "zero-shard-size zero? replicas !shards-optimizer",
     "this ZeRO stage shards nothing; expected --zero 1, 2 or 3"},
    {E_HPZ_STAGE, "zero-hpz-partition-size zero? !shards-param",
     "this ZeRO stage does not gather weights; expected --zero 3"},
    {E_HPZ_OFFLOAD, "zero-hpz-partition-size offload-param",
     "one keeps weights on the device, the other moves them off it; drop one of the two"},
    {E_QUANT_STAGE, QUANTIZED " zero? !shards-optimizer",
     "this ZeRO stage has no shards; expected --zero 1, 2 or 3"},
    {E_TP_QUANT, QUANTIZED " tp>1",
     "these cannot be combined, because tensor-parallel ranks would hold different norm weights; "
     "drop one of the two"},
    {E_QUANT_OFFLOAD, "zero-quantized-weights offload-param zero? !shards-param",
     "this ZeRO stage would overwrite the offloaded weights with quantized ones; expected --zero "
     "3, or --offload-param none"},
    {E_QUANT_SHARD_SIZE, "zero-quantized-gradients zero-shard-size replicas",
     "both split gradient sums into groups of ranks; drop one of the two"},
};

static int check_layout(const struct RankSettings *r, struct Error *e) {
    const struct Settings s = {.rank = *r};
    const struct ZeroStage *stage = zero_stage(r->stage);
    const struct FlagFact facts[] = {
        {"replicas", settings_shard_ranks(r) != settings_data_ranks(r)},
        {"shards-optimizer", stage->shards_optimizer},
        {"shards-param", stage->shards_param},
        {0},
    };
    const struct FlagValues v = {settings_table, settings_count, &s, NULL, facts};
    return flag_rules_check(layout_rules, sizeof layout_rules / sizeof layout_rules[0], &v, e);
}

// Writes "; --ranks 1, 3 or 6 would do": the divisors of `whole` up to `most`, the first 12.
static void describe_divisors(size_t whole, size_t most, const char *flag, char *text,
                              size_t bytes) {
    size_t found[12], n = 0;
    for (size_t i = 1; i <= size_min(whole, most) && n < 12; i++)
        if (whole % i == 0)
            found[n++] = i;
    int at = snprintf(text, bytes, "; %s", flag);
    for (size_t i = 0; i < n; i++)
        at += snprintf(text + at, bytes - (size_t)at, "%s%zu",
                       i == 0      ? " "
                       : i + 1 < n ? ", "
                                   : " or ",
                       found[i]);
    snprintf(text + at, bytes - (size_t)at, " would do");
}

// Writes "--ranks 8 / --tp 2 / --pp 2": how the number of data-parallel ranks is computed.
static const char *name_data_ranks(const struct RankSettings *r, char *text, size_t bytes) {
    int at = snprintf(text, bytes, "--ranks %d", r->ranks);
    if (settings_tp_size(r) > 1)
        at += snprintf(text + at, bytes - (size_t)at, " / --tp %d", settings_tp_size(r));
    if (settings_stages(r) > 1)
        snprintf(text + at, bytes - (size_t)at, " / --pp %d", settings_stages(r));
    return text;
}

// Names global batches that would do, and numbers of ranks that divide the step into batches of
// this size; or batches that divide the step.
static int refuse_batch(const struct Settings *s, struct Error *e) {
    const struct RankSettings *r = &s->rank;
    size_t ranks = (size_t)settings_data_ranks(r), together = r->batch * ranks;
    size_t less = s->global_batch / together * together;
    char would_do[160] = "", name[64], lower[48] = "";
    if (less)
        snprintf(lower, sizeof lower, "%zu or ", less);
    if (s->global_batch % r->batch == 0 && ranks == (size_t)r->ranks)
        describe_divisors(s->global_batch / r->batch, MOST_RANKS, "--ranks", would_do,
                          sizeof would_do);
    else if (s->global_batch % ranks == 0)
        describe_divisors(s->global_batch / ranks, r->batch, "--batch", would_do, sizeof would_do);
    return error_set(e, -EINVAL, E_GLOBAL_BATCH,
                     "--global-batch %zu: expected a multiple of %zu, --batch %zu on each of %s; "
                     "--global-batch %s%zu would do%s",
                     s->global_batch, together, r->batch, name_data_ranks(r, name, sizeof name),
                     lower, less + together, would_do);
}

// Refuses a value that does not divide that of another flag, and names those that do.
static int refuse_divisor(enum ErrorId id, const char *flag, size_t value, const char *of,
                          size_t whole, struct Error *e) {
    char would_do[160] = "";
    describe_divisors(whole, whole, flag, would_do, sizeof would_do);
    return error_set(e, -EINVAL, id, "%s %zu: expected a divisor of %s %zu%s", flag, value, of,
                     whole, would_do);
}

// Each TP rank, in each pipeline stage, is a rank of the job.
int settings_check_tp(const struct RankSettings *r, struct Error *e) {
    char would_do[160] = "";
    size_t ranks = (size_t)r->ranks, tp_size = (size_t)settings_tp_size(r);
    if (ranks % (tp_size * (size_t)settings_stages(r)) == 0)
        return 0;
    if (tp_size == 1 || settings_stages(r) == 1)
        return refuse_divisor(E_GRID, tp_size > 1 ? "--tp" : "--pp",
                              tp_size * (size_t)settings_stages(r), "--ranks", ranks, e);
    describe_divisors(ranks, ranks, "a product of", would_do, sizeof would_do);
    return error_set(e, -EINVAL, E_GRID,
                     "--tp %zu --pp %d: expected a product that is a divisor of --ranks %zu%s",
                     tp_size, settings_stages(r), ranks, would_do);
}

static int check_rows(const struct RankSettings *r, struct Error *e) {
    size_t tp_size = (size_t)settings_tp_size(r), t = r->model.seq_len;
    if (!r->sequence_parallel || t % tp_size == 0)
        return 0;
    return error_set(e, -EINVAL, E_SEQUENCE_PARALLEL,
                     "--seq-len %zu: expected a multiple of --tp %zu, because --sequence-parallel "
                     "splits each sequence over the tensor-parallel ranks; %zu would do",
                     t, tp_size, size_max(t / tp_size, 1) * tp_size);
}

int settings_check_split(const struct RankSettings *r, struct Error *e) {
    size_t stages = (size_t)settings_stages(r);
    if (r->cluster && stages > r->model.layers)
        return error_set(e, -EINVAL, E_PP_STAGES,
                         "--pp %zu: expected at most one stage for each of --layers %zu", stages,
                         r->model.layers);
    int err = 0;
    if (!r->cluster) { // whose stages are alike, and none has only the embedding
        struct SplitPart *parts = base_alloc(stages * sizeof *parts);
        err = split_stages(&r->model, r->recompute, (int)stages, r->pp_split, parts, e);
        free(parts);
    }
    return err ? err : check_rows(r, e);
}

// Refuses a value that does not divide the data-parallel ranks, and names those that do.
static int refuse_share(const struct RankSettings *r, enum ErrorId id, const char *flag,
                        size_t value, struct Error *e) {
    char would_do[160] = "", name[64];
    size_t ranks = (size_t)settings_data_ranks(r);
    describe_divisors(ranks, ranks, flag, would_do, sizeof would_do);
    return error_set(e, -EINVAL, id, "%s %zu: expected a divisor of %s%s", flag, value,
                     name_data_ranks(r, name, sizeof name), would_do);
}

// The ranks of a second partition are neighbours among the ranks of a shard group.
static int check_hpz_size(const struct RankSettings *r, struct Error *e) {
    const char *flag = "--zero-hpz-partition-size";
    size_t shards = (size_t)settings_shard_ranks(r);
    if (!r->hpz_size || shards % r->hpz_size == 0)
        return 0;
    if (shards == (size_t)settings_data_ranks(r))
        return refuse_share(r, E_HPZ_SIZE, flag, r->hpz_size, e);
    return refuse_divisor(E_HPZ_SIZE, flag, r->hpz_size, "--zero-shard-size", shards, e);
}

int settings_check_shards(const struct RankSettings *r, struct Error *e) {
    size_t ranks = (size_t)settings_data_ranks(r);
    // The first hop of gradients is within a node, or within a pipeline stage that is in one node.
    bool in_node = settings_stages(r) > 1 && r->node_size % ranks == 0;
    int err = check_layout(r, e);
    if (err)
        return err;
    if (r->shard_size && ranks % r->shard_size)
        return refuse_share(r, E_SHARD_SIZE_RANKS, "--zero-shard-size", r->shard_size, e);
    if (r->quantized_gradients && r->node_size && ranks % r->node_size && !in_node)
        return refuse_share(r, E_QUANT_NODES, "--node-size", r->node_size, e);
    return check_hpz_size(r, e);
}

// ---- all else ----

static const struct FlagRule rules[] = {
    {E_PLAN_MISSING, "cluster !plan",
     "a run cannot use machines that are only described; add --plan"},
    {E_SHOW_CHAIN, "show-chain !plan", "only a plan prints chains; add --plan"},
    {E_SHOW_CHAIN, "show-chain cluster",
     "chains describe ranks on this machine, not on a cluster; drop one of the two"},
    {E_RANKS, "ranks>1024 !cluster",
     "a run has at most 1024 ranks; expected at most 1024, or --plan --cluster"},
    {E_CLUSTER_FLAG, "kernels cluster",
     "these kernels are for CPUs, but a cluster has GPUs; drop one of the two"},
    {E_CLUSTER_FLAG, "device=cpu cluster !device-chosen",
     "a cluster has GPUs; expected --device cuda or auto"},
    {E_CLUSTER_DTYPE, "dtype=fp32 cluster !dtype-chosen",
     "the cluster's file gives rates for 16-bit formats only; expected --dtype bf16 or fp16"},
    {E_FIT_MASTERS, "fit? cluster fits-formats",
     "a plan for a cluster does not choose formats; expected --fit auto"},
    {E_LORA, "lora-alpha|lora-dropout !lora-rank",
     "without adapters it means nothing; give --lora-rank, such as 16, or leave it out"},
    {E_LORA, "base-dtype!=none !lora-rank",
     "weights in fewer bits cannot be trained, only adapters for them; give --lora-rank, such as "
     "16, or leave it out"},
    {E_LORA, "base-dtype!=none zero-quantized-weights",
     "both say in which form the weights of blocks travel; drop one of the two"},
    {E_LORA, "lora-targets!=all !lora-rank",
     "without adapters it means nothing; give --lora-rank, such as 16, or leave it out"},
    {E_CLUSTER_FLAG, "freeze!=none|lora-rank cluster",
     "a plan for a cluster trains all of the model; drop one of the two"},
    {E_CLUSTER_FLAG, "nvme-path cluster",
     "the cluster's file describes the disks of a node; drop one of the two"},
    {E_KERNELS_DEVICE, "kernels device=cuda",
     "these kernels are for CPUs; leave out --kernels, or give --device cpu"},
    {E_GPU_ONLY, "reduce-order=native|autotune|check-launches device=cpu",
     "only GPUs support this; leave it out, or give --device cuda"},

    {E_CLIP, "clip>0 clip<1e-30",
     "the limit is too small; expected 0 for no clipping, or at least 1e-30"},
    {E_MIN_LR, "min-lr>lr lr?", "the learning rate would rise to --min-lr; expected at most --lr"},
    {E_VALIDATION_MISSING, "keep-best|patience !val-every",
     "the run does not validate while it trains; add --val-every N, such as 100"},
    {E_WARMUP_TYPE, "warmup-type=linear schedule!=WarmupLR,WarmupDecayLR,WarmupCosineLR",
     "this schedule always warms up linearly; leave out --warmup-type, or give --schedule "
     "WarmupLR, WarmupDecayLR or WarmupCosineLR"},
    {E_FAMILY_FLAG, "+positions family? rotary",
     "this family has a rotary embedding, not a position embedding; leave out --positions"},
    {E_FAMILY_FLAG, "+rope-theta|+rope-scaling family? !rotary",
     "this family has a position embedding, not a rotary embedding; leave out the flag, or give "
     "--family llama, mistral, qwen2 or qwen3"},

    {E_MASTER, "master-dtype dtype!=bf16",
     "only bf16 weights can be half of an fp32 master weight; expected --dtype bf16"},
    {E_LOSS_SCALE,
     "+loss-scale|+loss-scale-window|+loss-scale-hysteresis|+loss-scale-min dtype!=fp16",
     "only fp16 uses a loss scale; leave it out, or give --dtype fp16"},
    {E_LOSS_SCALE, "loss-scale-min>loss-scale loss-scale?",
     "the loss scale would begin below its minimum; expected at most --loss-scale"},
    {E_GRAD_DTYPE, "grad-dtype=bf16 dtype=fp16",
     "fp16 training scales its loss for fp16 gradients; expected --grad-dtype auto, fp32 or fp16"},
    {E_GRAD_DTYPE, "grad-dtype=fp16 dtype!=fp16",
     "fp16 gradients underflow without a loss scale; expected --grad-dtype auto, fp32 or bf16"},

    {E_TP_AUTOTUNE, "autotune tp>1",
     "these cannot be combined, because tensor-parallel ranks with different matmul algorithms "
     "would round differently; drop one of the two"},
    {E_SEQUENCE_PARALLEL, "sequence-parallel tp<2",
     "this splits rows over tensor-parallel ranks; leave it out, or give --tp 2 or more"},
    {E_PARTITION_ACTIVATIONS, "partition-activations tp<2",
     "this splits activations over tensor-parallel ranks; leave it out, or give --tp 2 or more"},
    {E_PARTITION_ACTIVATIONS, "partition-activations sequence-parallel",
     "--sequence-parallel splits these activations already; drop one of the two"},
    {E_PARTITION_ACTIVATIONS, "partition-activations fit? fits-recompute",
     "this splits only the input of a block, which --recompute block saves; add --recompute block"},
    {E_PARTITION_ACTIVATIONS, "partition-activations recompute!=block",
     "this splits only the input of a block, which --recompute block saves; expected --recompute "
     "block"},

    {E_NVME_PATH_MISSING,
     "offload-optimizer=nvme|offload-param=nvme|offload-activations=nvme !nvme-path !plan",
     "the folder for it is missing; add --nvme-path FOLDER, on an NVMe disk"},
    {E_OFFLOAD_MISSING,
     "+nvme-depth|+nvme-block|+nvme-path|+check-io=1 !offload-optimizer=nvme !offload-param=nvme "
     "!offload-activations=nvme !fits-offload",
     "nothing is offloaded to nvme; leave it out, or give --offload-optimizer nvme, "
     "--offload-param nvme or --offload-activations nvme"},
    {E_OFFLOAD_MISSING, "delay-update !offload-optimizer !fits-optimizer",
     "only an offloaded optimizer can delay its update; expected --offload-optimizer cpu or nvme"},
    {E_OFFLOAD_MISSING,
     "offload-ratio<1 +offload-ratio|+host-mem|+host-mem-per-rank !offload-optimizer "
     "!fits-optimizer",
     "the optimizer is not offloaded, so no part of it can be; expected --offload-optimizer cpu or "
     "nvme"},
    {E_DELAY_UPDATE, "delay-update offload-ratio<1",
     "the part of the optimizer on the device cannot delay its update; expected --offload-ratio 1"},
    {E_DELAY_UPDATE, "delay-after !delay-update", "this needs delayed updates; add --delay-update"},
    {E_OFFLOAD_MISSING,
     "host-mem|host-mem-per-rank +host-mem|+host-mem-per-rank|+offload-ratio !plan !offloads "
     "!fits-offload",
     "nothing is offloaded; leave it out, or add --offload-optimizer cpu, --offload-param cpu or "
     "--offload-activations cpu"},
};

static int check_rules(const struct Settings *s, const struct SettingsUse *use, struct Error *e) {
    const struct FitOpen *open = &s->open;
    const struct FlagFact facts[] = {
        {"plan", use->plan},
        {"device-chosen", s->rank.device_from != NULL},
        {"dtype-chosen", s->rank.dtype_from != NULL},
        {"rotary", families[s->rank.model.kind].position == POSITION_ROTARY},
        {"offloads", settings_needs_offload(&s->rank)},
        {"fits-recompute", open->recompute},
        {"fits-formats", open->master || open->moments},
        {"fits-optimizer", open->opt},
        {"fits-offload", open->opt || open->param || open->act},
        {0},
    };
    const struct FlagValues v = {settings_table, settings_count, s, &use->said, facts};
    return flag_rules_check(rules, sizeof rules / sizeof rules[0], &v, e);
}

int settings_check_warmup(const struct LrSchedule *l, struct Error *e) {
    if (l->warmup <= l->steps || l->kind == SCHEDULE_WARMUP_LR) // it has no end
        return 0;
    return error_set(e, -EINVAL, E_WARMUP, "--warmup %llu: expected at most --steps %llu",
                     (unsigned long long)l->warmup, (unsigned long long)l->steps);
}

int settings_check(const struct Settings *s, const struct SettingsUse *use, struct Error *e) {
    const struct RankSettings *r = &s->rank;
    int err = check_rules(s, use, e);
    if (!err && s->global_batch % (r->batch * (size_t)settings_data_ranks(r)))
        err = refuse_batch(s, e);
    if (!err)
        err = settings_check_shards(r, e);
    if (!err && !s->epochs) // --epochs: the steps are known later
        err = settings_check_warmup(&s->schedule, e);
    return err;
}
