// Keys of precision, of ZeRO and its offload, and others that are not simply a flag's value: see
// plan.h.
#include "data/deepspeed/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- precision ----

// A switch in the file. SWITCH_ABSENT: there is no such key, or it is no bool.
enum Switch { SWITCH_ABSENT, SWITCH_AUTO, SWITCH_OFF, SWITCH_ON };

static enum Switch read_switch(const struct DsPlan *p, const char *key) {
    const cJSON *value = plan_value(p, key);
    if (!cJSON_IsBool(value))
        return ds_is_auto(plan_any_value(p, key)) ? SWITCH_AUTO : SWITCH_ABSENT;
    return cJSON_IsTrue(value) ? SWITCH_ON : SWITCH_OFF;
}

static const char POWER[] = "fp16.initial_scale_power", LEAST[] = "fp16.min_loss_scale";

// Sets the loss scale's flags. An absent key sets DeepSpeed's default; "auto" sets none.
static void set_loss_scale(struct DsPlan *p) {
    const cJSON *scale = plan_value(p, "fp16.loss_scale"), *power = plan_value(p, POWER);
    if (scale && scale->valuedouble != 0)
        plan_refuse(p,
                    "fp16.loss_scale %.15g: a static scale is not supported; expected 0, or no key "
                    "and --loss-scale N --loss-scale-min N --loss-scale-window 0",
                    scale->valuedouble);
    if (power && (power->valuedouble < 0 || power->valuedouble > 40))
        plan_refuse(p, "%s %.15g: expected 0 to 40", POWER, power->valuedouble);
    else if (power || !plan_any_value(p, POWER))
        plan_set(p, POWER, "loss-scale",
                 base_format("%.0f", ldexp(1, power ? (int)power->valuedouble : 16)));
    const cJSON *least = plan_value(p, LEAST);
    int exponent;
    bool bad_min = least && (least->valuedouble < 1 || frexp(least->valuedouble, &exponent) != 0.5);
    if (bad_min)
        plan_refuse(p, "%s %.15g: expected a power of two, at least 1", LEAST, least->valuedouble);
    static const struct {
        const char *key, *flag, *otherwise;
    } rows[] = {{"fp16.loss_scale_window", "loss-scale-window", "1000"},
                {"fp16.hysteresis", "loss-scale-hysteresis", "2"},
                {LEAST, "loss-scale-min", "1"}};
    for (int i = 0; i < 3 - bad_min; i++) // LEAST is the last row
        if (plan_value(p, rows[i].key))
            plan_copy_count(p, rows[i].key, rows[i].flag);
        else if (!plan_any_value(p, rows[i].key))
            plan_set(p, rows[i].key, rows[i].flag, base_format("%s", rows[i].otherwise));
}

// Returns our name of a dtype; NULL: it is none of ours.
static const char *dtype_named(const char *name) {
    static const char *const names[][5] = {{"fp32", "float32", "float", "torch.float32", NULL},
                                           {"bf16", "bfloat16", "torch.bfloat16", NULL},
                                           {"fp16", "float16", "half", "torch.float16", NULL}};
    for (int i = 0; i < 3; i++)
        for (int j = 0; names[i][j]; j++)
            if (strcasecmp(names[i][j], name) == 0)
                return names[i][0];
    return NULL;
}

// Gradients are sent in the format in which they are kept. `dtype`: that of weights.
static void set_gradient_dtype(struct DsPlan *p, const char *dtype) {
    static const char kept_key[] = "data_types.grad_accum_dtype",
                      sent_key[] = "communication_data_type";
    const cJSON *kept = plan_value(p, kept_key), *sent = plan_value(p, sent_key);
    const char *kept_dtype = kept ? dtype_named(kept->valuestring) : NULL;
    if (kept && !kept_dtype)
        plan_refuse(p, "%s %.40s: expected fp32, bf16 or fp16", kept_key, kept->valuestring);
    if (kept_dtype)
        plan_set(p, kept_key, "grad-dtype", base_format("%s", kept_dtype));
    if (!sent)
        return;
    char *flag_dtype = flags_value(p->flags, "grad-dtype");
    const char *grad_dtype = kept_dtype                        ? kept_dtype
                             : strcmp(flag_dtype, "auto") != 0 ? flag_dtype
                                                               : dtype;
    const char *sent_dtype = dtype_named(sent->valuestring);
    if (!sent_dtype || strcmp(sent_dtype, grad_dtype) != 0)
        plan_refuse(p, "%s %.40s: expected %s, because gradients are sent in the format of %s",
                    sent_key, sent->valuestring, grad_dtype, kept_key);
    free(flag_dtype);
}

