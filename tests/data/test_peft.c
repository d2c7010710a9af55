// PEFT's adapters: what PEFT saved for each family (tests/fixtures/peft, made by
// scripts/gen/peft_fixtures.py) is read, whole and in its places; what is written is read as it
// was; and whatever would mean another computation, or another model, is refused by name.
#include "data/peft/adapter.h"
#include "tests/lib/hf_families.h"
#include "tests/lib/hf_out.h"
#include "tests/lib/test.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>

AROUND_EACH(set_up, tear_down);

#define BIT(t) (1u << LORA_##t)
#define ATTENTION (BIT(Q) | BIT(K) | BIT(V) | BIT(O))
#define MLP (BIT(GATE) | BIT(UP) | BIT(DOWN))

// ---- adapter_config.json ------------------------------------------------------------------------

static const char *const saved[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};
enum { NSAVED = sizeof saved / sizeof saved[0] };

static char *adapter_of(const char *family) {
    return base_format("tests/fixtures/peft/%s/adapter", family);
}

TEST(saved_configurations_are_read) {
    for (int i = 0; i < NSAVED; i++) {
        char *dir = adapter_of(saved[i]), *base = base_format(FIXTURES "%s", saved[i]);
        bool gpt2 = i == 0;
        struct PeftConfig c;
        struct Error e = {0};
        assert_ok(peft_config_read(&c, dir, gpt2, &e), &e);
        assert_int_equal(c.rank, 4);
        assert_true(c.alpha == 8 && c.dropout == 0);
        assert_int_equal(c.targets, lora_targets_all(gpt2));
        assert_string_equal(c.base, base);
        free(dir);
        free(base);
    }
}

// Reads {"peft_type": "LORA", "target_modules": ["q_proj"], MEMBERS}; a member there replaces one
// of these.
static int read_with(const char *members, bool gpt2, struct PeftConfig *c, struct Error *e) {
    char *text = base_format("{%s}", members);
    cJSON *config = cJSON_Parse(text), *list;
    assert_non_null(config);
    if (!cJSON_HasObjectItem(config, "peft_type"))
        cJSON_AddStringToObject(config, "peft_type", "LORA");
    if (!cJSON_HasObjectItem(config, "target_modules")) {
        list = cJSON_AddArrayToObject(config, "target_modules");
        cJSON_AddItemToArray(list, cJSON_CreateString(gpt2 ? "c_attn" : "q_proj"));
    }
    char *printed = cJSON_Print(config);
    free(scratch_write(folder, "adapter_config.json", printed, strlen(printed)));
    cJSON_free(printed);
    cJSON_Delete(config);
    free(text);
    return peft_config_read(c, folder, gpt2, e);
}

TEST(absent_keys_have_peft_s_defaults) {
    struct PeftConfig c;
    struct Error e = {0};
    assert_ok(read_with("", false, &c, &e), &e);
    assert_int_equal(c.rank, 8);
    assert_true(c.alpha == 8 && c.dropout == 0 && !*c.base);
    assert_int_equal(c.targets, BIT(Q));
}

