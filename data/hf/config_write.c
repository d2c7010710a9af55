// Writes flags as a config.json: see config.h. Rotary embedding and the dtype are written twice,
// for transformers 4 and for 5; each ignores the keys of the other.
#include "data/hf/config.h"

#include "data/hf/config_read.h"
#include "data/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *torch_name(enum Dtype d) {
    return d == F32 ? "float32" : d == BF16 ? "bfloat16" : "float16";
}

void hf_config_sizes(const struct cJSON *flags, struct HfSizes *s) {
    *s = (struct HfSizes){.channels = (size_t)json_number(flags, "channels"),
                          .heads = (size_t)json_number(flags, "heads"),
                          .kv_heads = (size_t)json_number(flags, "kv-heads"),
                          .head_size = (size_t)json_number(flags, "head-size"),
                          .ffn = (size_t)json_number(flags, "ffn"),
                          .vocab = (size_t)json_number(flags, "vocab"),
                          .positions = (size_t)json_number(flags, "positions")};
}

static void set_text(cJSON *object, const char *key, const char *value) {
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddStringToObject(object, key, value);
}

char *hf_config_with_dtype(const struct cJSON *config, enum Dtype dtype) {
    cJSON *copy = cJSON_Duplicate(config, true);
    set_text(copy, "dtype", torch_name(dtype));
    set_text(copy, "torch_dtype", torch_name(dtype));
    return json_file_text(copy);
}

// ---- a configuration of our own ----

static void write_gpt2(cJSON *config, const cJSON *flags) {
    cJSON_AddNumberToObject(config, "n_layer", json_number(flags, "layers"));
    cJSON_AddNumberToObject(config, "n_head", json_number(flags, "heads"));
    cJSON_AddNumberToObject(config, "n_embd", json_number(flags, "channels"));
    cJSON_AddNumberToObject(config, "n_inner", json_number(flags, "ffn"));
    cJSON_AddNumberToObject(config, "n_positions", json_number(flags, "positions"));
    cJSON_AddNumberToObject(config, "layer_norm_epsilon", json_number(flags, "norm-eps"));
    cJSON_AddStringToObject(config, "activation_function", "gelu_new");
}

// Adds an id or null: without the key, the class's default id might exceed the vocabulary.
static void add_id(cJSON *config, const char *key, int32_t id) {
    cJSON_AddItemToObject(config, key, id < 0 ? cJSON_CreateNull() : cJSON_CreateNumber(id));
}

// Adds the window; Qwen needs a layer_types entry for each layer.
static void write_window(cJSON *config, const cJSON *flags, const char *family) {
    cJSON_AddNumberToObject(config, "sliding_window", json_number(flags, "attention-window"));
    if (strcmp(family, "mistral") == 0)
        return;
    cJSON_AddTrueToObject(config, "use_sliding_window");
    cJSON_AddNumberToObject(config, "max_window_layers", 0);
    cJSON *types = cJSON_AddArrayToObject(config, "layer_types");
    for (double i = 0; i < json_number(flags, "layers"); i++)
        cJSON_AddItemToArray(types, cJSON_CreateString("sliding_attention"));
}

static void write_llama(cJSON *config, const cJSON *flags, const char *family) {
    double window = json_number(flags, "attention-window");
    cJSON_AddNumberToObject(config, "num_hidden_layers", json_number(flags, "layers"));
    cJSON_AddNumberToObject(config, "num_attention_heads", json_number(flags, "heads"));
    cJSON_AddNumberToObject(config, "num_key_value_heads", json_number(flags, "kv-heads"));
    cJSON_AddNumberToObject(config, "head_dim", json_number(flags, "head-size"));
    cJSON_AddNumberToObject(config, "hidden_size", json_number(flags, "channels"));
    cJSON_AddNumberToObject(config, "intermediate_size", json_number(flags, "ffn"));
    cJSON_AddNumberToObject(config, "max_position_embeddings", json_number(flags, "seq-len"));
    cJSON_AddNumberToObject(config, "rms_norm_eps", json_number(flags, "norm-eps"));
    cJSON_AddStringToObject(config, "hidden_act", "silu");
    cJSON_AddNumberToObject(config, "rope_theta", json_number(flags, "rope-theta"));
    if (strcmp(json_text(flags, "rope-scaling"), "none") == 0)
        cJSON_AddNullToObject(config, "rope_scaling");
    else
        cJSON_AddItemToObject(config, "rope_scaling", hf_config_rope_object(flags, false));
    cJSON_AddItemToObject(config, "rope_parameters", hf_config_rope_object(flags, true));
    if (window > 0)
        write_window(config, flags, family);
    else if (strcmp(family, "llama") != 0)
        cJSON_AddNullToObject(config, "sliding_window");
}

