// Models of every family against transformers: logits, every gradient and three AdamW steps of the
// small models in tests/fixtures/hf, which scripts/gen/hf_fixtures.py made (it says what is there,
// and how exact), in every kernel table of this CPU, and on a GPU, or in the simulator, where this
// build has one. The weights come in as --init hf:DIR brings them.
#include "model/presets.h"
#include "tests/lib/hf_case.h"

static const char *const folders[] = {"gpt2", "llama", "llama3", "mistral", "qwen2", "qwen3"};

// False where this CPU lacks the table's instructions.
static bool open_case(struct Case *c) {
    struct Error e = {0};
    struct ModelConfig model;
    char *folder = base_format("tests/fixtures/hf/%s", c->folder);
    CHECKED(hf_rank_config(folder, T, c->dtype, &model, &e));
    CHECKED(hf_model_open(&c->model, folder, &e));
    open_reference(c, folder);
    free(folder);
    bool opened = open_rank(c, &model);
    if (!opened)
        close_rank(c);
    return opened;
}

static void expect_param(struct Case *c, const char *prefix, int layer, const struct Param *p,
                         const float *got, double tolerance) {
    struct HfPiece pieces[HF_PIECES_MAX];
    const cJSON *facts = cJSON_GetObjectItemCaseSensitive(c->facts, "parameters");
    size_t n = hf_pieces(c->model.family, p->name, layer, &c->model.sizes, pieces);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        const cJSON *fact = cJSON_GetObjectItemCaseSensitive(facts, pieces[i].name);
        size_t count;
        float *want = tensor_of(&c->reference, prefix, pieces[i].name, &count);
        struct Held held =
            hold_piece(&pieces[i], got, want, count, (size_t)json_number(fact, "stride"));
        if (held.most > 0)
            expect(c, prefix, pieces[i].name, held, tolerance);
        free(want);
    }
}

static void expect_params(struct Case *c, const char *prefix, bool gradients, double tolerance) {
    struct Rank *r = &c->rank;
    for (int g = 0; g < r->params.ngroup; g++) {
        const struct Group *group = &r->params.group[g];
        const void *from = gradients ? r->zero.state[g].grad.mem : zero_master(&r->zero, g);
        for (int i = 0; i < group->nparam; i++) {
            const struct Param *p = &group->param[i];
            if (!p->real)
                continue;
            float *got = hf_rank_fetch(r, dtype_at(from, F32, p->offset), F32, p->rows * p->cols);
            expect_param(c, prefix, r->params.unit[group->first_unit].layer, p, got, tolerance);
            free(got);
        }
    }
}

static void check(struct Case c, double tolerance, double after) {
    if (!open_case(&c))
        return;
    expect_logits(&c, tolerance);
    for (int step = 0; step < STEPS; step++) {
        struct StepResult r = run_step(&c, 1e-3, 0);
        expect_loss(&c, step, &r);
        if (step == 0)
            expect_params(&c, "gradient.", true, tolerance);
    }
    if (after > 0)
        expect_params(&c, "after.", false, after);
    close_rank(&c);
}

static const struct Models models = {folders, sizeof folders / sizeof folders[0], 0.03, check};

TEST(test_fp32) {
    check_fp32(&models);
}

TEST(test_recompute) {
    check_recompute(&models);
}

TEST(test_bf16) {
    check_bf16(&models);
}

TEST(test_gpu) {
    check_gpu(&models);
}

// The inverse frequencies of well-known models, as transformers has them in fp32.
static void expect_frequencies(const struct Safetensors *f, const cJSON *model) {
    struct Error e = {0};
    const struct Tensor *t = safetensors_find(f, model->string);
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(model, "rope_scaling");
    struct ModelConfig c = {
        .head_size = (size_t)json_number(model, "head_size"),
        .rope = {.theta = json_number(model, "rope_theta"),
                 .factor = json_number(rope, "factor"),
                 .low = json_number(rope, "low_freq_factor"),
                 .high = json_number(rope, "high_freq_factor"),
                 .original = (size_t)json_number(rope, "original_max_position_embeddings")}};
    c.rope.scaling = strcmp(json_text(rope, "rope_type"), "llama3") == 0   ? ROPE_LLAMA3
                     : strcmp(json_text(rope, "rope_type"), "linear") == 0 ? ROPE_LINEAR
                                                                           : ROPE_DEFAULT;
    float want[128];
    assert_non_null(t);
    assert_int_equal(t->count, c.head_size / 2);
    CHECKED(safetensors_read(f, t, 0, (size_t)t->count, want, &e));
    for (size_t i = 0; i < t->count; i++)
        if (!(fabsf(model_rope_frequency(&c, i) - want[i]) <= 2e-7f * want[i]))
            fail_msg("%s: frequency %zu is %.9g, transformers say %.9g", model->string, i,
                     (double)model_rope_frequency(&c, i), (double)want[i]);
}

TEST(test_frequencies) {
    struct Error e = {0};
    struct Safetensors f;
    char *text;
    size_t n;
    CHECKED(safetensors_open("tests/fixtures/hf/inv_freq.safetensors", &f, &e));
    CHECKED(file_read("tests/fixtures/hf/inv_freq.json", 1 << 20, &text, &n, &e));
    cJSON *models = cJSON_ParseWithLength(text, n);
    const cJSON *model;
    assert_int_equal(cJSON_GetArraySize(models), 7);
    cJSON_ArrayForEach(model, models) expect_frequencies(&f, model);
    cJSON_Delete(models);
    free(text);
    safetensors_close(&f);
}

// Models by name have as many parameters as those of that name on their model cards' files.
TEST(test_presets) {
    static const struct {
        const char *name;
        uint64_t parameters;
    } rows[] = {
        {"gpt2", 124439808},         {"llama2-7b", 6738415616},   {"tinyllama", 1100048384},
        {"llama3.1-8b", 8030261248}, {"llama3.2-1b", 1235814400}, {"llama3.2-3b", 3212749824},
        {"smollm2-135m", 134515008}, {"smollm2-360m", 361821120}, {"smollm2-1.7b", 1711376384},
        {"mistral-7b", 7241732096},  {"qwen2.5-0.5b", 494032768}, {"qwen2.5-1.5b", 1543714304},
        {"qwen2.5-3b", 3085938688},  {"qwen2.5-7b", 7615616512},  {"qwen2.5-14b", 14770033664},
        {"qwen3-0.6b", 596049920},   {"qwen3-1.7b", 1720574976},  {"qwen3-4b", 4022468096},
        {"qwen3-8b", 8190735360}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct Error e = {0};
        const struct Preset *p = preset_named(rows[i].name);
        assert_non_null(p);
        struct ModelConfig c = {p->layers,
                                p->heads,
                                p->channels,
                                p->seq_len,
                                p->vocab,
                                .kind = p->family,
                                .kv_heads = p->kv_heads,
                                .head_size = p->head_size,
                                .ffn = p->ffn,
                                .untied = p->untied};
        struct Params params;
        CHECKED(model_config_finish(&c, &e));
        params_layout(&c, 1, 0, 1, &params);
        if (params.real != rows[i].parameters)
            fail_msg("%s has %llu parameters, not %llu", p->name, (unsigned long long)params.real,
                     (unsigned long long)rows[i].parameters);
        params_free(&params);
    }
}
