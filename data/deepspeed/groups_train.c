// Keys of a step that are resolved together: batches, optimizer, schedule. See plan.h.
//
// An absent key sets DeepSpeed's default if that shapes the numbers; the command line takes
// precedence. Sources: DeepSpeed 0.19.8, runtime/config.py (_set_batch_related_parameters),
// runtime/engine.py (_configure_basic_optimizer), ops/adam, runtime/lr_schedules.py.
#include "data/deepspeed/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- batches ----

static const char TRAIN[] = "train_batch_size", MICRO[] = "train_micro_batch_size_per_gpu",
                  STEPS[] = "gradient_accumulation_steps";

// Returns a count of at least 1, or 0 if it is absent. Refuses other values.
static double read_count(struct DsPlan *p, const char *key) {
    const cJSON *value = plan_value(p, key);
    if (value && value->valuedouble < 1)
        plan_refuse(p, "%s %.15g: expected at least 1", key, value->valuedouble);
    return value && value->valuedouble >= 1 ? value->valuedouble : 0;
}

static bool is_positive_integer(double x) {
    return x >= 1 && x == floor(x);
}

// Returns the number of data-parallel ranks. A --tp that does not divide --ranks is refused later,
// as without a file.
static double data_ranks(const struct DsPlan *p) {
    const cJSON *parts = plan_value(p, PLAN_AUTOTP);
    double tp =
        parts && parts->valuedouble >= 1 ? parts->valuedouble : flags_number(p->flags, "tp");
    double ranks_per_replica = tp * flags_number(p->flags, "pp"), ranks = (double)p->ranks;
    return fmod(ranks, ranks_per_replica) == 0 ? ranks / ranks_per_replica : ranks;
}

// Refuses a train_batch_size that is not the product of the other two sizes and the ranks, or, if
// one of these sizes is unknown (0), no multiple of the product of the rest.
static void refuse_product(struct DsPlan *p, double train, double micro, double steps) {
    double ranks = data_ranks(p);
    const char *parallel = ranks == (double)p->ranks ? "" : "data-parallel ";
    char *ranks_text = base_format("%.0f %sranks", ranks, parallel);
    if (micro > 0 && steps > 0)
        plan_refuse(p, "%s %.0f: expected %.0f, which is %s %.0f times %s %.0f times %s", TRAIN,
                    train, micro * steps * ranks, MICRO, micro, STEPS, steps, ranks_text);
    else
        plan_refuse(p, "%s %.0f: expected a multiple of %.0f, which is %s %.0f times %s", TRAIN,
                    train, (micro > 0 ? micro : steps) * ranks, micro > 0 ? MICRO : STEPS,
                    micro > 0 ? micro : steps, ranks_text);
    free(ranks_text);
}

// Returns the flag's value if "auto" or the line leaves the key to it; else 0.
static double size_from_flag(const struct DsPlan *p, const char *key, const char *flag) {
    const cJSON *any = plan_any_value(p, key);
    bool takes_flag = ds_is_auto(any) || (!plan_value(p, key) && ds_user_gave(p->flags, flag));
    return takes_flag ? flags_number(p->flags, flag) : 0;
}

// Completes the three sizes as DeepSpeed does; 0: unknown.
static void complete_batch_sizes(double *train, double *micro, double *steps, double ranks) {
    if (!*steps && !(*train && *micro))
        *steps = 1;
    if (!*train)
        *train = *micro * *steps * ranks;
    else if (!*micro)
        *micro = *train / (*steps * ranks);
    else if (!*steps)
        *steps = *train / (*micro * ranks);
}

void plan_batches(struct DsPlan *p) {
    double train = read_count(p, TRAIN), micro = read_count(p, MICRO), steps = read_count(p, STEPS);
    double ranks = data_ranks(p), file_steps = steps;
    if (!train && !micro && !steps)
        return; // --batch and --global-batch, given or default
    if (!train)
        train = size_from_flag(p, TRAIN, "global-batch");
    if (!micro)
        micro = size_from_flag(p, MICRO, "batch");
    if (!train && !micro) // accumulation alone
        micro = flags_number(p->flags, "batch");
    double known_micro = micro;
    complete_batch_sizes(&train, &micro, &steps, ranks);
    if (!is_positive_integer(micro) || !is_positive_integer(steps) ||
        train != micro * steps * ranks) {
        // 0: unknown. If the micro-batch is unknown, too, the steps are 1, as in DeepSpeed.
        refuse_product(p, train, known_micro, file_steps ? file_steps : known_micro ? 0 : 1);
        return;
    }
    if (!ds_user_gave(p->flags, "batch") || plan_value(p, MICRO))
        plan_set(p, MICRO, "batch", base_format("%.0f", micro));
    if (!ds_user_gave(p->flags, "global-batch") || plan_value(p, TRAIN))
        plan_set(p, TRAIN, "global-batch", base_format("%.0f", train));
    char *steps_text = base_format("with %.0f ranks: %.0f", ranks, steps);
    plan_note(p, STEPS, steps_text);
    if (!plan_value(p, MICRO))
        plan_note(p, MICRO, "it follows");
    if (!plan_value(p, TRAIN))
        plan_note(p, TRAIN, "it follows");
    free(steps_text);
}

