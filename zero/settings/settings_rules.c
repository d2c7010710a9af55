// Which settings go together, as far as a table can say it: see settings.h, and kernels/flag.h for
// what a rule is. What must be computed first, such as the divisors of a count, is in settings.c
// and settings_grid.c.
#include "zero/engine.h"
#include "zero/settings/settings.h"

// ---- how ranks are laid out ----

#define QUANTIZED "zero-quantized-weights|zero-quantized-gradients"

static const struct FlagRule layout_rules[] = {
    {E_CLUSTER_FLAG, "pp-split cluster",
     "stages of a plan for a cluster have as many layers each; leave out one of the two"},
    {E_PP_SPLIT, "pp-split pp<2", "there is one stage; expected --pp 2 or more with it"},
    {E_SHARD_SIZE_RANKS, "zero-shard-size zero? replicas !shards-optimizer",
     "this stage keeps nothing in shards; expected --zero 1, 2 or 3"},
    {E_HPZ_STAGE, "zero-hpz-partition-size zero? !shards-param",
     "this stage gathers no weights for a unit; expected --zero 3"},
    {E_HPZ_OFFLOAD, "zero-hpz-partition-size offload-param",
     "one keeps weights on the device, the other keeps them elsewhere; leave out one of the two"},
    {E_QUANT_STAGE, QUANTIZED " zero? !shards-optimizer",
     "this stage has no shards; expected --zero 1, 2 or 3"},
    {E_TP_QUANT, QUANTIZED " tp>1",
     "tensor-parallel ranks would round differently what all of them have; leave out one of the "
     "two"},
    {E_QUANT_OFFLOAD, "zero-quantized-weights offload-param zero? !shards-param",
     "whole weights as they came would lie where they are updated; expected --zero 3, or "
     "--offload-param none"},
    {E_QUANT_SHARD_SIZE, "zero-quantized-gradients zero-shard-size replicas",
     "both say how sums are made in parts; leave out one of the two"},
};

