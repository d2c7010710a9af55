// Reads and writes adapter_config.json: see config.h.
#include "data/peft/config.h"

#include "data/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct Reading {
    const cJSON *config;
    const char *path;
    bool gpt2;
    struct PeftConfig *out;
    struct Error *e;
};

// Keys that are read here, and those that say nothing about what the adapter computes.
static const char *const read_keys[] = {"peft_type",
                                        "task_type",
                                        "r",
                                        "lora_alpha",
                                        "lora_dropout",
                                        "target_modules",
                                        "bias",
                                        "init_lora_weights",
                                        "fan_in_fan_out",
                                        "base_model_name_or_path"};
static const char *const ignored_keys[] = {
    "auto_mapping",  "peft_version",      "revision",           "inference_mode", "runtime_config",
    "megatron_core", "qalora_group_size", "eva_config",         "corda_config",   "lora_ga_config",
    "loftq_config",  "merge_weights",     "ensure_weight_tying"};

// What else a key must not say; any other that is not empty is unknown.
static const struct {
    const char *key, *expected;
} refused_keys[] = {
    {"use_rslora", "false: products count lora_alpha / r times here, not lora_alpha / sqrt(r)"},
    {"use_dora", "false: there are no magnitudes here"},
    {"use_qalora", "false: inputs are not pooled here"},
    {"use_bdlora", "null: there are no block-diagonal adapters here"},
    {"lora_bias", "false: B has no bias here"},
    {"rank_pattern", "{}: all adapters have one rank here"},
    {"alpha_pattern", "{}: all adapters have one lora_alpha here"},
    {"modules_to_save", "null: adapters alone are trained here"},
    {"trainable_token_indices", "null: adapters alone are trained here"},
    {"exclude_modules", "null: every layer has the same adapters here"},
    {"layers_to_transform", "null: every layer has the same adapters here"},
    {"layers_pattern", "null: every layer has the same adapters here"},
    {"layer_replication", "null: no layer is repeated here"},
    {"target_parameters", "null: modules have adapters here, by target_modules"},
    {"megatron_config", "null: the model is transformers'"},
    {"alora_invocation_tokens", "null: adapters are always on here"},
    {"arrow_config", "null: there is one adapter here"},
    {"kasa_config", "null: there is nothing between A and B here"},
    {"velora_config", "null: gradients are exact here"},
    {"monteclora_config", "null: A and B are no distributions here"},
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

// Returns the value of a key; NULL: the key is absent, or null.
static const cJSON *find_value(const struct Reading *r, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(r->config, key);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

static int refuse_value(const struct Reading *r, const char *key, const cJSON *item,
                        const char *expected) {
    char *text = item ? cJSON_PrintUnformatted(item) : NULL;
    int err =
        error_set(r->e, -EINVAL, E_PEFT_CONFIG, "%s: %s %s: expected %s", r->path,
                  json_shown(key).text, text ? json_shown(text).text : "is missing", expected);
    cJSON_free(text);
    return err;
}

static bool is_in(const char *key, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], key) == 0)
            return true;
    return false;
}

static bool is_empty(const cJSON *item) {
    return cJSON_IsNull(item) || cJSON_IsFalse(item) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child) ||
           (cJSON_IsString(item) && !*item->valuestring);
}

static int check_keys(const struct Reading *r) {
    const cJSON *item;
    cJSON_ArrayForEach(item, r->config) {
        const char *expected = "null: this key is not known here";
        if (is_empty(item) || is_in(item->string, read_keys, COUNT(read_keys)) ||
            is_in(item->string, ignored_keys, COUNT(ignored_keys)))
            continue;
        for (size_t i = 0; i < COUNT(refused_keys); i++)
            if (strcmp(refused_keys[i].key, item->string) == 0)
                expected = refused_keys[i].expected;
        return refuse_value(r, item->string, item, expected);
    }
    return 0;
}

// Refuses another value than the text `must`; an absent one if it is needed.
static int check_text(const struct Reading *r, const char *key, const char *must, bool needed) {
    const cJSON *item = find_value(r, key);
    bool right = item ? cJSON_IsString(item) && strcmp(item->valuestring, must) == 0 : !needed;
    return right ? 0 : refuse_value(r, key, item, must);
}

// Refuses an init_lora_weights that moved parts of the base into A and B: the file has what A and B
// became, but the base's folder still has those parts, too.
static int check_init_lora_weights(const struct Reading *r) {
    static const char *const accepted[] = {"gaussian", "eva", "orthogonal"};
    const cJSON *item = find_value(r, "init_lora_weights");
    if (!item || cJSON_IsBool(item) ||
        (cJSON_IsString(item) && is_in(item->valuestring, accepted, COUNT(accepted))))
        return 0;
    return refuse_value(
        r, "init_lora_weights", item,
        "true, false, gaussian, eva or orthogonal: others change the base or what is "
        "trained; save it by path_initial_model_for_weight_conversion");
}