// As PEFT 0.2 wrote them, as trainers write them, and with what says nothing.
TEST(other_configurations_are_read) {
    static const struct {
        const char *members;
        bool gpt2;
        size_t rank;
        double alpha, dropout;
        unsigned targets;
    } rows[] = {
        {"\"r\": 16, \"lora_alpha\": 32, \"lora_dropout\": 0.05, \"bias\": \"none\", "
         "\"enable_lora\": null, \"merge_weights\": false, \"fan_in_fan_out\": false, "
         "\"inference_mode\": true, \"modules_to_save\": null, \"task_type\": \"CAUSAL_LM\", "
         "\"target_modules\": [\"q_proj\", \"v_proj\"]",
         false, 16, 32, 0.05, BIT(Q) | BIT(V)},
        {"\"r\": 1, \"lora_alpha\": 0.5, \"target_modules\": \"all-linear\", \"task_type\": null, "
         "\"auto_mapping\": {\"base_model_class\": \"LlamaForCausalLM\"}, \"revision\": \"main\", "
         "\"peft_version\": \"0.17.1\", \"use_rslora\": false, \"rank_pattern\": {}, "
         "\"layers_to_transform\": [], \"layers_pattern\": \"\", \"init_lora_weights\": "
         "\"gaussian\", "
         "\"loftq_config\": {\"bits\": 4}, \"new_key_of_some_day\": false",
         false, 1, 0.5, 0, ATTENTION | MLP},
        {"\"target_modules\": [\"c_proj\"], \"fan_in_fan_out\": true, \"init_lora_weights\": false",
         true, 8, 8, 0, BIT(O) | BIT(DOWN)},
        {"\"target_modules\": [\"c_attn\", \"mlp.c_proj\"], \"init_lora_weights\": \"eva\"", true,
         8, 8, 0, BIT(Q) | BIT(DOWN)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct PeftConfig c;
        struct Error e = {0};
        assert_ok(read_with(rows[i].members, rows[i].gpt2, &c, &e), &e);
        assert_int_equal(c.rank, rows[i].rank);
        assert_true(c.alpha == rows[i].alpha && c.dropout == rows[i].dropout);
        assert_int_equal(c.targets, rows[i].targets);
    }
}

// What means another computation than ours, or nothing.
static const struct {
    const char *members;
    bool gpt2;
    const char *said; // behind the id
} others[] = {
    {"\"peft_type\": \"LOHA\"", false, "peft_type \"LOHA\""},
    {"\"peft_type\": null", false, "peft_type is missing"},
    {"\"task_type\": \"SEQ_CLS\"", false, "task_type \"SEQ_CLS\""},
    {"\"bias\": \"all\"", false, "bias \"all\""},
    {"\"bias\": \"lora_only\"", false, "bias \"lora_only\""},
    {"\"use_rslora\": true", false, "use_rslora true"},
    {"\"use_dora\": true", false, "use_dora true"},
    {"\"use_qalora\": true", false, "use_qalora true"},
    {"\"use_bdlora\": {\"nblocks\": 2}", false, "use_bdlora {\"nblocks\":2}"},
    {"\"lora_bias\": true", false, "lora_bias true"},
    {"\"rank_pattern\": {\"q_proj\": 4}", false, "rank_pattern {\"q_proj\":4}"},
    {"\"alpha_pattern\": {\"q_proj\": 4}", false, "alpha_pattern {\"q_proj\":4}"},
    {"\"modules_to_save\": [\"lm_head\"]", false, "modules_to_save [\"lm_head\"]"},
    {"\"trainable_token_indices\": [3]", false, "trainable_token_indices [3]"},
    {"\"exclude_modules\": [\"q_proj\"]", false, "exclude_modules [\"q_proj\"]"},
    {"\"layers_to_transform\": [0, 1]", false, "layers_to_transform [0,1]"},
    {"\"layers_to_transform\": 0", false, "layers_to_transform 0"},
    {"\"layers_pattern\": \"layers\"", false, "layers_pattern \"layers\""},
    {"\"layer_replication\": [[0, 2], [1, 2]]", false, "layer_replication"},
    {"\"target_parameters\": [\"experts.up\"]", false, "target_parameters"},
    {"\"megatron_config\": {\"tp\": 2}", false, "megatron_config"},
    {"\"alora_invocation_tokens\": [7, 8]", false, "alora_invocation_tokens"},
    {"\"arrow_config\": {\"top_k\": 3}", false, "arrow_config"},
    {"\"kasa_config\": {\"a\": 1}", false, "kasa_config"},
    {"\"velora_config\": {\"num_groups\": 64}", false, "velora_config"},
    {"\"monteclora_config\": {\"a\": 1}", false, "monteclora_config"},
    {"\"enable_lora\": [true, false, true]", true, "enable_lora [true,false,true]"},
    {"\"new_key_of_some_day\": 2", false, "new_key_of_some_day 2"},
    {"\"init_lora_weights\": \"pissa\"", false, "init_lora_weights \"pissa\""},
    {"\"init_lora_weights\": \"pissa_niter_16\"", false, "init_lora_weights"},
    {"\"init_lora_weights\": \"olora\"", false, "init_lora_weights \"olora\""},
    {"\"init_lora_weights\": \"corda\"", false, "init_lora_weights \"corda\""},
    {"\"init_lora_weights\": \"loftq\"", false, "init_lora_weights \"loftq\""},
    {"\"init_lora_weights\": \"lora_ga\"", false, "init_lora_weights \"lora_ga\""},
    {"\"init_lora_weights\": \"mica\"", false, "init_lora_weights \"mica\""},
    {"\"init_lora_weights\": 1", false, "init_lora_weights 1"},
    {"\"r\": 0", false, "r 0"},
    {"\"r\": 2.5", false, "r 2.5"},
    {"\"r\": \"8\"", false, "r \"8\""},
    {"\"r\": 1048577", false, "r 1048577"},
    {"\"lora_alpha\": 0", false, "lora_alpha 0"},
    {"\"lora_alpha\": -8", false, "lora_alpha -8"},
    {"\"lora_alpha\": 1e40", false, "lora_alpha 1"},
    {"\"lora_alpha\": 1e-60", false, "lora_alpha 1e-60"},
    {"\"lora_alpha\": [8]", false, "lora_alpha [8]"},
    {"\"lora_dropout\": 1", false, "lora_dropout 1"},
    {"\"lora_dropout\": 0.999999999", false, "lora_dropout 0.999999999"},
    {"\"lora_dropout\": -0.5", false, "lora_dropout -0.5"},
    {"\"lora_dropout\": true", false, "lora_dropout true"},
    {"\"target_modules\": null", false, "target_modules is missing"},
    {"\"target_modules\": []", false, "target_modules []"},
    {"\"target_modules\": \".*(q|v)_proj\"", false, "target_modules \".*(q|v)_proj\""},
    {"\"target_modules\": [\"q_proj\", 3]", false, "target_modules 3"},
    {"\"target_modules\": [\"q_proj\", \"lm_head\"]", false, "target_modules \"lm_head\""},
    {"\"target_modules\": [\"c_attn\"]", false, "target_modules \"c_attn\""},
    {"\"target_modules\": [\"q_proj\"]", true, "target_modules \"q_proj\""},
    {"\"target_modules\": [\"model.layers.0.self_attn.q_proj\"]", false,
     "target_modules \"model.layers.0.self_attn.q_proj\""},
    {"\"fan_in_fan_out\": \"yes\"", true, "fan_in_fan_out \"yes\""},
    {"\"base_model_name_or_path\": 7", false, "base_model_name_or_path 7"},
};

TEST(other_computations_are_refused) {
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct PeftConfig c;
        struct Error e = {0};
        char *said =
            base_format("E_PEFT_CONFIG %s/adapter_config.json: %s", folder, others[i].said);
        assert_error(read_with(others[i].members, others[i].gpt2, &c, &e), -EINVAL, &e, said);
        free(said);
    }
    char *long_name = base_format("\"base_model_name_or_path\": \"%04096d\"", 0);
    struct PeftConfig c;
    struct Error e = {0};
    assert_error(read_with(long_name, false, &c, &e), -EINVAL, &e,
                 "E_PEFT_CONFIG base_model_name_or_path");
    free(long_name);
}

