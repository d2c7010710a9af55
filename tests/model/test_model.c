// The whole model against PyTorch: one training step of a GPT-2 of two layers, its loss and every
// gradient, then ten AdamW steps, in every kernel table this CPU runs. tests/torch/torch_gpt2.py
// made the values, and held them against Hugging Face's GPT-2.
#include "zero/state.h"
#include "kernels/cpu/cpu.h"
#include "tests/lib/test.h"
#include "tests/lib/values.h"
#include "zero/rank/rank.h"
#include "zero/settings/schedule.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { L = 2, V = 211, T = 17, B = 3, C = 36, NH = 4, STEPS = 10 };

struct Setup {
    const char *kernels; // table; NULL: the fastest
    enum Dtype dtype, grad_dtype;
    enum Recompute recompute;
    size_t nmicro; // micro-batches that a step's three sequences are cut into: 1 or 3
    int threads;
    size_t logit_rows; // of the head at a time; 0: what the model chooses, here all of them
};

static struct Values *values;

static int open_values(void **state) {
    (void)state;
    values = values_open("tests/fixtures/torch/gpt2_step.val");
    static const int32_t want[] = {L, V, T, B, C, NH, STEPS};
    return memcmp(values_i32(values, "sizes", 7), want, sizeof want);
}

static int close_values(void **state) {
    (void)state;
    values_close(values);
    return 0;
}

// The name of a parameter in the file.
static const char *full_name(const char *prefix, const struct Group *g, const struct Param *p) {
    static char name[64];
    snprintf(name, sizeof name, "%s%s.%s", prefix, g->name, p->name);
    return name;
}

static void load_weights(struct Rank *r) {
    zero_init_weights(&r->zero, 1);
    for (int g = 0; g < r->params.ngroup; g++) {
        const struct Group *group = &r->params.group[g];
        float *master = zero_master(&r->zero, g);
        device_sync_queue(r->device, QUEUE_COMPUTE);
        device_zero(r->device, QUEUE_IN, master, group->padded * sizeof *master);
        for (int i = 0; i < group->nparam; i++) {
            const struct Param *p = &group->param[i];
            if (!p->real)
                continue; // another family's
            const float *x = values_f32(values, full_name("", group, p), p->real);
            device_copy(r->device, QUEUE_IN, master + p->offset, x, p->real * sizeof *x);
        }
        device_sync_queue(r->device, QUEUE_IN);
    }
    zero_store_params(&r->zero, false);
}

// False where this CPU lacks the table's instructions.
static bool open_rank(struct Rank *r, const struct Setup *s) {
    struct RankSettings settings = {.recompute = s->recompute, .batch = B / s->nmicro};
    settings.model = (struct ModelConfig){.layers = L, .heads = NH, .channels = C, .seq_len = T};
    settings.model.vocab = V;
    settings.model.dtype = s->dtype;
    settings.nmicro = s->nmicro;
    settings.grad_dtype = s->grad_dtype;
    settings.threads = s->threads;
    settings.kernels = s->kernels;
    settings.device_bytes = SIZE_MAX;
    settings.ranks = 1;
    struct Error e = {0};
    if (model_config_finish(&settings.model, &e))
        fail_msg("%s", e.text);
    int err = rank_open(r, &settings, false, &e);
    if (err == -ENOTSUP) {
        print_message("not tested on this CPU: %s\n", e.text);
        rank_close(r);
        return false;
    }
    if (err)
        fail_msg("%s", e.text);
    if (s->logit_rows) { // other shapes, so the scratch is measured anew
        model_close(&r->model);
        r->acts.logit_rows = s->logit_rows;
        if (model_open(&r->model, &r->acts, &r->tier[TIER_DEVICE], &e))
            fail_msg("%s", e.text);
    }
    load_weights(r);
    return true;
}

