// Reads config.json as flags: see config.h. First the table of keys, then windows, which have more
// than one spelling. config_rope.c reads rotary embedding. (transformers 4 and 5.)
#include "data/hf/config.h"

#include "data/hf/config_read.h"
#include "data/json.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ_LEN_USUAL = 2048 }; // tokens, as in presets.c

// The values of model_type, which are those of --family.
static const char *const class_name[HF_NCLASS] = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};

// A number of config.json that is a flag's value, and its default. NAN: the class has no such key;
// 0: if the key is absent or null, the value follows from others (hf_config_complete).
static const struct Number {
    const char *flag, *key[2]; // of gpt2, and of all others
    double otherwise[HF_NCLASS];
} numbers[] = {
    {"layers", {"n_layer", "num_hidden_layers"}, {12, 32, 32, 32, 32}},
    {"heads", {"n_head", "num_attention_heads"}, {12, 32, 32, 32, 32}},
    {"channels", {"n_embd", "hidden_size"}, {768, 4096, 4096, 4096, 4096}},
    {"vocab", {"vocab_size", "vocab_size"}, {50257, 32000, 32000, 151936, 151936}},
    {"ffn", {"n_inner", "intermediate_size"}, {0, 11008, 14336, 22016, 22016}},
    {"norm-eps", {"layer_norm_epsilon", "rms_norm_eps"}, {1e-5, 1e-6, 1e-6, 1e-6, 1e-6}},
    {"positions", {"n_positions", NULL}, {1024, NAN, NAN, NAN, NAN}},
    {"seq-len", {"n_positions", "max_position_embeddings"}, {1024, 2048, 131072, 32768, 32768}},
    {"kv-heads", {NULL, "num_key_value_heads"}, {NAN, 0, 8, 32, 32}},
    {"head-size", {NULL, "head_dim"}, {NAN, 0, 0, 0, 128}},
};

// Keys of gpt2, each with its synonym. If a file has both, the synonym, the second of the pair,
// takes precedence, as in transformers.
static const char *const gpt2_synonyms[][2] = {{"n_layer", "num_hidden_layers"},
                                               {"n_head", "num_attention_heads"},
                                               {"n_embd", "hidden_size"},
                                               {"n_positions", "max_position_embeddings"}};

// Keys that would change the computation: each may be absent, or have one of these values. A
// boolean must be false, unless "true" is listed.
static const struct Must {
    const char *key, *values;
    bool of[HF_NCLASS];
} musts[] = {
    {"activation_function", "gelu_new gelu_pytorch_tanh", {[HF_GPT2] = true}},
    {"scale_attn_weights", "true", {[HF_GPT2] = true}},
    {"scale_attn_by_inverse_layer_idx", "false", {[HF_GPT2] = true}},
    {"add_cross_attention", "false", {[HF_GPT2] = true}},
    {"hidden_act", "silu", {false, true, true, true, true}},
    {"attention_bias", "false", {false, true, true, false, true}},
    {"mlp_bias", "false", {false, true, true, true, true}},
    {"is_causal", "true", {true, true, true, true, true}},
    {"is_encoder_decoder", "false", {true, true, true, true, true}},
    {"quantization_config", "", {true, true, true, true, true}},
    {"per_layer_config", "", {true, true, true, true, true}},
};

