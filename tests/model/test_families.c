// Models of every family against transformers: logits, every gradient and three AdamW steps of the
// small models in tests/fixtures/hf, which scripts/gen/hf_fixtures.py made (it says what is there,
// and how exact), in every kernel table of this CPU, and on a GPU, or in the simulator, where this
// build has one. The weights come in as --init hf:DIR brings them.
#include "zero/state.h"
#include "data/file.h"
#include "data/hf/pieces.h"
#include "model/presets.h"
#include "data/json.h"
#include "tests/lib/hf_rank.h"
#include "tests/lib/test.h"
#include "zero/settings/schedule.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 17, STEPS = 3 };

static const char *const folders[] = {"gpt2", "llama", "llama3", "mistral", "qwen2", "qwen3"};
enum { NFOLDER = sizeof folders / sizeof folders[0] };
static const char *const tables[] = {"oracle", "base", "avx2", "avx512", "avx512bf16", "amx"};
enum { NTABLE = sizeof tables / sizeof tables[0] };

// A model, its reference, and a rank that has it.
struct Case {
    const char *folder, *kernels;
    enum DeviceKind device;
    enum Dtype dtype;
    enum Recompute recompute;
    int threads;
    struct HfModel model;
    struct Safetensors reference;
    cJSON *facts; // reference.json
    struct Rank rank;
};

static char *path_of(const struct Case *c, const char *file) {
    return base_format("tests/fixtures/hf/%s%s%s", c->folder, *file ? "/" : "", file);
}

#define CHECKED(call)                                                                              \
    do {                                                                                           \
        if (call)                                                                                  \
            fail_msg("%s", e.text);                                                                \
    } while (0)

static void open_files(struct Case *c) {
    struct Error e = {0};
    char *folder = path_of(c, ""), *weights = path_of(c, "reference.safetensors");
    char *facts = path_of(c, "reference.json"), *text;
    size_t n;
    CHECKED(hf_model_open(&c->model, folder, &e));
    CHECKED(safetensors_open(weights, &c->reference, &e));
    CHECKED(file_read(facts, 1 << 20, &text, &n, &e));
    c->facts = cJSON_ParseWithLength(text, n);
    assert_non_null(c->facts);
    free(text);
    free(folder);
    free(weights);
    free(facts);
}

static void close_case(struct Case *c) {
    rank_close(&c->rank);
    hf_model_close(&c->model);
    safetensors_close(&c->reference);
    cJSON_Delete(c->facts);
}

// False where this CPU lacks the table's instructions.
static bool open_case(struct Case *c) {
    struct Error e = {0};
    struct RankSettings s = {.recompute = c->recompute,
                             .batch = B,
                             .nmicro = 1,
                             .threads = c->threads,
                             .device = c->device,
                             .kernels = c->device == DEVICE_CPU ? c->kernels : NULL,
                             .device_bytes = SIZE_MAX,
                             .ranks = 1};
    char *folder = path_of(c, "");
    CHECKED(hf_rank_config(folder, T, c->dtype, &s.model, &e));
    free(folder);
    open_files(c);
    int err = hf_rank_open(&c->rank, &s, &c->model, &e);
    if (err == -ENOTSUP) {
        print_message("not tested on this CPU: %s\n", e.text);
        close_case(c);
        return false;
    }
    CHECKED(err);
    return true;
}

static void fill_feed(struct Case *c) {
    struct Rank *r = &c->rank;
    const char *const names[] = {"tokens", "targets"};
    int32_t *host = feed_host(&r->feed);
    for (int i = 0; i < 2; i++) {
        const cJSON *rows = cJSON_GetObjectItemCaseSensitive(c->facts, names[i]), *row, *id;
        int32_t *at = host + (size_t)i * r->feed.tokens;
        cJSON_ArrayForEach(row, rows) cJSON_ArrayForEach(id, row) *at++ = id->valueint;
    }
}

static struct StepResult run_step(struct Case *c) {
    static const struct LrSchedule schedule = {
        .kind = SCHEDULE_CONSTANT, .lr = 1e-3, .steps = STEPS};
    static const struct AdamSettings adam = {0.9, 0.95, 1e-8, 0.1, 0};
    struct Zero *z = &c->rank.zero;
    struct StepState settings = schedule_step(&schedule, &adam, z->step, z->updates);
    zero_step_begin(z, &settings);
    fill_feed(c);
    hf_rank_send(&c->rank);
    zero_step_pass(z, &z->pass[0], &c->rank.acts);
    zero_step_pass(z, &z->pass[1], &c->rank.acts);
    feed_done(&c->rank.feed);
    zero_step_end(z, false);
    return zero_step_wait(z);
}

