// What tests of a model's numbers share (tests/model/test_families.c, test_adapters.c): a model of
// tests/fixtures with what was computed of it elsewhere, a rank that has it, its steps, and the
// kernel tables, levels of recomputation and formats in which it must come to the same. A program
// includes this once.
#ifndef TESTS_LIB_HF_CASE_H
#define TESTS_LIB_HF_CASE_H
#include "data/file.h"
#include "data/hf/pieces.h"
#include "data/json.h"
#include "tests/lib/hf_rank.h"
#include "tests/lib/test.h"
#include "zero/settings/schedule.h"
#include "zero/state.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 17, STEPS = 3 };

// A model, its reference, and a rank that has it.
struct Case {
    const char *folder, *kernels;
    enum DeviceKind device;
    enum Dtype dtype;
    enum Recompute recompute;
    int threads;
    size_t nmicro; // micro-batches that the B sequences are cut into; 0: one
    struct HfModel model;
    struct Safetensors reference;
    cJSON *facts; // reference.json
    struct Rank rank;
    // of adapters alone:
    double dropout;
    char *base, *dir, *flags; // the two folders; the base as a JSON object of flags
    struct Safetensors file;  // PEFT's adapter
};

#define CHECKED(call)                                                                              \
    do {                                                                                           \
        if (call)                                                                                  \
            fail_msg("%s", e.text);                                                                \
    } while (0)

static size_t micros(const struct Case *c) {
    return c->nmicro ? c->nmicro : 1;
}

static void open_reference(struct Case *c, const char *folder) {
    struct Error e = {0};
    char *weights = base_format("%s/reference.safetensors", folder);
    char *facts = base_format("%s/reference.json", folder), *text;
    size_t n;
    CHECKED(safetensors_open(weights, &c->reference, &e));
    CHECKED(file_read(facts, 1 << 20, &text, &n, &e));
    c->facts = cJSON_ParseWithLength(text, n);
    assert_non_null(c->facts);
    free(text);
    free(weights);
    free(facts);
}

// False where this CPU lacks the table's instructions. close_rank is due in any case.
static bool open_rank(struct Case *c, const struct ModelConfig *model) {
    struct Error e = {0};
    struct RankSettings s = {.model = *model,
                             .recompute = c->recompute,
                             .batch = B / micros(c),
                             .nmicro = micros(c),
                             .threads = c->threads,
                             .device = c->device,
                             .kernels = c->device == DEVICE_CPU ? c->kernels : NULL,
                             .device_bytes = SIZE_MAX,
                             .ranks = 1};
    int err = hf_rank_open(&c->rank, &s, &c->model, &e);
    if (err == -ENOTSUP) {
        print_message("not tested on this CPU: %s\n", e.text);
        return false;
    }
    CHECKED(err);
    return true;
}

static void close_rank(struct Case *c) {
    rank_close(&c->rank);
    hf_model_close(&c->model);
    safetensors_close(&c->reference);
    cJSON_Delete(c->facts);
}

// ---- a step ----

static void fill_feed(struct Case *c, size_t micro) {
    struct Rank *r = &c->rank;
    const char *const names[] = {"tokens", "targets"};
    int32_t *host = feed_host(&r->feed);
    int batch = (int)(B / micros(c));
    for (int i = 0; i < 2; i++) {
        const cJSON *rows = cJSON_GetObjectItemCaseSensitive(c->facts, names[i]), *id;
        int32_t *at = host + (size_t)i * r->feed.tokens;
        for (int row = 0; row < batch; row++)
            cJSON_ArrayForEach(id, cJSON_GetArrayItem(rows, (int)micro * batch + row)) *at++ =
                id->valueint;
    }
}

// first_row: of the batch in the training data. With lr 0 a step changes no weight.
static struct StepResult run_step(struct Case *c, double lr, uint64_t first_row) {
    struct LrSchedule schedule = {.kind = SCHEDULE_CONSTANT, .lr = lr, .steps = STEPS + 1};
    static const struct AdamSettings adam = {0.9, 0.95, 1e-8, 0.1, 0};
    struct Zero *z = &c->rank.zero;
    struct StepState settings = schedule_step(&schedule, &adam, z->step, z->updates);
    zero_step_begin(z, &settings);
    for (size_t micro = 0; micro < micros(c); micro++) {
        fill_feed(c, micro);
        hf_rank_send(&c->rank);
        c->rank.acts.dloss = 1.0f / (B * T);
        c->rank.acts.first_row = first_row + micro * B / micros(c) * T;
        zero_step_pass(z, &z->pass[2 * micro], &c->rank.acts);
        zero_step_pass(z, &z->pass[2 * micro + 1], &c->rank.acts);
        feed_done(&c->rank.feed);
    }
    zero_step_end(z, false);
    return zero_step_wait(z);
}