static int read_numbers(const struct Reading *r) {
    const cJSON *rank = find_value(r, "r"), *alpha = find_value(r, "lora_alpha");
    const cJSON *dropout = find_value(r, "lora_dropout");
    double a = alpha ? alpha->valuedouble : 8, p = dropout ? dropout->valuedouble : 0;
    uint64_t n = 8; // the defaults are PEFT's; n: the rank
    if (rank && !(json_is_count(rank, &n) && n >= 1 && n <= PEFT_RANK_MAX))
        return refuse_value(r, "r", rank, "a whole number from 1 to 2^20");
    if (alpha && !(cJSON_IsNumber(alpha) && (float)a > 0 && a <= 1e30))
        return refuse_value(r, "lora_alpha", alpha, "a number above 0");
    if (dropout && !(cJSON_IsNumber(dropout) && p >= 0 && (float)p < 1))
        return refuse_value(r, "lora_dropout", dropout, "a number from 0 up to 1, without 1");
    r->out->rank = (size_t)n;
    r->out->alpha = a;
    r->out->dropout = p;
    return 0;
}

static int read_targets(const struct Reading *r) {
    const char *expected = r->gpt2 ? "names of c_attn, c_proj, c_fc alone"
                                   : "names of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
                                     "down_proj alone";
    const cJSON *list = find_value(r, "target_modules"), *item;
    if (cJSON_IsString(list) && strcasecmp(list->valuestring, "all-linear") == 0) {
        r->out->targets = lora_targets_all(r->gpt2);
        return 0;
    }
    if (!cJSON_IsArray(list) || !list->child)
        return refuse_value(r, "target_modules", list,
                            "a list of names, or \"all-linear\"; regular expressions are not read");
    cJSON_ArrayForEach(item, list) {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        unsigned named = lora_targets_named(name, strlen(name), r->gpt2);
        if (!named)
            return refuse_value(r, "target_modules", item, expected);
        r->out->targets |= named;
    }
    return 0;
}

// Reads the base's name, and checks fan_in_fan_out, which may be true or false: PEFT corrects it by
// the module's class.
static int read_base_name(const struct Reading *r) {
    const cJSON *base = find_value(r, "base_model_name_or_path"),
                *fan_in_fan_out = find_value(r, "fan_in_fan_out");
    if (fan_in_fan_out && !cJSON_IsBool(fan_in_fan_out))
        return refuse_value(r, "fan_in_fan_out", fan_in_fan_out, "true or false");
    if (!base)
        return 0;
    if (!cJSON_IsString(base) || strlen(base->valuestring) >= sizeof r->out->base)
        return refuse_value(r, "base_model_name_or_path", base,
                            "a path or name of at most 4095 bytes");
    strcpy(r->out->base, base->valuestring);
    return 0;
}

int peft_config_read(struct PeftConfig *out, const char *dir, bool gpt2, struct Error *e) {
    char *path = base_format("%s/adapter_config.json", dir);
    struct cJSON *config = json_read(path, e);
    struct Reading r = {config, path, gpt2, out, e};
    *out = (struct PeftConfig){0};
    int err = config ? check_text(&r, "peft_type", "LORA", true) : -EINVAL;
    if (!err)
        err = check_text(&r, "task_type", "CAUSAL_LM", false);
    if (!err)
        err = check_text(&r, "bias", "none", false);
    if (!err)
        err = check_keys(&r);
    if (!err)
        err = check_init_lora_weights(&r);
    if (!err)
        err = read_numbers(&r);
    if (!err)
        err = read_targets(&r);
    if (!err)
        err = read_base_name(&r);
    cJSON_Delete(config);
    free(path);
    return err;
}

// Keys at their defaults that programs other than PEFT look at are there, too.
char *peft_config_write(const struct PeftConfig *c, bool gpt2) {
    cJSON *config = cJSON_CreateObject();
    cJSON_AddStringToObject(config, "peft_type", "LORA");
    cJSON_AddStringToObject(config, "task_type", "CAUSAL_LM");
    cJSON_AddItemToObject(config, "base_model_name_or_path",
                          *c->base ? cJSON_CreateString(c->base) : cJSON_CreateNull());
    cJSON_AddNullToObject(config, "revision");
    cJSON_AddTrueToObject(config, "inference_mode");
    cJSON_AddNumberToObject(config, "r", (double)c->rank);
    cJSON_AddNumberToObject(config, "lora_alpha", c->alpha);
    cJSON_AddNumberToObject(config, "lora_dropout", c->dropout);
    cJSON *targets = cJSON_AddArrayToObject(config, "target_modules");
    for (int t = 0; t < NLORA; t++)
        if (c->targets >> t & 1)
            cJSON_AddItemToArray(targets,
                                 cJSON_CreateString(lora_target_name((enum LoraTarget)t, gpt2)));
    cJSON_AddBoolToObject(config, "fan_in_fan_out", gpt2); // Conv1D's weights are (in, out)
    cJSON_AddStringToObject(config, "bias", "none");
    cJSON_AddTrueToObject(config, "init_lora_weights");
    cJSON_AddFalseToObject(config, "use_rslora");
    cJSON_AddFalseToObject(config, "use_dora");
    cJSON_AddObjectToObject(config, "rank_pattern");
    cJSON_AddObjectToObject(config, "alpha_pattern");
    cJSON_AddNullToObject(config, "modules_to_save");
    cJSON_AddNullToObject(config, "layers_to_transform");
    return json_file_text(config);
}