// A tensor of reference.safetensors; free() it.
static float *wanted(const struct Case *c, const char *prefix, const char *name, size_t *count) {
    struct Error e = {0};
    char *full = base_format("%s%s", prefix, name);
    const struct Tensor *t = safetensors_find(&c->reference, full);
    if (!t)
        fail_msg("%s has no %s", c->folder, full);
    *count = (size_t)t->count;
    float *x = base_alloc(*count * sizeof *x);
    CHECKED(safetensors_read(&c->reference, t, 0, *count, x, &e));
    free(full);
    return x;
}

// Holds every `stride`th element of a piece of a parameter, in the file's order, against got; those
// that are NaN are not decided.
struct Held {
    double difference, size, most, worst; // squares; the largest value, and distance
};

static struct Held hold_piece(const struct HfPiece *p, const float *got, const float *want,
                              size_t count, size_t stride) {
    struct Held held = {0, 0, 0, 0};
    size_t cols = p->cols ? p->cols : 1;
    for (size_t k = 0; k < count; k++) {
        size_t i = k * stride;
        size_t row = p->transposed ? i % p->rows : i / cols;
        size_t col = p->transposed ? i / p->rows : i % cols;
        double w = want[k], g = got[(p->row + row) * cols + col];
        if (isnan(w))
            continue;
        held.difference += (g - w) * (g - w);
        held.size += w * w;
        held.most = fmax(held.most, fabs(w));
        held.worst = fabs(g - w) <= held.worst ? held.worst : fabs(g - w); // NaN is the worst
    }
    return held;
}

// In fp32 each element lies within 1e-5 of the tensor's largest; in bf16 the whole is a vector near
// the reference: some dozens of roundings deep, of 2^-9 each.
static void expect(const struct Case *c, const char *prefix, const char *name, struct Held held,
                   double tolerance) {
    bool near = c->dtype == F32 ? held.worst <= tolerance * held.most
                                : sqrt(held.difference) <= tolerance * sqrt(held.size);
    if (!near)
        fail_msg("%s %s %s: %s%s is off by %.3g of %.3g, the whole by %.3g of its norm", c->folder,
                 c->kernels, dtype_name(c->dtype), prefix, name, held.worst, held.most,
                 sqrt(held.difference / held.size));
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
        float *want = wanted(c, prefix, pieces[i].name, &count);
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

static void expect_logits(struct Case *c, double tolerance) {
    size_t count, rows;
    fill_feed(c);
    float *got = hf_rank_logits(&c->rank, &rows), *want = wanted(c, "logits", "", &count);
    assert_int_equal(rows, B * T);
    assert_int_equal(count, B * T * c->rank.model.config.vocab);
    struct HfPiece all = {.rows = count};
    expect(c, "", "logits", hold_piece(&all, got, want, count, 1), tolerance);
    free(want);
    free(got);
}

static void check(struct Case c, double tolerance, double after) {
    if (!open_case(&c))
        return;
    expect_logits(&c, tolerance);
    const cJSON *losses = cJSON_GetObjectItemCaseSensitive(c.facts, "losses");
    for (int step = 0; step < STEPS; step++) {
        double loss = run_step(&c).loss_sum / (B * T);
        double want = cJSON_GetArrayItem(losses, step)->valuedouble;
        if (!(fabs(loss - want) <= (c.dtype == F32 ? 1e-5 : 5e-3) * want))
            fail_msg("%s %s: loss %d is %.9g, transformers say %.9g", c.folder, c.kernels, step,
                     loss, want);
        if (step == 0)
            expect_params(&c, "gradient.", true, tolerance);
    }
    if (after > 0)
        expect_params(&c, "after.", false, after);
    close_case(&c);
}

TEST(test_fp32) {
    for (int i = 0; i < NFOLDER * NTABLE; i++)
        check((struct Case){.folder = folders[i / NTABLE],
                            .kernels = tables[i % NTABLE],
                            .threads = 1 + i % 2},
              1e-5, 1e-5);
}

// Activations made again are the same.
TEST(test_recompute) {
    for (int i = 0; i < NFOLDER; i++)
        for (enum Recompute level = 1; level < NRECOMPUTE; level++)
            check(
                (struct Case){
                    .folder = folders[i], .kernels = "base", .recompute = level, .threads = 1},
                1e-5, 1e-5);
}

TEST(test_bf16) {
    for (int i = 0; i < NFOLDER * NTABLE; i++)
        check((struct Case){.folder = folders[i / NTABLE],
                            .kernels = tables[i % NTABLE],
                            .dtype = BF16,
                            .threads = 1},
              0.03, 0);
}

TEST(test_gpu) {
    for (int i = 0; i < NFOLDER && device_count_cuda() > 0; i++)
        for (enum Dtype d = F32; d <= BF16; d++)
            check((struct Case){.folder = folders[i],
                                .kernels = "cuda",
                                .device = DEVICE_CUDA,
                                .dtype = d,
                                .threads = 1},
                  d == F32 ? 1e-5 : 0.03, d == F32 ? 1e-5 : 0);
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
