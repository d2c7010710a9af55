// Rotary embedding in config.json: see config_read.h. transformers 4 wrote rope_theta and
// rope_scaling, 5 writes rope_parameters, which includes the base. If a file has both, or lacks a
// number, the result is that of transformers 5.
#include "data/hf/config_read.h"

#include "data/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The object that is read, rope_scaling or rope_parameters, and its name.
struct RopeObject {
    const cJSON *object; // NULL: there is neither
    const char *name;
    double positions; // max_position_embeddings, or its default
};

// The first takes precedence.
static const char *const rope_names[] = {"rope_scaling", "rope_parameters"};

// Finds the object. An empty one counts as absent.
static int find_rope(struct HfReading *r, struct RopeObject *rope) {
    for (int i = 0; i < 2 && !rope->object; i++) {
        const cJSON *item = hf_config_value(r->config, rope_names[i]);
        rope->name = rope_names[i];
        if (item && !cJSON_IsObject(item))
            return hf_config_refuse(r, rope_names[i], item, "an object");
        rope->object = item && item->child ? item : NULL;
    }
    const cJSON *member;
    cJSON_ArrayForEach(member, rope->object) if (cJSON_IsObject(member)) return hf_config_refuse(
        r, rope->name, rope->object, "one rotary embedding for all layers");
    return 0;
}

static int refuse_absent(struct HfReading *r, const struct RopeObject *rope, const char *key) {
    return error_set(r->e, -EINVAL, E_HF_CONFIG, "%s: %s has no %s: expected a number above 0",
                     r->path, rope->name, key);
}

// Reads a number above 0; *value is unchanged if it is absent or null.
static int read_number(struct HfReading *r, const cJSON *object, const char *key, double *value) {
    const cJSON *item = hf_config_value(object, key);
    if (!item)
        return 0;
    *value = item->valuedouble;
    return cJSON_IsNumber(item) && *value > 0 && *value < INFINITY
               ? 0
               : hf_config_refuse(r, key, item, "a number above 0");
}

// Refuses a partial_rotary_factor, which transformers ignores if there is no scaling.
static int check_partial_factor(struct HfReading *r, const struct RopeObject *rope) {
    static const char KEY[] = "partial_rotary_factor";
    const cJSON *item = hf_config_value(rope->object, KEY);
    item = item ? item : hf_config_value(r->config, KEY);
    return item && item->valuedouble != 1 ? hf_config_refuse(r, KEY, item, "1") : 0;
}

// Reads a number above 0 that must be present.
static int need_number(struct HfReading *r, const struct RopeObject *rope, const char *key,
                       double *value) {
    *value = 0;
    int err = read_number(r, rope->object, key, value);
    return err || *value > 0 ? err : refuse_absent(r, rope, key);
}

// Reads the sequence length before scaling; the key outside of the object takes precedence.
static int read_original(struct HfReading *r, const struct RopeObject *rope, double *value) {
    static const char KEY[] = "original_max_position_embeddings";
    bool outside = hf_config_value(r->config, KEY) != NULL;
    *value = rope->positions;
    int err = read_number(r, outside ? r->config : rope->object, KEY, value);
    if (!err && *value != floor(*value))
        return hf_config_refuse(r, KEY, hf_config_value(outside ? r->config : rope->object, KEY),
                                "a whole number above 0");
    return err;
}

static int read_llama3(struct HfReading *r, const struct RopeObject *rope, char **rope_scaling) {
    double factor, low, high, original;
    int err = need_number(r, rope, "factor", &factor);
    if (!err)
        err = need_number(r, rope, "low_freq_factor", &low);
    if (!err)
        err = need_number(r, rope, "high_freq_factor", &high);
    if (!err)
        err = read_original(r, rope, &original);
    if (!err)
        *rope_scaling = base_format("llama3:%.17g:%.17g:%.17g:%.0f", factor, low, high, original);
    return err;
}

// Reads attention_factor, or computes YaRN's, from mscale and mscale_all_dim if both are given.
static int read_attention(struct HfReading *r, const struct RopeObject *rope, double factor,
                          double *attention) {
    double mscale = 0, mscale_all_dim = 0;
    int err = read_number(r, rope->object, "mscale", &mscale);
    if (!err)
        err = read_number(r, rope->object, "mscale_all_dim", &mscale_all_dim);
    double log_factor = factor > 1 ? 0.1 * log(factor) : 0;
    *attention = log_factor + 1;
    if (mscale > 0 && mscale_all_dim > 0)
        *attention = (log_factor * mscale + 1) / (log_factor * mscale_all_dim + 1);
    return err ? err : read_number(r, rope->object, "attention_factor", attention);
}

// Reads YaRN's numbers. A factor that is null is the ratio of the two lengths.
static int read_yarn(struct HfReading *r, const struct RopeObject *rope, char **rope_scaling) {
    const cJSON *truncate = cJSON_GetObjectItemCaseSensitive(rope->object, "truncate");
    double factor = 0, original, fast = 32, slow = 1, attention;
    int err = read_original(r, rope, &original);
    if (!err && cJSON_HasObjectItem(rope->object, "factor"))
        factor = rope->positions / original;
    if (!err)
        err = read_number(r, rope->object, "factor", &factor);
    if (!err && factor <= 0)
        err = refuse_absent(r, rope, "factor");
    if (!err)
        err = read_number(r, rope->object, "beta_fast", &fast);
    if (!err)
        err = read_number(r, rope->object, "beta_slow", &slow);
    if (!err)
        err = read_attention(r, rope, factor, &attention);
    if (!err && truncate && !cJSON_IsBool(truncate))
        err = hf_config_refuse(r, "truncate", truncate, "true or false");
    if (err)
        return err;
    bool exact = cJSON_IsFalse(truncate);
    double usual_attention = factor > 1 ? 0.1 * log(factor) + 1 : 1;
    bool usual = fast == 32 && slow == 1 && attention == usual_attention && !exact;
    *rope_scaling = usual ? base_format("yarn:%.17g:%.0f", factor, original)
                          : base_format("yarn:%.17g:%.0f:%.17g:%.17g:%.17g%s", factor, original,
                                        fast, slow, attention, exact ? ":exact" : "");
    return 0;
}