// ---- the optimizer ----

#define OPT "optimizer.params."

static void refuse_false(struct DsPlan *p, const char *key, const char *what) {
    const cJSON *value = plan_value(p, key);
    if (value && !cJSON_IsTrue(value))
        plan_refuse(p, "%s false is refused: %s", key, what);
}

static void set_betas(struct DsPlan *p) {
    const cJSON *betas = plan_value(p, OPT "betas");
    const cJSON *first = betas ? betas->child : NULL, *second = first ? first->next : NULL;
    bool has_two = second && !second->next && cJSON_IsNumber(first) && cJSON_IsNumber(second);
    if (betas && !has_two) {
        plan_refuse(p, OPT "betas: expected a list of two numbers");
    } else if (betas || !plan_any_value(p, OPT "betas")) {
        plan_set(p, OPT "betas", "beta1", has_two ? ds_format_flag(first) : base_format("0.9"));
        plan_set(p, OPT "betas", "beta2", has_two ? ds_format_flag(second) : base_format("0.999"));
    }
}

// Sets the flag to the key's value, or to `otherwise` if there is none, unless it is "auto".
static void copy_or(struct DsPlan *p, const char *key, const char *flag, const char *otherwise) {
    if (plan_value(p, key))
        plan_copy_value(p, key, flag);
    else if (!ds_is_auto(plan_any_value(p, key)))
        plan_set(p, key, flag, base_format("%s", otherwise));
}

static const char *scheduler_type(const struct DsPlan *p) {
    const cJSON *type = plan_value(p, "scheduler.type");
    return type ? type->valuestring : NULL;
}

// True if the scheduler has a learning rate, which takes precedence over the optimizer's.
static bool scheduler_has_lr(const struct DsPlan *p) {
    static const char key[] = "scheduler.params.warmup_max_lr";
    const char *type = scheduler_type(p);
    return type && (strcmp(type, "WarmupDecayLR") == 0
                        ? !ds_is_auto(plan_any_value(p, key))
                        : strcmp(type, "WarmupLR") == 0 && plan_value(p, key));
}

void plan_optimizer(struct DsPlan *p) {
    static const char no_l2[] =
        "decay stands apart from the gradient, as in AdamW; set it to true, or leave it out";
    const cJSON *type = plan_value(p, "optimizer.type");
    bool missing = !type && !ds_is_auto(plan_any_value(p, "optimizer.type"));
    if (missing && plan_any_value(p, "optimizer.params"))
        plan_refuse(p, "optimizer.type is missing, and without it DeepSpeed ignores "
                       "optimizer.params: expected AdamW, or Adam");
    if (missing || !plan_value(p, "optimizer"))
        return;
    if (type && strcasecmp(type->valuestring, "adam") != 0 &&
        strcasecmp(type->valuestring, "adamw") != 0) {
        plan_refuse(p, "optimizer.type \"%.40s\" is refused: expected AdamW, or Adam",
                    type->valuestring);
        return;
    }
    refuse_false(p, OPT "adam_w_mode", no_l2);
    refuse_false(p, OPT "adamw_mode", no_l2);
    refuse_false(p, OPT "bias_correction",
                 "AdamW's moments are always corrected; set it to true, or leave it out");
    refuse_false(p, OPT "fp32_optimizer_states", "leave it out, and give --adam-dtype bf16");
    if (scheduler_has_lr(p))
        plan_note(p, OPT "lr", "the scheduler's warmup_max_lr goes before it");
    else
        copy_or(p, OPT "lr", "lr", "0.001");
    set_betas(p);
    copy_or(p, OPT "eps", "eps", "1e-8");
    copy_or(p, OPT "weight_decay", "weight-decay",
            cJSON_IsTrue(plan_value(p, OPT "torch_adam")) ? "0.01" : "0");
}

// ---- the schedule ----

#define SCHED "scheduler.params."

// Returns the learning rate that is set so far: the file's, or the flag's.
static double learning_rate_so_far(const struct DsPlan *p) {
    for (size_t i = 0; i < p->out->n; i++)
        if (p->out->lines[i].flag && strcmp(p->out->lines[i].flag, "lr") == 0) {
            const struct DsLine *line = &p->out->lines[i];
            bool yields = line->absent && ds_user_gave(p->flags, "lr");
            return yields ? flags_number(p->flags, "lr") : strtod(line->flag_value, NULL);
        }
    return flags_number(p->flags, "lr");
}