// Sends batch `step` in micro-batches and takes one training step on it, without waiting.
static struct StepResult run_step(struct Rank *r, size_t step, size_t nmicro) {
    static const struct LrSchedule schedule = {
        .kind = SCHEDULE_CONSTANT, .lr = 1e-3, .steps = STEPS};
    static const struct AdamSettings adam = {0.9, 0.95, 1e-8, 0.1, 1.0};
    size_t micro = B * T / nmicro;
    const int32_t *inputs = values_i32(values, "inputs", (STEPS + 1) * B * T) + step * B * T;
    const int32_t *targets = values_i32(values, "targets", (STEPS + 1) * B * T) + step * B * T;
    struct StepState settings = schedule_step(&schedule, &adam, r->zero.step, r->zero.updates);
    zero_step_begin(&r->zero, &settings);
    for (size_t i = 0; i < nmicro; i++) {
        int32_t *host = feed_host(&r->feed);
        memcpy(host, inputs + i * micro, micro * sizeof *host);
        memcpy(host + r->feed.tokens, targets + i * micro, micro * sizeof *host);
        feed_send(&r->feed);
        r->acts.tokens = feed_next(&r->feed);
        r->acts.targets = r->acts.tokens + r->feed.tokens;
        r->acts.dloss = 1.0f / (B * T);
        zero_step_pass(&r->zero, &r->zero.pass[2 * i], &r->acts);
        zero_step_pass(&r->zero, &r->zero.pass[2 * i + 1], &r->acts);
        feed_done(&r->feed);
    }
    zero_step_end(&r->zero, false);
    return zero_step_wait(&r->zero);
}

// The stored elements of one parameter, as fp32. free() it.
static float *fetch(struct Rank *r, const void *group, enum Dtype d, const struct Param *p) {
    size_t n = p->rows * p->cols;
    void *stored = base_alloc(n * dtype_size(d));
    float *x = base_alloc(n * sizeof *x);
    device_sync_queue(r->device, QUEUE_COMPUTE);
    device_copy(r->device, QUEUE_OUT, stored, dtype_at(group, d, p->offset), n * dtype_size(d));
    device_sync_queue(r->device, QUEUE_OUT);
    for (size_t i = 0; i < n; i++)
        x[i] = dtype_load(stored, d, i);
    free(stored);
    return x;
}

static double largest(const float *x, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

// Fails unless each element lies within `tolerance` of the tensor's largest value, and the padding
// is 0.
static void expect_tensor(const struct Setup *s, const char *name, const struct Param *p,
                          const float *got, double tolerance) {
    const float *want = values_f32(values, name, p->real);
    double limit = tolerance * largest(want, p->real);
    for (size_t i = 0; i < p->rows * p->cols; i++) {
        double x = i < p->real ? want[i] : 0;
        if (!(fabs(got[i] - x) <= (i < p->real ? limit : 0)))
            fail_msg("%s %s: %s[%zu] is %.9g, PyTorch says %.9g (give or take %.2g)", s->kernels,
                     dtype_name(s->dtype), name, i, got[i], x, limit);
    }
}

static void expect_gradients(struct Rank *r, const struct Setup *s, double tolerance) {
    for (int g = 0; g < r->params.ngroup; g++) {
        const struct Group *group = &r->params.group[g];
        for (int i = 0; i < group->nparam; i++) {
            const struct Param *p = &group->param[i];
            if (!p->real)
                continue;
            float *got = fetch(r, r->zero.state[g].grad.mem, s->grad_dtype, p);
            expect_tensor(s, full_name("grad.", group, p), p, got, tolerance);
            free(got);
        }
    }
}

static void expect_near(const struct Setup *s, const char *what, size_t step, double got,
                        double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%s %s: %s of step %zu is %.9g, PyTorch says %.9g", s->kernels,
                 dtype_name(s->dtype), what, step, got, want);
}

static const char *const tables[] = {"oracle", "base", "avx2", "avx512", "avx512bf16", "amx"};
enum { NTABLES = sizeof tables / sizeof tables[0] };