TEST(files_that_are_none_are_refused) {
    struct PeftConfig c;
    struct Error e = {0};
    assert_error(peft_config_read(&c, folder, false, &e), -EINVAL, &e, "E_FILE_READ");
    free(scratch_write(folder, "adapter_config.json", "[]", 2));
    assert_error(peft_config_read(&c, folder, false, &e), -EINVAL, &e, "E_JSON_SYNTAX");
}

TEST(what_is_written_is_read) {
    struct PeftConfig rows[] = {
        {.rank = 16, .alpha = 32, .dropout = 0.1, .targets = BIT(Q) | BIT(V), .base = "org/name"},
        {.rank = 1, .alpha = 1.0 / 3, .dropout = 0, .targets = ATTENTION | MLP},
        {.rank = 64, .alpha = 16, .targets = BIT(O) | BIT(UP), .base = "/a \"quoted\"\\path"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct PeftConfig *c = &rows[i], got;
        bool gpt2 = i == 2;
        struct Error e = {0};
        char *text = peft_config_write(c, gpt2);
        free(scratch_write(folder, "adapter_config.json", text, strlen(text)));
        assert_ok(peft_config_read(&got, folder, gpt2, &e), &e);
        assert_int_equal(got.rank, c->rank);
        assert_true(got.alpha == c->alpha && got.dropout == c->dropout);
        assert_int_equal(got.targets, c->targets);
        assert_string_equal(got.base, c->base);
        cJSON *config = cJSON_Parse(text);
        assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(config, "fan_in_fan_out")), gpt2);
        assert_true(cJSON_IsTrue(cJSON_GetObjectItem(config, "inference_mode")));
        assert_true(i != 0 || strstr(text, "0.1,"));
        cJSON_Delete(config);
        free(text);
    }
}