// ---- what is expected ----

// A tensor of a file; free() it.
static float *tensor_of(const struct Safetensors *f, const char *prefix, const char *name,
                        size_t *count) {
    struct Error e = {0};
    char *full = base_format("%s%s", prefix, name);
    const struct Tensor *t = safetensors_find(f, full);
    if (!t)
        fail_msg("%s has no %s", f->path, full);
    *count = (size_t)t->count;
    float *x = base_alloc(*count * sizeof *x);
    CHECKED(safetensors_read(f, t, 0, *count, x, &e));
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

// In fp32 each element lies within `tolerance` of the tensor's largest; in bf16 the whole is a
// vector near the reference: some dozens of roundings deep, of 2^-9 each.
static void expect(const struct Case *c, const char *prefix, const char *name, struct Held held,
                   double tolerance) {
    bool near = c->dtype == F32 ? held.worst <= tolerance * held.most
                                : sqrt(held.difference) <= tolerance * sqrt(held.size);
    if (!near || held.most == 0)
        fail_msg("%s %s %s: %s%s is off by %.3g of %.3g, the whole by %.3g of its norm", c->folder,
                 c->kernels, dtype_name(c->dtype), prefix, name, held.worst, held.most,
                 sqrt(held.difference / held.size));
}

// A tensor that the reference has whole.
static void expect_tensor(const struct Case *c, const char *prefix, const char *name,
                          const float *got, size_t n, double tolerance) {
    struct HfPiece all = {.rows = n};
    size_t count;
    float *want = tensor_of(&c->reference, prefix, name, &count);
    assert_int_equal(count, n);
    expect(c, prefix, name, hold_piece(&all, got, want, n, 1), tolerance);
    free(want);
}

static void expect_logits(struct Case *c, double tolerance) {
    size_t rows;
    fill_feed(c, 0);
    float *got = hf_rank_logits(&c->rank, &rows);
    assert_int_equal(rows, B * T);
    expect_tensor(c, "logits", "", got, rows * c->rank.model.config.vocab, tolerance);
    free(got);
}

static void expect_loss(const struct Case *c, int step, const struct StepResult *r) {
    const cJSON *losses = cJSON_GetObjectItemCaseSensitive(c->facts, "losses");
    double loss = r->loss_sum / (B * T), want = cJSON_GetArrayItem(losses, step)->valuedouble;
    if (!(fabs(loss - want) <= (c->dtype == F32 ? 1e-5 : 5e-3) * want))
        fail_msg("%s %s: loss %d is %.9g, the reference has %.9g", c->folder, c->kernels, step,
                 loss, want);
}

// ---- in which ways ----

// Models by their folders; bf16: the tolerance in bf16. `check` runs a case. `after`: the tolerance
// of the weights after the last step; 0: they are not looked at.
struct Models {
    const char *const *folder;
    int count;
    double bf16;
    void (*check)(struct Case c, double tolerance, double after);
};

// In every kernel table of this CPU.
static void check_tables(const struct Models *m, enum Dtype d, double tolerance, double after) {
    static const char *const tables[] = {"oracle", "base", "avx2", "avx512", "avx512bf16", "amx"};
    enum { NTABLE = sizeof tables / sizeof tables[0] };
    for (int i = 0; i < m->count * NTABLE; i++)
        m->check((struct Case){.folder = m->folder[i / NTABLE],
                               .kernels = tables[i % NTABLE],
                               .dtype = d,
                               .threads = d == F32 ? 1 + i % 2 : 1},
                 tolerance, after);
}

static void check_fp32(const struct Models *m) {
    check_tables(m, F32, 1e-5, 1e-5);
}

static void check_bf16(const struct Models *m) {
    check_tables(m, BF16, m->bf16, 0);
}

// Activations made again are the same.
static void check_recompute(const struct Models *m) {
    for (int i = 0; i < m->count; i++)
        for (enum Recompute level = 1; level < NRECOMPUTE; level++)
            m->check(
                (struct Case){
                    .folder = m->folder[i], .kernels = "base", .recompute = level, .threads = 1},
                1e-5, 1e-5);
}

// On a GPU, or in the simulator, where this build has one.
static void check_gpu(const struct Models *m) {
    for (int i = 0; i < m->count && device_count_cuda() > 0; i++)
        for (enum Dtype d = F32; d <= BF16; d++)
            m->check((struct Case){.folder = m->folder[i],
                                   .kernels = "cuda",
                                   .device = DEVICE_CUDA,
                                   .dtype = d,
                                   .threads = 1},
                     d == F32 ? 1e-5 : m->bf16, d == F32 ? 1e-5 : 0);
}

#endif
