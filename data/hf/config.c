// From config.json to flags: see config.h. The table of keys comes first, then rotary embedding and
// windows, which are spelled in more ways than one. (transformers 4 and 5.)
#include "data/hf/config.h"

#include "data/json_members.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ_LEN_USUAL = 2048 }; // tokens, as in presets.c

enum Class { GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, NCLASS };
// As model_type says it, which is as --family does.
static const char *const class_name[NCLASS] = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};

struct Reading {
    const cJSON *config;
    const char *path;
    enum Class class;
    cJSON *flags;
    struct Error *e;
};

// A number of config.json that is a flag's value. NAN: the class has no such key; 0: where the key
// is absent or null the value follows from others (hf_config_complete).
static const struct Number {
    const char *flag, *key[2]; // of gpt2, and of all others
    double otherwise[NCLASS];
} numbers[] = {
    {"layers", {"n_layer", "num_hidden_layers"}, {12, 32, 32, 32, 32}},
    {"heads", {"n_head", "num_attention_heads"}, {12, 32, 32, 32, 32}},
    {"channels", {"n_embd", "hidden_size"}, {768, 4096, 4096, 4096, 4096}},
    {"vocab", {"vocab_size", "vocab_size"}, {50257, 32000, 32000, 151936, 151936}},
    {"ffn", {"n_inner", "intermediate_size"}, {0, 11008, 14336, 22016, 22016}},
    {"norm-eps", {"layer_norm_epsilon", "rms_norm_eps"}, {1e-5, 1e-6, 1e-6, 1e-6, 1e-6}},
    {"positions", {"n_positions", NULL}, {1024, NAN, NAN, NAN, NAN}},
    {"seq-len", {"n_positions", "max_position_embeddings"}, {1024, 2048, 2048, 2048, 2048}},
    {"kv-heads", {NULL, "num_key_value_heads"}, {NAN, 0, 8, 32, 32}},
    {"head-size", {NULL, "head_dim"}, {NAN, 0, 0, 0, 128}},
};

// Keys with which our computation would be another: each may be absent, or have one of these
// values. Of booleans: false, or true where it is written so.
static const struct Must {
    const char *key, *values;
    bool of[NCLASS];
} musts[] = {
    {"activation_function", "gelu_new gelu_pytorch_tanh", {[GPT2] = true}},
    {"scale_attn_weights", "true", {[GPT2] = true}},
    {"scale_attn_by_inverse_layer_idx", "false", {[GPT2] = true}},
    {"add_cross_attention", "false", {[GPT2] = true}},
    {"hidden_act", "silu", {false, true, true, true, true}},
    {"attention_bias", "false", {false, true, true, false, true}},
    {"mlp_bias", "false", {false, true, true, true, true}},
    {"use_sliding_window", "false", {[QWEN2] = true, [QWEN3] = true}},
    {"is_encoder_decoder", "false", {true, true, true, true, true}},
    {"quantization_config", "", {true, true, true, true, true}},
};