// One step in fp32: the loss, the norm and every gradient within 1e-5.
static void check_step(const struct Setup *s) {
    struct Rank r;
    if (!open_rank(&r, s))
        return;
    struct StepResult result = run_step(&r, 0, s->nmicro);
    expect_near(s, "loss", 0, result.loss_sum / (B * T), *values_f32(values, "losses", STEPS + 1),
                1e-5);
    expect_near(s, "norm", 0, result.grad_norm, *values_f32(values, "norms", STEPS), 1e-5);
    expect_gradients(&r, s, 1e-5);
    rank_close(&r);
}

TEST(test_step) {
    for (size_t i = 0; i < NTABLES; i++)
        for (int threads = 1; threads <= 2; threads++)
            check_step(&(struct Setup){.kernels = tables[i], .nmicro = 1, .threads = threads});
}

// The same from three micro-batches of one sequence, and with activations made again.
TEST(test_step_accumulated) {
    for (size_t i = 0; i < NTABLES; i++)
        for (enum Recompute level = 0; level < NRECOMPUTE; level++)
            check_step(&(struct Setup){
                .kernels = tables[i], .recompute = level, .nmicro = 3, .threads = 2});
}

// The head in chunks of rows, of which the last is smaller.
TEST(test_step_chunked) {
    for (size_t i = 0; i < NTABLES; i++)
        check_step(
            &(struct Setup){.kernels = tables[i], .nmicro = 1, .threads = 2, .logit_rows = 16});
}

// A key's bias moves no loss: its gradient is rounding noise, and what AdamW makes of that is not
// compared. The file holds 0 for it.
static void drop_key_bias(const struct Param *p, float *x) {
    if (strcmp(p->name, "attention.qkv.bias") == 0)
        memset(x + C, 0, C * sizeof *x);
}

// Ten steps in fp32: all losses and norms within 1e-5, the weights within 1e-4 of each largest.
TEST(test_ten_steps) {
    const float *losses = values_f32(values, "losses", STEPS + 1);
    const float *norms = values_f32(values, "norms", STEPS);
    for (size_t t = 0; t < NTABLES; t++) {
        struct Setup s = {.kernels = tables[t], .nmicro = 1, .threads = 2};
        struct Rank r;
        if (!open_rank(&r, &s))
            continue;
        for (size_t i = 0; i < STEPS; i++) {
            struct StepResult result = run_step(&r, i, 1);
            expect_near(&s, "loss", i, result.loss_sum / (B * T), losses[i], 1e-5);
            expect_near(&s, "norm", i, result.grad_norm, norms[i], 1e-5);
        }
        for (int g = 0; g < r.params.ngroup; g++) {
            for (int i = 0; i < r.params.group[g].nparam; i++) {
                const struct Param *p = &r.params.group[g].param[i];
                if (!p->real)
                    continue;
                float *got = fetch(&r, zero_master(&r.zero, g), F32, p);
                drop_key_bias(p, got);
                expect_tensor(&s, full_name("last.", &r.params.group[g], p), p, got, 1e-4);
                free(got);
            }
        }
        struct StepResult result = run_step(&r, STEPS, 1);
        expect_near(&s, "loss", STEPS, result.loss_sum / (B * T), losses[STEPS], 1e-5);
        rank_close(&r);
    }
}

// The loss without a backward pass is the training loss.
TEST(test_eval) {
    for (size_t t = 0; t < NTABLES; t++) {
        struct Setup s = {.kernels = tables[t], .nmicro = 1, .threads = 2, .logit_rows = 16};
        struct Rank r;
        if (!open_rank(&r, &s))
            continue;
        int32_t *host = feed_host(&r.feed);
        memcpy(host, values_i32(values, "inputs", (STEPS + 1) * B * T), B * T * sizeof *host);
        memcpy(host + B * T, values_i32(values, "targets", (STEPS + 1) * B * T),
               B * T * sizeof *host);
        feed_send(&r.feed);
        r.acts.tokens = feed_next(&r.feed);
        r.acts.targets = r.acts.tokens + r.feed.tokens;
        double loss = zero_eval(&r.zero, &r.acts, true, false).loss_sum / (B * T);
        feed_done(&r.feed);
        expect_near(&s, "validation loss", 0, loss, *values_f32(values, "losses", STEPS + 1), 1e-5);
        rank_close(&r);
    }
}