// Sets the rates. A product has the digits that a person would write: 0.01 of 1e-5 is 1e-07.
static void set_rates(struct DsPlan *p, const char *type) {
    if (strcmp(type, "WarmupCosineLR") == 0) {
        const cJSON *least = plan_value(p, SCHED "warmup_min_ratio");
        const cJSON *ratio = plan_value(p, SCHED "cos_min_ratio");
        if (least && least->valuedouble != 0)
            plan_refuse(p, SCHED "warmup_min_ratio %.15g: expected 0, where the warm-up begins",
                        least->valuedouble);
        if (ratio || !ds_is_auto(plan_any_value(p, SCHED "cos_min_ratio")))
            plan_set(p, SCHED "cos_min_ratio", "min-lr",
                     base_format("%.15g",
                                 learning_rate_so_far(p) * (ratio ? ratio->valuedouble : 0.0001)));
        return;
    }
    if (strcmp(type, "WarmupDecayLR") == 0)
        copy_or(p, SCHED "warmup_max_lr", "lr", "0.001");
    else
        plan_copy_value(p, SCHED "warmup_max_lr", "lr");
    copy_or(p, SCHED "warmup_min_lr", "min-lr", "0");
}

static void set_steps_and_warmup(struct DsPlan *p, const char *type) {
    static const char key[] = SCHED "total_num_steps";
    const cJSON *steps = plan_value(p, key);
    if (steps && ds_user_gave(p->flags, "epochs") && flags_number(p->flags, "epochs") > 0)
        plan_refuse(
            p,
            "%s sets --steps %.15g, but --epochs %.0f is given; expected \"auto\", or no --epochs",
            key, steps->valuedouble, flags_number(p->flags, "epochs"));
    else if (steps)
        plan_copy_count(p, key, "steps");
    else if (strcmp(type, "WarmupLR") != 0 && !ds_is_auto(plan_any_value(p, key)))
        plan_refuse(p, "%s is missing, and %s needs it; expected a number of steps, or \"auto\"",
                    key, type);
    if (plan_value(p, SCHED "warmup_num_steps"))
        plan_copy_count(p, SCHED "warmup_num_steps", "warmup");
    else if (!ds_is_auto(plan_any_value(p, SCHED "warmup_num_steps")))
        plan_set(p, SCHED "warmup_num_steps", "warmup", base_format("1000"));
}

// Refuses keys of other kinds of schedule, which would have no effect, and a last_batch_iteration
// other than -1, the default.
static void refuse_keys_of_other_types(struct DsPlan *p, const char *type) {
    static const struct {
        const char *key, *kinds;
    } keys[] = {{SCHED "warmup_min_lr", "WarmupLR WarmupDecayLR"},
                {SCHED "warmup_max_lr", "WarmupLR WarmupDecayLR"},
                {SCHED "total_num_steps", "WarmupDecayLR WarmupCosineLR"},
                {SCHED "warmup_min_ratio", "WarmupCosineLR"},
                {SCHED "cos_min_ratio", "WarmupCosineLR"}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const cJSON *value = plan_any_value(p, keys[i].key);
        if (value && !strstr(keys[i].kinds, type))
            plan_refuse(p, "%s: %s has no such key; remove it", keys[i].key, type);
    }
    const cJSON *last = plan_value(p, SCHED "last_batch_iteration");
    if (last && last->valuedouble != -1)
        plan_refuse(p, SCHED "last_batch_iteration %.15g: expected -1; --resume continues a run",
                    last->valuedouble);
}

void plan_scheduler(struct DsPlan *p) {
    static const char *const types[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
    const cJSON *type = plan_value(p, "scheduler.type");
    const cJSON *shape = plan_value(p, SCHED "warmup_type");
    bool known = false, lacks_type = plan_value(p, "scheduler") && !type;
    if (lacks_type && !ds_is_auto(plan_any_value(p, "scheduler.type")))
        plan_refuse(p, "scheduler.type is missing: expected WarmupLR, WarmupDecayLR or "
                       "WarmupCosineLR");
    if (!type)
        return;
    for (int i = 0; i < 3; i++)
        known = known || strcmp(type->valuestring, types[i]) == 0;
    if (!known) {
        plan_refuse(p,
                    "scheduler.type \"%.40s\" is refused: expected WarmupLR, WarmupDecayLR or "
                    "WarmupCosineLR, or no scheduler and --schedule",
                    type->valuestring);
        return;
    }
    refuse_keys_of_other_types(p, type->valuestring);
    plan_set(p, "scheduler.type", "schedule", base_format("%s", type->valuestring));
    set_rates(p, type->valuestring);
    set_steps_and_warmup(p, type->valuestring);
    bool linear =
        shape && strcmp(shape->valuestring, "linear") == 0; // for DeepSpeed all else is "log"
    if (shape || !ds_is_auto(plan_any_value(p, SCHED "warmup_type")))
        plan_set(p, SCHED "warmup_type", "warmup-type",
                 base_format("%s", linear ? "linear" : "log"));
}