static int read_linear(struct HfReading *r, const struct RopeObject *rope, char **rope_scaling) {
    double factor;
    int err = need_number(r, rope, "factor", &factor);
    if (!err)
        *rope_scaling = base_format("linear:%.17g", factor);
    return err;
}

static int read_default(struct HfReading *r, const struct RopeObject *rope, char **rope_scaling) {
    (void)r, (void)rope;
    *rope_scaling = base_format("none");
    return 0;
}

static const struct {
    const char *type;
    int (*read)(struct HfReading *r, const struct RopeObject *rope, char **rope_scaling);
} types[] = {{"default", read_default},
             {"linear", read_linear},
             {"llama3", read_llama3},
             {"yarn", read_yarn}};

static int read_scaling(struct HfReading *r, const struct RopeObject *rope) {
    const cJSON *type = hf_config_value(rope->object, "rope_type");
    type = type ? type : hf_config_value(rope->object, "type");
    const char *name = cJSON_IsString(type) ? type->valuestring : type ? "?" : "default";
    char *rope_scaling = NULL;
    int err = 0;
    bool known = false;
    for (size_t i = 0; i < sizeof types / sizeof types[0] && !known; i++) {
        known = strcmp(types[i].type, name) == 0;
        err = known && i ? check_partial_factor(r, rope) : 0; // the first type is no scaling
        if (known && !err)
            err = types[i].read(r, rope, &rope_scaling);
    }
    if (!known)
        return hf_config_refuse(r, rope->name, rope->object,
                                "rope_type default, linear, llama3 or yarn");
    if (rope_scaling)
        cJSON_AddStringToObject(r->flags, "rope-scaling", rope_scaling);
    free(rope_scaling);
    return err;
}

int hf_config_rope(struct HfReading *r, double positions) {
    struct RopeObject rope = {.positions = positions};
    double theta = 10000;
    int err = find_rope(r, &rope);
    if (!err)
        err = read_number(r, r->config, "rope_theta", &theta);
    if (!err)
        err = read_number(r, rope.object, "rope_theta", &theta);
    if (err)
        return err;
    cJSON_AddNumberToObject(r->flags, "rope-theta", theta);
    return read_scaling(r, &rope);
}

bool hf_config_rope_differs(const cJSON *config) {
    char *flags[2];
    for (int i = 0; i < 2; i++) {
        const cJSON *item = hf_config_value(config, rope_names[i]);
        if (!item || !item->child)
            return false;
    }
    for (int i = 0; i < 2; i++) {
        cJSON *copy = cJSON_Duplicate(config, true);
        struct Error ignored;
        // the class is not read, and the length is a default of both
        struct HfReading r = {copy, "", HF_LLAMA, cJSON_CreateObject(), &ignored};
        cJSON_DeleteItemFromObjectCaseSensitive(copy, rope_names[!i]);
        hf_config_rope(&r, 1);
        flags[i] = cJSON_PrintUnformatted(r.flags);
        cJSON_Delete(r.flags);
        cJSON_Delete(copy);
    }
    bool differs = strcmp(flags[0], flags[1]) != 0;
    cJSON_free(flags[0]);
    cJSON_free(flags[1]);
    return differs;
}

// ---- writing ------------------------------------------------------------------------------------

static void add_numbers(cJSON *rope, const char *type, const char *const *keys,
                        const double *values, int n) {
    cJSON_AddStringToObject(rope, "rope_type", type);
    for (int i = 0; i < n; i++)
        cJSON_AddNumberToObject(rope, keys[i], values[i]);
}

cJSON *hf_config_rope_object(const cJSON *flags, bool with_theta) {
    static const char ORIGINAL[] = "original_max_position_embeddings";
    static const char *const llama3[] = {"factor", "low_freq_factor", "high_freq_factor", ORIGINAL};
    static const char *const yarn[] = {"factor", ORIGINAL, "beta_fast", "beta_slow",
                                       "attention_factor"};
    const char *text = json_text(flags, "rope-scaling");
    cJSON *rope = cJSON_CreateObject();
    double x[5];
    int n = 0;
    if (with_theta)
        cJSON_AddNumberToObject(rope, "rope_theta", json_number(flags, "rope-theta"));
    if ((n = sscanf(text, "linear:%lf", x)) == 1)
        add_numbers(rope, "linear", llama3, x, n);
    else if ((n = sscanf(text, "llama3:%lf:%lf:%lf:%lf", x, x + 1, x + 2, x + 3)) == 4)
        add_numbers(rope, "llama3", llama3, x, n);
    else if ((n = sscanf(text, "yarn:%lf:%lf:%lf:%lf:%lf", x, x + 1, x + 2, x + 3, x + 4)) >= 2)
        add_numbers(rope, "yarn", yarn, x, n);
    else
        cJSON_AddStringToObject(rope, "rope_type", "default");
    if (strstr(text, ":exact"))
        cJSON_AddBoolToObject(rope, "truncate", false);
    return rope;
}