// Sets --dtype by bf16.enabled and fp16.enabled, then the loss scale and the gradients' dtype. If
// neither switch is on, --dtype is fp32, DeepSpeed's default. But it stays as it is if the user
// gave it, or if one switch is "auto" and bf16 is not false.
void plan_precision(struct DsPlan *p) {
    bool old = plan_any_value(p, "bfloat16") && !plan_any_value(p, "bf16");
    const char *bf16_key = old ? "bfloat16.enabled" : "bf16.enabled", *fp16_key = "fp16.enabled";
    enum Switch bf16 = read_switch(p, bf16_key), fp16 = read_switch(p, fp16_key);
    char *current = flags_value(p->flags, "dtype");
    bool by_user = ds_user_gave(p->flags, "dtype");
    const char *dtype = current;
    if (plan_any_value(p, "bf16") && plan_any_value(p, "bfloat16"))
        plan_refuse(p, "bf16 and bfloat16 are two names of one key: expected bf16 alone");
    if (bf16 == SWITCH_ON && fp16 == SWITCH_ON)
        plan_refuse(p, "bf16.enabled and fp16.enabled are both true: expected one of them");
    if (bf16 == SWITCH_ON)
        plan_set(p, bf16_key, "dtype", base_format("%s", dtype = "bf16"));
    else if (fp16 == SWITCH_ON)
        plan_set(p, fp16_key, "dtype", base_format("%s", dtype = "fp16"));
    else if (!by_user && (bf16 == SWITCH_OFF || (bf16 != SWITCH_AUTO && fp16 != SWITCH_AUTO)))
        plan_set(p, bf16 == SWITCH_OFF || fp16 == SWITCH_ABSENT ? bf16_key : fp16_key, "dtype",
                 base_format("%s", dtype = "fp32"));
    else if (by_user && ((bf16 == SWITCH_OFF && strcmp(current, "bf16") == 0) ||
                         (fp16 == SWITCH_OFF && strcmp(current, "fp16") == 0)))
        plan_refuse(p, "%s.enabled is false, but --dtype %s is given; drop one", current, current);
    const char *other = bf16 == SWITCH_ON ? fp16_key : bf16_key;
    if (bf16 == SWITCH_ON || fp16 == SWITCH_ON)
        plan_note(p, other, bf16 == SWITCH_ON ? "bf16 is on" : "fp16 is on");
    else if (bf16 == SWITCH_OFF)
        plan_note(p, fp16_key, "it is off");
    bool scaled = fp16 == SWITCH_ON || (fp16 != SWITCH_OFF && strcmp(current, "fp16") == 0);
    static const char *const scale_keys[] = {"fp16.loss_scale", POWER, "fp16.loss_scale_window",
                                             "fp16.hysteresis", LEAST};
    if (scaled)
        set_loss_scale(p);
    for (int i = 0; !scaled && i < 5; i++)
        plan_note(p, scale_keys[i], "fp16 is off");
    set_gradient_dtype(p, dtype);
    free(current);
}

// ---- ZeRO and offload ----

#define ZERO "zero_optimization."
#define HPZ "zero_hpz_partition_size"

// Refuses a device other than none, cpu and, with `disk`, nvme. Returns true if it is one of them.
static bool check_device(struct DsPlan *p, const char *key, const cJSON *value, bool disk) {
    static const char *const names[] = {"none", "cpu", "nvme"};
    for (int i = 0; i < 2 + disk; i++)
        if (strcmp(value->valuestring, names[i]) == 0)
            return true;
    plan_refuse(p, "%s %.40s: expected none%s", key, value->valuestring,
                disk ? ", cpu or nvme" : " or cpu");
    return false;
}