// In bf16 each gradient is a vector near PyTorch's fp32 one: 2^-9 of relative error per rounding,
// some dozens of roundings deep. A wrong term would be off by its whole size.
static void expect_direction(struct Rank *r, const struct Setup *s, int g, const struct Param *p) {
    const char *name = full_name("grad.", &r->params.group[g], p);
    const float *want = values_f32(values, name, p->real);
    float *got = fetch(r, r->zero.state[g].grad.mem, s->grad_dtype, p);
    double difference = 0, size = 0;
    for (size_t i = 0; i < p->real; i++) {
        difference += pow(got[i] - want[i], 2);
        size += pow(want[i], 2);
    }
    free(got);
    if (!(sqrt(difference / size) <= 0.02))
        fail_msg("%s bf16: %s is off by %g of its norm", s->kernels, name, sqrt(difference / size));
}

TEST(test_bf16) {
    for (size_t i = 0; i < 2 * NTABLES; i++) {
        struct Setup s = {.kernels = tables[i / 2], .dtype = BF16, .nmicro = 1, .threads = 2};
        s.grad_dtype = i % 2 ? F32 : BF16;
        struct Rank r;
        if (!open_rank(&r, &s))
            continue;
        for (size_t step = 0; step < STEPS; step++) {
            double loss = run_step(&r, step, 1).loss_sum / (B * T);
            expect_near(&s, "loss", step, loss, values_f32(values, "losses", STEPS + 1)[step],
                        2e-3);
            for (int g = 0; step == 0 && g < r.params.ngroup; g++)
                for (int j = 0; j < r.params.group[g].nparam; j++)
                    if (r.params.group[g].param[j].real)
                        expect_direction(&r, &s, g, &r.params.group[g].param[j]);
        }
        rank_close(&r);
    }
}

// Rows of logits at a time, of one model and of `rows` rows: piece_bytes hold 1000 of them.
static size_t chunk_of(size_t rows, size_t piece_rows) {
    struct ModelConfig c = {
        .layers = 2, .heads = 1, .channels = 8, .seq_len = rows, .vocab = 512, .dtype = BF16};
    struct Error e;
    struct Tier dry;
    struct Acts acts;
    assert_int_equal(model_config_finish(&c, &e), 0);
    struct ActsSpec spec = {.b = 1,
                            .t = rows,
                            .slots = 2,
                            .piece_bytes = 1000 * c.vocab_padded * sizeof(uint16_t),
                            .piece_rows = piece_rows};
    tier_init(&dry, TIER_DEVICE, NULL, SIZE_MAX);
    assert_int_equal(acts_open(&acts, &c, &spec, &dry, &e), 0);
    size_t chunk = acts.logit_rows;
    assert_int_equal(acts.logits_block.bytes, chunk * c.vocab_padded * sizeof(uint16_t));
    acts_close(&acts);
    return chunk;
}

// Equal chunks; where a device wants whole tiles, multiples of them that piece_bytes still hold.
TEST(test_chunks) {
    assert_int_equal(chunk_of(1000, 1), 1000);
    assert_int_equal(chunk_of(1001, 1), 501);
    assert_int_equal(chunk_of(2048, 1), 683);
    assert_int_equal(chunk_of(2048, 256), 768); // 768, 768, 512
    assert_int_equal(chunk_of(1001, 256), 512);
    assert_int_equal(chunk_of(700, 256), 700);
    assert_int_equal(chunk_of(2048, 1000), 683); // no more than a tile: as it comes
}

AROUND_ALL(open_values, close_values);