int settings_check_layout(const struct RankSettings *r, struct Error *e) {
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

// ---- all else ----

static const struct FlagRule rules[] = {
    {E_PLAN_MISSING, "cluster !plan", "only a plan is for machines that are not here; add --plan"},
    {E_SHOW_CHAIN, "show-chain !plan", "a plan prints it; add --plan"},
    {E_SHOW_CHAIN, "show-chain cluster",
     "chains are of ranks as they would run here; leave out one of the two"},
    {E_RANKS, "ranks>1024 !cluster", "expected at most 1024, or --plan --cluster"},
    {E_CLUSTER_FLAG, "kernels cluster",
     "these are the CPU's kernels, and a cluster has GPUs; leave out one of the two"},
    {E_CLUSTER_FLAG, "device=cpu cluster !device-chosen",
     "a cluster has GPUs; expected --device cuda or auto"},
    {E_CLUSTER_DTYPE, "dtype=fp32 cluster !dtype-chosen",
     "the cluster's rates are those of 16 bits; expected --dtype bf16 or fp16"},
    {E_FIT_MASTERS, "fit? cluster fits-formats",
     "for a cluster no formats are chosen; expected --fit auto"},
    {E_CLUSTER_FLAG, "nvme-path cluster",
     "the cluster's file says which disks a node has; leave out one of the two"},
    {E_KERNELS_DEVICE, "kernels device=cuda",
     "these are the CPU's kernels; leave out --kernels, or expected --device cpu"},
    {E_GPU_ONLY, "reduce=native|autotune|check-launches device=cpu",
     "only GPUs have it; expected --device cuda"},

    {E_CLIP, "clip>0 clip<1e-30", "expected 0, for none, or at least 1e-30"},
    {E_MIN_LR, "min-lr>lr lr?", "the rate would rise; expected at most --lr"},
    {E_VALIDATION_MISSING, "keep-best|patience !val-every",
     "nothing validates on the way; expected --val-every"},
    {E_WARMUP_TYPE, "warmup-type=linear schedule!=WarmupLR,WarmupDecayLR,WarmupCosineLR",
     "this schedule always warms up linearly; leave it out, or expected --schedule WarmupLR, "
     "WarmupDecayLR or WarmupCosineLR"},
    {E_FAMILY_FLAG, "+positions family? rotary",
     "it has a rotary embedding, and no positions of its own; leave out --positions"},
    {E_FAMILY_FLAG, "+rope-theta|+rope-scaling family? !rotary",
     "it has positions of its own, and no rotary embedding; expected another --family"},

    {E_MASTER, "master dtype!=bf16",
     "other formats than bf16 are no half of an fp32 master; expected --dtype bf16"},
    {E_LOSS_SCALE,
     "+loss-scale|+loss-scale-window|+loss-scale-hysteresis|+loss-scale-min dtype!=fp16",
     "only fp16 has a loss scale; expected --dtype fp16"},
    {E_LOSS_SCALE, "loss-scale-min>loss-scale loss-scale?",
     "it would begin below its least; expected at most --loss-scale"},
    {E_GRAD_DTYPE, "grad-dtype=bf16 dtype=fp16",
     "a loss scale is for fp16; expected --grad-dtype auto, fp32 or fp16"},
    {E_GRAD_DTYPE, "grad-dtype=fp16 dtype!=fp16",
     "without a loss scale they are lost; expected --grad-dtype auto, fp32 or bf16"},

    {E_TP_AUTOTUNE, "autotune tp>1",
     "ranks whose products are made by other algorithms would round differently; leave out one of "
     "the two"},
    {E_SEQUENCE_PARALLEL, "sequence-parallel tp<2",
     "rows are cut over the ranks of --tp; expected --tp 2 or more with it"},
    {E_PARTITION_ACTIVATIONS, "partition-activations tp<2",
     "the ranks of --tp keep the parts; expected --tp 2 or more with it"},
    {E_PARTITION_ACTIVATIONS, "partition-activations sequence-parallel",
     "a rank keeps its own rows alone, which are a part already; leave out one of the two"},
    {E_PARTITION_ACTIVATIONS, "partition-activations fit? fits-recompute",
     "only a block's input is whole on all ranks; expected --recompute block with it"},
    {E_PARTITION_ACTIVATIONS, "partition-activations recompute!=block",
     "all but a block's input is in parts already; expected --recompute block"},

    {E_NVME_PATH_MISSING,
     "offload-optimizer=nvme|offload-param=nvme|offload-activations=nvme !nvme-path !plan",
     "--nvme-path is missing; expected a folder on an NVMe disk"},
    {E_OFFLOAD_MISSING,
     "+nvme-depth|+nvme-block|+nvme-path|+check-io=1 !offload-optimizer=nvme !offload-param=nvme "
     "!offload-activations=nvme !fits-offload",
     "nothing is offloaded to nvme; expected --offload-optimizer nvme, --offload-param nvme or "
     "--offload-activations nvme"},
    {E_OFFLOAD_MISSING, "delay-update !offload-optimizer !fits-optimizer",
     "the device updates at once; expected --offload-optimizer cpu or nvme"},
    {E_OFFLOAD_MISSING,
     "offload-ratio<1 +offload-ratio|+host-mem|+host-mem-per-rank !offload-optimizer "
     "!fits-optimizer",
     "there is nothing to offload a part of; expected --offload-optimizer cpu or nvme"},
    {E_DELAY_UPDATE, "delay-update offload-ratio<1",
     "the device makes no late updates; expected --offload-ratio 1"},
    {E_DELAY_UPDATE, "delay-after !delay-update", "expected --delay-update with it"},
    {E_OFFLOAD_MISSING,
     "host-mem|host-mem-per-rank +host-mem|+host-mem-per-rank|+offload-ratio !plan !offloads "
     "!fits-offload",
     "nothing is offloaded; expected --offload-optimizer, --offload-param or "
     "--offload-activations with it"},
};

int settings_check_rules(const struct Settings *s, const struct SettingsUse *use, struct Error *e) {
    const struct FitOpen *open = &s->open;
    const struct FlagFact facts[] = {
        {"plan", use->plan},
        {"device-chosen", s->rank.device_from != NULL},
        {"dtype-chosen", s->rank.dtype_from != NULL},
        {"rotary", families[s->rank.model.kind].position == POSITION_ROTARY},
        {"offloads", settings_offload(&s->rank)},
        {"fits-recompute", open->recompute},
        {"fits-formats", open->master || open->moments},
        {"fits-optimizer", open->opt},
        {"fits-offload", open->opt || open->param || open->act},
        {0},
    };
    const struct FlagValues v = {settings_table, settings_count, s, &use->said, facts};
    return flag_rules_check(rules, sizeof rules / sizeof rules[0], &v, e);
}