static void set_bool(struct DsPlan *p, const char *key, const char *flag, const char *on,
                     const char *off) {
    const cJSON *value = plan_value(p, key);
    if (value)
        plan_set(p, key, flag, base_format("%s", cJSON_IsTrue(value) ? on : off));
}

// Sets the tier of one offload block. Returns true if that is a disk.
static bool set_tier(struct DsPlan *p, const char *device_key, const char *path_key,
                     const char *flag) {
    const cJSON *device = plan_value(p, device_key), *path = plan_value(p, path_key);
    bool disk = device && strcmp(device->valuestring, "nvme") == 0;
    if (device && check_device(p, device_key, device, true))
        plan_set(p, device_key, flag, base_format("%s", device->valuestring));
    if (path && disk)
        plan_copy_value(p, path_key, "nvme-path");
    else if (path)
        plan_note(p, path_key, "nothing of it is offloaded to nvme");
    return disk;
}

// Gradients go with the optimizer's state; if that is on NVMe already, no flag is set.
static void set_gradients_tier(struct DsPlan *p) {
    static const char block_key[] = ZERO "offload_gradients",
                      device_key[] = ZERO "offload_gradients.device";
    const cJSON *device = plan_value(p, device_key), *block = plan_value(p, block_key);
    const cJSON *state = plan_value(p, ZERO "offload_optimizer.device");
    bool known = device && check_device(p, device_key, device, false);
    bool on_cpu = cJSON_IsTrue(block) || (known && device->valuestring[0] == 'c');
    const char *key = device ? device_key : block_key;
    if (on_cpu && state && strcmp(state->valuestring, "nvme") == 0)
        plan_note(p, key, "gradients pass the CPU's memory");
    else if (on_cpu)
        plan_set(p, key, "offload-optimizer", base_format("cpu"));
    else
        plan_note(p, key, "they go where the optimizer's state is");
}

static void set_stage(struct DsPlan *p) {
    const cJSON *zero = plan_value(p, "zero_optimization");
    if (zero && cJSON_IsBool(zero))
        plan_set(p, "zero_optimization", "zero", base_format("%d", cJSON_IsTrue(zero)));
    else if (plan_value(p, ZERO "stage"))
        plan_copy_count(p, ZERO "stage", "zero");
    else if (!ds_is_auto(plan_any_value(p, ZERO "stage")))
        plan_set(p, ZERO "stage", "zero", base_format("0"));
}

static void set_nvme_blocks(struct DsPlan *p, bool uses_nvme) {
    static const struct {
        const char *key, *flag;
    } rows[] = {{"aio.block_size", "nvme-block"}, {"aio.queue_depth", "nvme-depth"}};
    for (int i = 0; i < 2; i++)
        if (uses_nvme)
            plan_copy_count(p, rows[i].key, rows[i].flag);
        else
            plan_note(p, rows[i].key, "nothing is offloaded to nvme");
}

// Returns the stage, after set_stage.
static double resolved_stage(const struct DsPlan *p) {
    const cJSON *stage = plan_value(p, ZERO "stage");
    if (stage)
        return stage->valuedouble;
    bool by_flag = ds_is_auto(plan_any_value(p, ZERO "stage")) || ds_user_gave(p->flags, "zero");
    return by_flag ? flags_number(p->flags, "zero") : 0;
}

// Sets MiCS (shards over some ranks, and replicas of them) and ZeRO++'s second partition.
static void set_shards(struct DsPlan *p) {
    static const char key[] = ZERO "mics_shard_size";
    const cJSON *size = plan_value(p, key), *hpz = plan_value(p, ZERO HPZ);
    if (size && size->valuedouble > 0 && resolved_stage(p) == 0)
        plan_refuse(p, "%s %.15g: " ZERO "stage 0 has no shards; expected stage 1, 2 or 3", key,
                    size->valuedouble);
    else if (size && size->valuedouble > 0)
        plan_copy_count(p, key, "zero-shard-size");
    else if (size)
        plan_note(p, key, "shards are cut over all ranks");
    if (hpz && hpz->valuedouble > 1)
        plan_copy_count(p, ZERO HPZ, "zero-hpz-partition-size");
}