static const cJSON *value_of(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

// The value as text, for an error line. free() it.
static int refuse(struct Reading *r, const char *key, const cJSON *item, const char *expected) {
    char *text = cJSON_PrintUnformatted(item);
    int err = error_set(r->e, -EINVAL, "%s: %s %.60s: expected %s", r->path, key, text ? text : "?",
                        expected);
    cJSON_free(text);
    return err;
}

static int read_class(struct Reading *r) {
    const cJSON *type = value_of(r->config, "model_type");
    static const char expected[] = "gpt2, llama, mistral, qwen2 or qwen3";
    if (!type)
        return error_set(r->e, -EINVAL, "%s: model_type is missing: expected %s", r->path,
                         expected);
    for (int c = 0; cJSON_IsString(type) && c < NCLASS; c++)
        if (strcmp(type->valuestring, class_name[c]) == 0) {
            r->class = (enum Class)c;
            cJSON_AddStringToObject(r->flags, "family", class_name[c]);
            return 0;
        }
    return refuse(r, "model_type", type, expected);
}

static int read_number(struct Reading *r, const struct Number *n) {
    const char *key = n->key[r->class != GPT2];
    double value = n->otherwise[r->class];
    if (isnan(value))
        return 0;
    const cJSON *item = value_of(r->config, key);
    bool whole = strcmp(n->flag, "norm-eps") != 0;
    if (item) {
        value = item->valuedouble;
        if (!cJSON_IsNumber(item) || !(value > 0) || value > 0x1p40 ||
            (whole && value != floor(value)))
            return refuse(r, key, item, whole ? "a whole number above 0" : "a number above 0");
    }
    cJSON_AddNumberToObject(r->flags, n->flag, value);
    return 0;
}

void hf_config_complete(struct cJSON *flags) {
    double heads = json_number(flags, "heads"), channels = json_number(flags, "channels");
    bool learned = strcmp(json_text(flags, "family"), class_name[GPT2]) == 0;
    const struct {
        const char *flag;
        double value;
    } rows[] = {{"kv-heads", heads},   {"head-size", floor(channels / heads)},
                {"ffn", 4 * channels}, {"positions", learned ? json_number(flags, "seq-len") : 0},
                {"norm-eps", 1e-5},    {"rope-theta", 1e4}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cJSON *item = cJSON_GetObjectItemCaseSensitive(flags, rows[i].flag);
        if (!item)
            cJSON_AddNumberToObject(flags, rows[i].flag, rows[i].value);
        else if (item->valuedouble == 0)
            cJSON_SetNumberValue(item, rows[i].value);
    }
}

// Is the word one of some with spaces between them?
static bool is_among(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    return false;
}

static int check_must(struct Reading *r, const struct Must *m) {
    const cJSON *item = m->of[r->class] ? value_of(r->config, m->key) : NULL;
    if (!item)
        return 0;
    const char *text = cJSON_IsString(item)  ? item->valuestring
                       : cJSON_IsTrue(item)  ? "true"
                       : cJSON_IsFalse(item) ? "false"
                                             : "?";
    if (*text && is_among(m->values, text))
        return 0;
    return refuse(r, m->key, item, *m->values ? m->values : "none: such weights cannot be read");
}

// ---- rotary embedding ----

// A number that the object, which is the value of `name`, must have.
static int read_member(struct Reading *r, const char *name, const cJSON *object, const char *key,
                       double *value) {
    const cJSON *item = value_of(object, key);
    if (!item)
        return error_set(r->e, -EINVAL, "%s: %s has no %s: expected a number above 0", r->path,
                         name, key);
    *value = item->valuedouble;
    return cJSON_IsNumber(item) && *value > 0 ? 0 : refuse(r, key, item, "a number above 0");
}

static int read_rope_scaling(struct Reading *r, const cJSON *rope, const char *name) {
    const cJSON *type = value_of(rope, "rope_type");
    type = type ? type : value_of(rope, "type");
    const char *kind = cJSON_IsString(type) ? type->valuestring : type ? "?" : "default";
    static const char *const keys[] = {"factor", "low_freq_factor", "high_freq_factor",
                                       "original_max_position_embeddings"};
    double n[sizeof keys / sizeof keys[0]];
    bool plain = !strcmp(kind, "default"), linear = !strcmp(kind, "linear");
    size_t needed = plain ? 0 : linear ? 1 : sizeof keys / sizeof keys[0];
    if (!plain && !linear && strcmp(kind, "llama3") != 0)
        return refuse(r, name, rope, "rope_type default, linear or llama3");
    for (size_t i = 0; i < needed; i++) {
        int err = read_member(r, name, rope, keys[i], &n[i]);
        if (err)
            return err;
    }
    char *text = plain    ? base_format("none")
                 : linear ? base_format("linear:%.17g", n[0])
                          : base_format("llama3:%.17g:%.17g:%.17g:%.0f", n[0], n[1], n[2], n[3]);
    cJSON_AddStringToObject(r->flags, "rope-scaling", text);
    free(text);
    return 0;
}

// transformers 5 writes rope_parameters, with the base in it; 4 wrote rope_theta and rope_scaling.
static int read_rope(struct Reading *r) {
    if (r->class == GPT2)
        return 0;
    const cJSON *rope = value_of(r->config, "rope_parameters");
    const char *name = rope ? "rope_parameters" : "rope_scaling";
    const cJSON *theta = value_of(rope, "rope_theta");
    rope = rope ? rope : value_of(r->config, name);
    theta = theta ? theta : value_of(r->config, "rope_theta");
    if (rope && !cJSON_IsObject(rope))
        return refuse(r, name, rope, "an object");
    if (theta && !(cJSON_IsNumber(theta) && theta->valuedouble > 0))
        return refuse(r, "rope_theta", theta, "a number above 0");
    cJSON_AddNumberToObject(r->flags, "rope-theta", theta ? theta->valuedouble : 10000);
    return read_rope_scaling(r, rope, name);
}

// ---- windows ----

// layer_types says for each layer whether its attention has a window; ours is one for all.
static int check_layer_types(struct Reading *r, bool *window) {
    const cJSON *types = value_of(r->config, "layer_types"), *item;
    size_t full = 0, sliding = 0, others = 0;
    if (types && !cJSON_IsArray(types))
        return refuse(r, "layer_types", types, "a list");
    cJSON_ArrayForEach(item, types) {
        const char *type = cJSON_IsString(item) ? item->valuestring : "";
        bool is_full = strcmp(type, "full_attention") == 0;
        bool slides = strcmp(type, "sliding_attention") == 0;
        full += is_full;
        sliding += slides;
        others += !is_full && !slides;
    }
    if (others || (full && sliding))
        return refuse(r, "layer_types", types, "one kind of attention in all layers");
    *window = full ? false : sliding ? true : *window;
    return 0;
}

static int read_window(struct Reading *r) {
    bool window = r->class == MISTRAL;
    int err = check_layer_types(r, &window);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(r->config, "sliding_window");
    if (err || !window || cJSON_IsNull(item))
        return err;
    if (item && !(cJSON_IsNumber(item) && item->valuedouble >= 1 &&
                  item->valuedouble == floor(item->valuedouble)))
        return refuse(r, "sliding_window", item, "a whole number above 0, or null");
    cJSON_AddNumberToObject(r->flags, "attention-window", item ? item->valuedouble : 4096);
    return 0;
}

static int read_tie(struct Reading *r) {
    const cJSON *tie = value_of(r->config, "tie_word_embeddings");
    if (tie && !cJSON_IsBool(tie))
        return refuse(r, "tie_word_embeddings", tie, "true or false");
    bool tied = tie ? cJSON_IsTrue(tie) : r->class == GPT2;
    cJSON_AddStringToObject(r->flags, "tie", tied ? "on" : "off");
    return 0;
}

// A model of very long sequences is trained on shorter ones where nobody says how long they are.
static void shorten(cJSON *flags) {
    cJSON *length = cJSON_GetObjectItemCaseSensitive(flags, "seq-len");
    if (length->valuedouble > SEQ_LEN_USUAL)
        cJSON_SetNumberValue(length, SEQ_LEN_USUAL);
}

int hf_config_flags(const struct cJSON *config, const char *path, char **text, struct Error *e) {
    struct Reading r = {config, path, NCLASS, cJSON_CreateObject(), e};
    int err = read_class(&r);
    for (size_t i = 0; i < sizeof musts / sizeof musts[0] && !err; i++)
        err = check_must(&r, &musts[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && !err; i++)
        err = read_number(&r, &numbers[i]);
    if (!err)
        err = read_rope(&r);
    if (!err)
        err = read_window(&r);
    if (!err)
        hf_config_complete(r.flags);
    if (!err)
        shorten(r.flags);
    if (!err)
        err = read_tie(&r);
    *text = err ? NULL : cJSON_PrintUnformatted(r.flags);
    cJSON_Delete(r.flags);
    return err;
}

// ---- two models ----

bool hf_config_same_text(const char *a, const char *b) {
    while (*a && *b) {
        char *behind_a = (char *)a + 1, *behind_b = (char *)b + 1;
        bool numbers = isdigit((unsigned char)*a) && isdigit((unsigned char)*b);
        if (numbers ? strtod(a, &behind_a) != strtod(b, &behind_b) : *a != *b)
            return false;
        a = behind_a;
        b = behind_b;
    }
    return *a == *b;
}

// Sequences may be shorter than a model's own, and gpt2 alone has an embedding of positions.
static bool is_compared(const cJSON *flags, const char *flag) {
    const cJSON *family = cJSON_GetObjectItemCaseSensitive(flags, "family");
    if (strcmp(flag, "positions") == 0)
        return strcmp(family->valuestring, class_name[GPT2]) == 0;
    return strcmp(flag, "seq-len") != 0;
}

// A head is tied unless it is said to be "off": "auto" is "on".
static bool same_value(const cJSON *a, const cJSON *b) {
    if (strcmp(a->string, "tie") == 0)
        return (strcmp(a->valuestring, "off") == 0) == (strcmp(b->valuestring, "off") == 0);
    return cJSON_IsString(a) ? hf_config_same_text(a->valuestring, b->valuestring)
                             : a->valuedouble == b->valuedouble;
}

int hf_config_check_same(const struct cJSON *model, const char *where, const struct cJSON *run,
                         struct Error *e) {
    const cJSON *theirs;
    cJSON_ArrayForEach(theirs, model) {
        const cJSON *ours = cJSON_GetObjectItemCaseSensitive(run, theirs->string);
        if (!ours || !is_compared(model, theirs->string))
            continue;
        bool unknown = strcmp(theirs->string, "vocab") == 0 && ours->valuedouble == 0;
        if (unknown || same_value(theirs, ours))
            continue;
        char *a = cJSON_PrintUnformatted(theirs), *b = cJSON_PrintUnformatted(ours);
        int err = error_set(e, -EINVAL, "%s has --%s %s; this run's model has %s", where,
                            theirs->string, a, b);
        cJSON_free(a);
        cJSON_free(b);
        return err;
    }
    return 0;
}
