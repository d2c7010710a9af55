// Which settings go together, as far as a table can say it: see settings.h, and kernels/flag.h for
// what a rule is. What must be computed first, such as the divisors of a count, is in settings.c
// and settings_grid.c.
#include "zero/engine.h"
#include "zero/settings/settings.h"

// ---- how ranks are laid out ----

#define QUANTIZED "zero-quantized-weights|zero-quantized-gradients"

static const struct FlagRule layout_rules[] = {
    {E_CLUSTER_FLAG, "pp-split cluster",
     "a plan for a cluster gives all stages the same number of layers; drop one of the two"},
    {E_PP_SPLIT, "pp-split pp<2", "the model has only one stage; expected --pp 2 or more"},
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
    {E_CLUSTER_FLAG, "nvme-path cluster",
     "the cluster's file describes the disks of a node; drop one of the two"},
    {E_KERNELS_DEVICE, "kernels device=cuda",
     "these kernels are for CPUs; leave out --kernels, or give --device cpu"},
    {E_GPU_ONLY, "reduce-order=native|autotune|check-launches device=cpu",
     "only GPUs support this; expected --device cuda"},

    {E_CLIP, "clip>0 clip<1e-30",
     "the limit is too small; expected 0 for no clipping, or at least 1e-30"},
    {E_MIN_LR, "min-lr>lr lr?", "the learning rate would rise to --min-lr; expected at most --lr"},
    {E_VALIDATION_MISSING, "keep-best|patience !val-every",
     "the run does not validate while it trains; add --val-every"},
    {E_WARMUP_TYPE, "warmup-type=linear schedule!=WarmupLR,WarmupDecayLR,WarmupCosineLR",
     "this schedule always warms up linearly; leave out --warmup-type, or give --schedule "
     "WarmupLR, WarmupDecayLR or WarmupCosineLR"},
    {E_FAMILY_FLAG, "+positions family? rotary",
     "this family has a rotary embedding, not a position embedding; leave out --positions"},
    {E_FAMILY_FLAG, "+rope-theta|+rope-scaling family? !rotary",
     "this family has a position embedding, not a rotary embedding; expected another --family"},

    {E_MASTER, "master-dtype dtype!=bf16",
     "only bf16 weights can be half of an fp32 master weight; expected --dtype bf16"},
    {E_LOSS_SCALE,
     "+loss-scale|+loss-scale-window|+loss-scale-hysteresis|+loss-scale-min dtype!=fp16",
     "only fp16 uses a loss scale; expected --dtype fp16"},
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
     "this splits rows over tensor-parallel ranks; expected --tp 2 or more"},
    {E_PARTITION_ACTIVATIONS, "partition-activations tp<2",
     "this splits activations over tensor-parallel ranks; expected --tp 2 or more"},
    {E_PARTITION_ACTIVATIONS, "partition-activations sequence-parallel",
     "--sequence-parallel splits these activations already; drop one of the two"},
    {E_PARTITION_ACTIVATIONS, "partition-activations fit? fits-recompute",
     "this splits only the input of a block, which --recompute block saves; add --recompute block"},
    {E_PARTITION_ACTIVATIONS, "partition-activations recompute!=block",
     "this splits only the input of a block, which --recompute block saves; expected --recompute "
     "block"},

    {E_NVME_PATH_MISSING,
     "offload-optimizer=nvme|offload-param=nvme|offload-activations=nvme !nvme-path !plan",
     "--nvme-path is missing; give a folder on an NVMe disk"},
    {E_OFFLOAD_MISSING,
     "+nvme-depth|+nvme-block|+nvme-path|+check-io=1 !offload-optimizer=nvme !offload-param=nvme "
     "!offload-activations=nvme !fits-offload",
     "nothing is offloaded to nvme; expected --offload-optimizer nvme, --offload-param nvme or "
     "--offload-activations nvme"},
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
     "nothing is offloaded; add --offload-optimizer, --offload-param or --offload-activations"},
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