void plan_offload(struct DsPlan *p) {
    static const char ratio[] = ZERO "offload_optimizer.ratio";
    set_stage(p);
    bool disk = set_tier(p, ZERO "offload_optimizer.device", ZERO "offload_optimizer.nvme_path",
                         "offload-optimizer");
    disk =
        set_tier(p, ZERO "offload_param.device", ZERO "offload_param.nvme_path", "offload-param") ||
        disk;
    const cJSON *device = plan_value(p, ZERO "offload_optimizer.device");
    if (device && strcmp(device->valuestring, "none") != 0)
        plan_copy_value(p, ratio, "offload-ratio");
    else
        plan_note(p, ratio, "the optimizer's state is not offloaded");
    set_gradients_tier(p);
    set_bool(p, ZERO "cpu_offload", "offload-optimizer", "cpu", "none");
    set_bool(p, ZERO "cpu_offload_param", "offload-param", "cpu", "none");
    set_bool(p, ZERO "cpu_offload_params", "offload-param", "cpu", "none");
    set_nvme_blocks(p, disk);
    set_shards(p);
}

// ---- tensor parallelism ----

static void set_tensor_parallel(struct DsPlan *p) {
    const char *key = PLAN_AUTOTP;
    static const char *const others[] = {"tensor_parallel.tensor_parallel.tp_size",
                                         "tensor_parallel.tp.tp_size"};
    const cJSON *parts = plan_value(p, key);
    if (parts && parts->valuedouble == 0)
        plan_note(p, key, "there is none");
    else
        plan_copy_count(p, key, "tp");
    for (int i = 0; i < 2; i++) {
        const cJSON *other = plan_value(p, others[i]);
        if (other && other->valuedouble != 1 &&
            !(parts && parts->valuedouble == other->valuedouble))
            plan_refuse(p, "%s %.15g: expected 1, or the value of autotp_size", others[i],
                        other->valuedouble);
    }
}

// ---- the rest ----

static void set_prefetch(struct DsPlan *p, const char *key) {
    const cJSON *value = plan_value(p, key);
    if (value && value->valuedouble == 0)
        plan_set(p, key, "prefetch", base_format("0"));
    else if (value)
        plan_note(p, key, "whole units are fetched ahead: --prefetch says how many");
}

void plan_rest(struct DsPlan *p) {
    const cJSON *op = plan_value(p, "gradient_allreduce_op");
    if (plan_value(p, "gradient_clipping")) {
        plan_copy_value(p, "gradient_clipping", "clip");
    } else if (!ds_is_auto(plan_any_value(p, "gradient_clipping"))) {
        plan_set(p, "gradient_clipping", "clip", base_format("0"));
        plan_note(p, "gradient_clipping", "none, the default up to 0.19.0 (0.19.8: 1)");
    }
    if (op && strcasecmp(op->valuestring, "mean") != 0)
        plan_refuse(p, "gradient_allreduce_op %.40s: expected mean; raise --lr in place of a sum",
                    op->valuestring);
    set_bool(p, ZERO "overlap_comm", "overlap", "on", "off");
    set_prefetch(p, ZERO "stage3_prefetch_bucket_size");
    set_prefetch(p, ZERO "prefetch_bucket_size");
    set_bool(p, "activation_checkpointing.cpu_checkpointing", "offload-activations", "cpu", "none");
    if (cJSON_IsTrue(plan_value(p, "wall_clock_breakdown")))
        set_bool(p, "wall_clock_breakdown", "breakdown", "true", "false");
    else
        plan_note(p, "wall_clock_breakdown", "it is off: --breakdown turns it on");
    set_tensor_parallel(p);
}