// Refuses a model that a folder of the family cannot express.
static int check_exportable(const cJSON *flags, const char *family, struct Error *e) {
    bool gpt2 = strcmp(family, "gpt2") == 0;
    const char *sparse = json_text(flags, "sparse-attention");
    double heads = json_number(flags, "heads"), channels = json_number(flags, "channels");
    if (json_number(flags, "attention-window") > 0 && (gpt2 || strcmp(family, "llama") == 0))
        return error_set(e, -EINVAL, E_EXPORT_MODEL,
                         "--export: a Hugging Face %s has no --attention-window %.0f; train "
                         "with 0, or with --family mistral, qwen2 or qwen3",
                         family, json_number(flags, "attention-window"));
    if (*sparse && strcmp(sparse, "dense") != 0)
        return error_set(e, -EINVAL, E_EXPORT_MODEL,
                         "--export: a Hugging Face %s has no --sparse-attention %s; train with "
                         "--sparse-attention dense",
                         family, sparse);
    if (gpt2 && json_number(flags, "kv-heads") != heads)
        return error_set(e, -EINVAL, E_EXPORT_MODEL,
                         "--export: a Hugging Face gpt2 has no --kv-heads %.0f; train with %.0f, "
                         "or with another --family",
                         json_number(flags, "kv-heads"), heads);
    if (gpt2 && json_number(flags, "head-size") * heads != channels)
        return error_set(e, -EINVAL, E_EXPORT_MODEL,
                         "--export: a Hugging Face gpt2 has no --head-size %.0f; train with "
                         "--channels / --heads, or with another --family",
                         json_number(flags, "head-size"));
    return 0;
}

int hf_config_write(const struct cJSON *flags, enum Dtype dtype, int32_t begin, int32_t end,
                    char **text, struct Error *e) {
    static const char *const classes[][2] = {{"gpt2", "GPT2LMHeadModel"},
                                             {"llama", "LlamaForCausalLM"},
                                             {"mistral", "MistralForCausalLM"},
                                             {"qwen2", "Qwen2ForCausalLM"},
                                             {"qwen3", "Qwen3ForCausalLM"}};
    const char *family = json_text(flags, "family"), *name = NULL;
    int err = check_exportable(flags, family, e);
    if (err)
        return err;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        name = strcmp(classes[i][0], family) == 0 ? classes[i][1] : name;
    cJSON *config = cJSON_CreateObject();
    cJSON_AddItemToObject(config, "architectures", cJSON_CreateStringArray(&name, 1));
    cJSON_AddStringToObject(config, "model_type", family);
    cJSON_AddNumberToObject(config, "vocab_size", json_number(flags, "vocab"));
    cJSON_AddBoolToObject(config, "tie_word_embeddings",
                          strcmp(json_text(flags, "tie"), "off") != 0);
    if (strcmp(family, "gpt2") == 0)
        write_gpt2(config, flags);
    else
        write_llama(config, flags, family);
    add_id(config, "bos_token_id", begin);
    add_id(config, "eos_token_id", end);
    set_text(config, "dtype", torch_name(dtype));
    set_text(config, "torch_dtype", torch_name(dtype));
    *text = json_file_text(config);
    return 0;
}