// ---- names --------------------------------------------------------------------------------------

TEST(names_are_peft_s) {
    static const struct {
        const char *text;
        bool gpt2;
        struct PeftName name;
    } rows[] = {
        {"base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight",
         false,
         {3, LORA_Q, LORA_A}},
        {"base_model.model.model.layers.0.mlp.down_proj.lora_B.weight",
         false,
         {0, LORA_DOWN, LORA_B}},
        {"base_model.model.transformer.h.11.attn.c_attn.lora_A.weight", true, {11, LORA_Q, LORA_A}},
        {"base_model.model.transformer.h.10.mlp.c_proj.lora_B.weight",
         true,
         {10, LORA_DOWN, LORA_B}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct PeftName got = {0};
        char *name = peft_name(&rows[i].name, rows[i].gpt2);
        assert_string_equal(name, rows[i].text);
        char *named = base_format("%.*s.default.weight", (int)(strlen(name) - 7), name);
        const char *const forms[] = {name, named};
        for (int f = 0; f < 2; f++) {
            assert_true(peft_name_read(&got, forms[f], rows[i].gpt2));
            assert_memory_equal(&got, &rows[i].name, sizeof got);
            assert_false(peft_name_read(&got, forms[f], !rows[i].gpt2));
        }
        free(name);
        free(named);
    }
}

TEST(other_names_are_none) {
    static const char *const names[] = {
        "",
        "base_model.model.model.layers.",
        "base_model.model.model.layers.3",
        "base_model.model.model.layers..self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.03.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.-3.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.4294967296.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.3.q_proj.lora_A.weight",
        "base_model.model.model.layers.3.self_attn.q_proj.lora_A",
        "base_model.model.model.layers.3.self_attn.q_proj.lora_A.bias",
        "base_model.model.model.layers.3.self_attn.q_proj.lora_A..weight",
        "base_model.model.model.layers.3.self_attn.q_proj.lora_A.a.b.weight",
        "base_model.model.model.layers.3.self_attn.q_proj.lora_C.weight",
        "base_model.model.model.layers.3.self_attn.q_proj.lora_AB.weight",
        "base_model.model.model.layers.3.self_attn.q_proj.base_layer.weight",
        "base_model.model.model.layers.3.self_attn.q_proj.lora_magnitude_vector.weight",
        "base_model.model.model.embed_tokens.weight",
        "base_model.model.lm_head.lora_A.weight",
        "model.layers.3.self_attn.q_proj.lora_A.weight",
    };
    struct PeftName got;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (peft_name_read(&got, names[i], false))
            fail_msg("%s", names[i]);
}

// ---- folders ------------------------------------------------------------------------------------

static struct PeftBase base_of(const char *family) {
    struct PeftBase base = {.gpt2 = !strcmp(family, "gpt2"), .layers = 2};
    for (int i = 0; i < NFAMILY; i++)
        if (!strcmp(families[i].folder, family))
            base.sizes = *families[i].sizes;
    return base;
}

// Every matrix that PEFT saved is found in its place, and read as it is, in two parts.
TEST(saved_adapters_are_read) {
    for (int i = 0; i < NSAVED; i++) {
        struct PeftBase base = base_of(saved[i]);
        struct PeftAdapter a;
        struct Error e = {0};
        char *dir = adapter_of(saved[i]);
        assert_ok(peft_adapter_open(&a, dir, &base, &e), &e);
        assert_int_equal(a.file.ntensor, base.gpt2 ? 16 : 28);
        for (size_t t = 0; t < a.file.ntensor; t++) {
            const struct Tensor *tensor = &a.file.tensor[t];
            size_t n = (size_t)tensor->count, half = n / 3;
            float *want = base_alloc(n * sizeof *want), *got = base_alloc(n * sizeof *got);
            struct PeftName name;
            uint64_t shape[2];
            assert_true(peft_name_read(&name, tensor->name, base.gpt2));
            peft_shape(&name, base.gpt2, &base.sizes, 4, shape);
            assert_int_equal(shape[0] * shape[1], n);
            assert_int_equal(shape[name.matrix == LORA_B], 4);
            assert_ok(safetensors_read(&a.file, tensor, 0, n, want, &e), &e);
            assert_ok(peft_adapter_read(&a, &name, 0, half, got, &e), &e);
            assert_ok(peft_adapter_read(&a, &name, half, n - half, got + half, &e), &e);
            assert_memory_equal(got, want, n * sizeof *got);
            free(want);
            free(got);
        }
        peft_adapter_close(&a);
        free(dir);
    }
}

// An adapter of rank 2 for one place, q_proj, of models with one or two layers.
static const char CONFIG[] = "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 4, "
                             "\"target_modules\": [\"q_proj\"]}";
#define LAYER "base_model.model.model.layers."
#define Q_A ".self_attn.q_proj.lora_A.weight"
#define Q_B ".self_attn.q_proj.lora_B.weight"

// Writes the tensors, each filled with `value`, as an export does.
static void write_adapter(const struct HfOut *tensor, size_t n, float value) {
    struct HfWriter w;
    struct Error e = {0};
    float values[128 * 2];
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        values[i] = value;
    hf_writer_init(&w, out, PEFT_STEM, tensor, n, F32, UINT64_MAX);
    assert_ok(hf_writer_make(&w, &e), &e);
    for (size_t i = 0; i < n; i++)
        assert_ok(hf_write_range(&w, i, 0, w.entry[i].count, values, &e), &e);
    assert_ok(hf_writer_put(&w, "adapter_config.json", CONFIG, strlen(CONFIG), &e), &e);
    assert_ok(hf_writer_sync(&w, &e), &e);
    assert_ok(hf_writer_commit(&w, &e), &e);
    hf_writer_free(&w);
}

static void remove_adapter(void) {
    char *command = base_format("rm -r '%s'", out);
    assert_int_equal(system(command), 0);
    free(command);
}

TEST(written_adapters_are_read) {
    static const struct HfOut tensors[] = {{LAYER "0" Q_A, 2, {2, 64}},
                                           {LAYER "0" Q_B, 2, {64, 2}}};
    struct PeftBase base = base_of("llama");
    struct PeftAdapter a;
    struct Error e = {0};
    struct PeftName b = {0, LORA_Q, LORA_B};
    float got[3];
    base.layers = 1;
    write_adapter(tensors, 2, 0.5f);
    assert_ok(peft_adapter_open(&a, out, &base, &e), &e);
    assert_ok(peft_adapter_read(&a, &b, 125, 3, got, &e), &e);
    assert_true(got[0] == 0.5f && got[2] == 0.5f);
    peft_adapter_close(&a);
    peft_adapter_close(&a);
}

TEST(adapters_of_other_models_are_refused) {
    static const struct {
        const char *said;
        size_t layers, n;
        struct HfOut tensor[3];
    } rows[] = {
        {"E_HF_TENSOR_MISSING " LAYER "1" Q_A,
         2,
         2,
         {{LAYER "0" Q_A, 2, {2, 64}}, {LAYER "0" Q_B, 2, {64, 2}}}},
        {"E_HF_TENSOR_MISSING " LAYER "0" Q_B, 1, 1, {{LAYER "0" Q_A, 2, {2, 64}}}},
        {"E_HF_TENSOR_EXTRA " LAYER "1" Q_A,
         1,
         3,
         {{LAYER "0" Q_A, 2, {2, 64}}, {LAYER "0" Q_B, 2, {64, 2}}, {LAYER "1" Q_A, 2, {2, 64}}}},
        {"E_HF_TENSOR_EXTRA " LAYER "0.self_attn.k_proj.lora_A.weight",
         1,
         3,
         {{LAYER "0" Q_A, 2, {2, 64}},
          {LAYER "0" Q_B, 2, {64, 2}},
          {LAYER "0.self_attn.k_proj.lora_A.weight", 2, {2, 64}}}},
        {"E_HF_TENSOR_EXTRA base_model.model.lm_head.weight",
         1,
         3,
         {{LAYER "0" Q_A, 2, {2, 64}},
          {LAYER "0" Q_B, 2, {64, 2}},
          {"base_model.model.lm_head.weight", 2, {2, 2}}}},
        {"E_HF_TENSOR_TWICE " LAYER "0" Q_A,
         1,
         3,
         {{LAYER "0" Q_A, 2, {2, 64}},
          {LAYER "0.self_attn.q_proj.lora_A.default.weight", 2, {2, 64}},
          {LAYER "0" Q_B, 2, {64, 2}}}},
        {"E_HF_TENSOR_SHAPE [4, 32]",
         1,
         2,
         {{LAYER "0" Q_A, 2, {4, 32}}, {LAYER "0" Q_B, 2, {64, 2}}}},
        {"E_HF_TENSOR_SHAPE [2, 64]",
         1,
         2,
         {{LAYER "0" Q_A, 2, {2, 64}}, {LAYER "0" Q_B, 2, {2, 64}}}},
        {"E_HF_TENSOR_SHAPE [128]", 1, 2, {{LAYER "0" Q_A, 1, {128}}, {LAYER "0" Q_B, 2, {64, 2}}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct PeftBase base = base_of("llama");
        struct PeftAdapter a;
        struct Error e = {0};
        base.layers = rows[i].layers;
        write_adapter(rows[i].tensor, rows[i].n, 0);
        assert_error(peft_adapter_open(&a, out, &base, &e), -EINVAL, &e, rows[i].said);
        peft_adapter_close(&a);
        remove_adapter();
    }
}

TEST(weights_that_cannot_be_read_are_refused) {
    struct PeftBase base = base_of("llama");
    struct PeftAdapter a;
    struct Error e = {0};
    free(scratch_write(folder, "adapter_config.json", CONFIG, strlen(CONFIG)));
    assert_error(peft_adapter_open(&a, folder, &base, &e), -ENOENT, &e, "E_FILE_READ");
    peft_adapter_close(&a);
    free(scratch_write(folder, "adapter_model.bin", "PK", 2));
    assert_error(peft_adapter_open(&a, folder, &base, &e), -ENOENT, &e, "E_HF_WEIGHTS_MISSING");
    peft_adapter_close(&a);
    // Ids in place of numbers; then a NaN, the sixth element of B.
    for (int kind = 0; kind < 2; kind++) {
        char *header =
            base_format("{\"" LAYER "0" Q_A "\":{\"dtype\":\"%s\",\"shape\":[2,64],"
                        "\"data_offsets\":[0,512]},\"" LAYER "0" Q_B
                        "\":{\"dtype\":\"F32\",\"shape\":[64,2],\"data_offsets\":[512,1024]}}",
                        kind ? "F32" : "I32");
        size_t n = strlen(header), all = 8 + n + 1024;
        char *bytes = base_alloc_zeroed(all);
        bytes[0] = (char)(n & 0xff);
        bytes[1] = (char)(n >> 8);
        memcpy(bytes + 8, header, n);
        const float nan_value = NAN;
        memcpy(bytes + 8 + n + 512 + 20, &nan_value, sizeof nan_value);
        free(scratch_write(folder, "adapter_model.safetensors", bytes, all));
        base.layers = 1;
        int err = peft_adapter_open(&a, folder, &base, &e);
        if (kind) {
            struct PeftName b = {0, LORA_Q, LORA_B};
            float got[128];
            assert_ok(err, &e);
            assert_ok(peft_adapter_read(&a, &b, 0, 5, got, &e), &e);
            assert_error(peft_adapter_read(&a, &b, 4, 124, got, &e), -EINVAL, &e,
                         "E_WEIGHT_NOT_FINITE element 5 is NaN");
        } else {
            assert_error(err, -EINVAL, &e, "E_HF_TENSOR_DTYPE I32");
        }
        peft_adapter_close(&a);
        free(bytes);
        free(header);
    }
}