const cJSON *hf_config_value(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

int hf_config_refuse(struct HfReading *r, const char *key, const cJSON *item,
                     const char *expected) {
    char *text = cJSON_PrintUnformatted(item);
    int err = error_set(r->e, -EINVAL, E_HF_CONFIG, "%s: %s %.60s: expected %s", r->path, key,
                        text ? text : "?", expected);
    cJSON_free(text);
    return err;
}

static int read_class(struct HfReading *r) {
    const cJSON *type = hf_config_value(r->config, "model_type");
    static const char expected[] = "gpt2, llama, mistral, qwen2 or qwen3";
    if (!type)
        return error_set(r->e, -EINVAL, E_HF_CONFIG, "%s: model_type is missing: expected %s",
                         r->path, expected);
    for (int c = 0; cJSON_IsString(type) && c < HF_NCLASS; c++)
        if (strcmp(type->valuestring, class_name[c]) == 0) {
            r->class = (enum HfClass)c;
            cJSON_AddStringToObject(r->flags, "family", class_name[c]);
            return 0;
        }
    return hf_config_refuse(r, "model_type", type, expected);
}

static int read_number(struct HfReading *r, const struct Number *n) {
    const char *key = n->key[r->class != HF_GPT2];
    double value = n->otherwise[r->class];
    if (isnan(value))
        return 0;
    for (size_t i = 0; i < sizeof gpt2_synonyms / sizeof gpt2_synonyms[0] && r->class == HF_GPT2;
         i++)
        if (strcmp(key, gpt2_synonyms[i][0]) == 0 &&
            hf_config_value(r->config, gpt2_synonyms[i][1]))
            key = gpt2_synonyms[i][1];
    const cJSON *item = hf_config_value(r->config, key);
    bool whole = strcmp(n->flag, "norm-eps") != 0;
    if (item) {
        value = item->valuedouble;
        if (!cJSON_IsNumber(item) || !(value > 0) || value > 0x1p40 ||
            (whole && value != floor(value)))
            return hf_config_refuse(r, key, item,
                                    whole ? "a whole number from 1 to 2^40" : "a number above 0");
    }
    cJSON_AddNumberToObject(r->flags, n->flag, value);
    return 0;
}

void hf_config_complete(struct cJSON *flags) {
    double heads = json_number(flags, "heads"), channels = json_number(flags, "channels");
    bool learned = strcmp(json_text(flags, "family"), class_name[HF_GPT2]) == 0;
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

// True if `word`, which is not empty, is one of a list that is separated by spaces.
static bool is_among(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    return false;
}

static int check_must(struct HfReading *r, const struct Must *m) {
    const cJSON *item = m->of[r->class] ? hf_config_value(r->config, m->key) : NULL;
    if (!item)
        return 0;
    const char *text = cJSON_IsString(item)  ? item->valuestring
                       : cJSON_IsTrue(item)  ? "true"
                       : cJSON_IsFalse(item) ? "false"
                                             : "?";
    if (*text && is_among(m->values, text))
        return 0;
    return hf_config_refuse(r, m->key, item,
                            *m->values ? m->values : "none; give a model without it");
}

// ---- windows ----

// Counts the layers that have a window, and all that layer_types names. Our window is one for all.
static int count_sliding_layers(struct HfReading *r, const cJSON *types, size_t *sliding,
                                size_t *named) {
    const cJSON *item;
    if (!cJSON_IsArray(types))
        return hf_config_refuse(r, "layer_types", types, "a list");
    *sliding = *named = 0;
    cJSON_ArrayForEach(item, types) {
        const char *type = cJSON_IsString(item) ? item->valuestring : "";
        bool slides = strcmp(type, "sliding_attention") == 0;
        if (!slides && strcmp(type, "full_attention") != 0)
            return hf_config_refuse(r, "layer_types", types,
                                    "full_attention or sliding_attention in all layers");
        *sliding += slides;
        ++*named;
    }
    return 0;
}

// Counts Qwen's layers with a window: those after the first max_window_layers (default: 28).
static int count_qwen_sliding_layers(struct HfReading *r, size_t layers, size_t *sliding) {
    const cJSON *item = hf_config_value(r->config, "max_window_layers");
    double full = item ? item->valuedouble : 28;
    if (item && !(cJSON_IsNumber(item) && full >= 0 && full == floor(full)))
        return hf_config_refuse(r, "max_window_layers", item, "a whole number");
    *sliding = full < (double)layers ? layers - (size_t)full : 0;
    if (*sliding && *sliding < layers)
        return hf_config_refuse(r, "max_window_layers", item, "a window in all layers, or none");
    return 0;
}

// Reads the window of sliding layers; *width 0: there is none, as for null. An absent key counts as
// transformers' default, 4096.
static int read_width(struct HfReading *r, double *width) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(r->config, "sliding_window");
    const cJSON *use = hf_config_value(r->config, "use_sliding_window");
    bool qwen = r->class == HF_QWEN2 || r->class == HF_QWEN3;
    *width = item ? item->valuedouble : 4096;
    if (qwen && use && !cJSON_IsBool(use))
        return hf_config_refuse(r, "use_sliding_window", use, "true or false");
    if (cJSON_IsNull(item) || (qwen && !cJSON_IsTrue(use)))
        *width = 0;
    else if (item && !(cJSON_IsNumber(item) && *width >= 1 && *width == floor(*width)))
        return hf_config_refuse(r, "sliding_window", item, "a whole number above 0, or null");
    return 0;
}

// Reads the window. GPT-2 and Llama have none, whatever the file says. Mistral has one in all
// layers, and Qwen, with use_sliding_window, in all after the first max_window_layers, unless
// layer_types says otherwise.
static int read_window(struct HfReading *r) {
    const cJSON *types = hf_config_value(r->config, "layer_types");
    bool mistral = r->class == HF_MISTRAL;
    size_t layers = (size_t)json_number(r->flags, "layers"), sliding = layers, named = layers;
    double width;
    if (r->class == HF_GPT2 || r->class == HF_LLAMA)
        return 0;
    int err = read_width(r, &width);
    if (!err && types)
        err = count_sliding_layers(r, types, &sliding, &named);
    else if (!err && width > 0 && !mistral)
        err = count_qwen_sliding_layers(r, layers, &sliding);
    if (err)
        return err;
    if (sliding && sliding < named)
        return hf_config_refuse(r, "layer_types", types, "one kind of attention in all layers");
    if (types && sliding && !(width > 0))
        return hf_config_refuse(r, "layer_types", types,
                                "full_attention alone, as no sliding_window is in use");
    if (sliding && width > 0)
        cJSON_AddNumberToObject(r->flags, "attention-window", width);
    return 0;
}

static int read_tie(struct HfReading *r) {
    const cJSON *tie = hf_config_value(r->config, "tie_word_embeddings");
    if (tie && !cJSON_IsBool(tie))
        return hf_config_refuse(r, "tie_word_embeddings", tie, "true or false");
    bool tied = tie ? cJSON_IsTrue(tie) : r->class == HF_GPT2;
    cJSON_AddStringToObject(r->flags, "tie", tied ? "on" : "off");
    return 0;
}

static void shorten_seq_len(cJSON *flags) {
    cJSON *length = cJSON_GetObjectItemCaseSensitive(flags, "seq-len");
    if (length->valuedouble > SEQ_LEN_USUAL)
        cJSON_SetNumberValue(length, SEQ_LEN_USUAL);
}

int hf_config_flags(const struct cJSON *config, const char *path, char **text, struct Error *e) {
    struct HfReading r = {config, path, HF_NCLASS, cJSON_CreateObject(), e};
    int err = read_class(&r);
    for (size_t i = 0; i < sizeof musts / sizeof musts[0] && !err; i++)
        err = check_must(&r, &musts[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && !err; i++)
        err = read_number(&r, &numbers[i]);
    if (!err && r.class != HF_GPT2)
        err = hf_config_rope(&r, json_number(r.flags, "seq-len"));
    if (!err)
        err = read_window(&r);
    if (!err)
        hf_config_complete(r.flags);
    if (!err)
        shorten_seq_len(r.flags);
    if (!err)
        err = read_tie(&r);
    *text = err ? NULL : cJSON_PrintUnformatted(r.flags);
    cJSON_Delete(r.flags);
    return err;
}

// ---- ignored keys ----

// Appends each dropout key of the class whose value is above 0, and the value, to *text. An absent
// key counts as transformers' default: 0.1 for gpt2, else 0.
static void append_dropout_keys(const struct HfReading *r, char **text) {
    static const char *const gpt2[] = {"attn_pdrop", "embd_pdrop", "resid_pdrop", NULL};
    static const char *const others[] = {"attention_dropout", NULL};
    const char *const *key = r->class == HF_GPT2 ? gpt2 : others;
    for (; *key; key++) {
        const cJSON *item = hf_config_value(r->config, *key);
        double value = item ? item->valuedouble : r->class == HF_GPT2 ? 0.1 : 0;
        if (value > 0)
            base_append(text, "%s%s %.9g", **text ? ", " : "", *key, value);
    }
}

char *hf_config_remarks(const struct cJSON *config, const char *path) {
    struct Error ignored;
    struct HfReading r = {config, path, HF_NCLASS, cJSON_CreateObject(), &ignored};
    char *dropouts = base_format("%s", ""), *remarks = base_format("%s", "");
    if (!read_class(&r))
        append_dropout_keys(&r, &dropouts);
    if (r.class != HF_GPT2 && hf_config_rope_differs(config))
        base_append(&remarks,
                    "%s: rope_scaling counts, as in transformers; rope_parameters says otherwise; "
                    "keep one of them\n",
                    path);
    if (*dropouts)
        base_append(&remarks, "%s: %s: there is no dropout here\n", path, dropouts);
    cJSON_Delete(r.flags);
    free(dropouts);
    return remarks;
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

// True if the flag must be equal in two models: seq-len may differ, and only gpt2 has positions.
static bool is_compared(const cJSON *flags, const char *flag) {
    const cJSON *family = cJSON_GetObjectItemCaseSensitive(flags, "family");
    if (strcmp(flag, "positions") == 0)
        return strcmp(family->valuestring, class_name[HF_GPT2]) == 0;
    return strcmp(flag, "seq-len") != 0;
}

// True if two values are equal. For "tie", "auto" is "on".
static bool same_value(const cJSON *a, const cJSON *b) {
    if (strcmp(a->string, "tie") == 0)
        return (strcmp(a->valuestring, "off") == 0) == (strcmp(b->valuestring, "off") == 0);
    return cJSON_IsString(a) ? hf_config_same_text(a->valuestring, b->valuestring)
                             : a->valuedouble == b->valuedouble;
}

int hf_config_check_same(const struct cJSON *model, const char *where, const struct cJSON *run,
                         const char *cure, struct Error *e) {
    const cJSON *theirs;
    cJSON_ArrayForEach(theirs, model) {
        const cJSON *ours = cJSON_GetObjectItemCaseSensitive(run, theirs->string);
        if (!ours || !is_compared(model, theirs->string))
            continue;
        bool unknown = strcmp(theirs->string, "vocab") == 0 && ours->valuedouble == 0;
        if (unknown || same_value(theirs, ours))
            continue;
        char *a = cJSON_PrintUnformatted(theirs), *b = cJSON_PrintUnformatted(ours);
        int err =
            error_set(e, -EINVAL, E_INIT_FLAG, "%s has --%s %s, but this run's model has %s; %s",
                      where, theirs->string, a, b, cure);
        cJSON_free(a);
        cJSON_free(b);
        return err;
    }
    return 0;
}
