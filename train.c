// ./train: trains a GPT.
//
// From top to bottom: from options to a rank's settings; validation, samples and checkpoints; one
// step; the training loop; main. The flags are in data/options.c. What a step does is in
// zero/step.c, what the model computes in model/block.c, and where text becomes tokens in
// data/loader.c.
#include "data/cache.h"
#include "data/data.h"
#include "data/file.h"
#include "data/log.h"
#include "data/machine.h"
#include "data/options.h"
#include "data/progress.h"
#include "data/tensorboard.h"
#include "kernels/features.h"
#include "kernels/speed.h"
#include "model/sample.h"
#include "zero/checkpoint.h"
#include "zero/rank.h"
#include "zero/schedule.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- from flags to settings ----

static void fill(size_t *value, size_t otherwise) {
    if (!*value)
        *value = otherwise;
}

// Replaces every 0 that means "the usual" by its value.
static int resolve(struct Options *o, struct Error *e) {
    const struct ModelPreset *p = model_preset(o->model);
    if (!p)
        return error_set(e, -EINVAL,
                         "--model %s: expected tiny, gpt2, gpt2-medium, gpt2-large or gpt2-xl",
                         o->model);
    fill(&o->layers, p->layers);
    fill(&o->heads, p->heads);
    fill(&o->channels, p->channels);
    fill(&o->seq_len, p->seq_len);
    fill(&o->global_batch, o->batch);
    fill(&o->threads, machine_cores());
    if (o->grad_dtype == GRAD_AUTO)
        o->grad_dtype = o->dtype == F32 || o->global_batch > o->batch ? GRAD_FP32 : GRAD_BF16;
    return 0;
}

static int settings_of(const struct Options *o, size_t vocab, struct RankSettings *s,
                       struct Error *e) {
    *s = (struct RankSettings){
        .model = {.layers = o->layers,
                  .heads = o->heads,
                  .channels = o->channels,
                  .seq_len = o->seq_len,
                  .vocab = vocab,
                  .dtype = (enum Dtype)o->dtype},
        .recompute = (enum Recompute)o->recompute,
        .batch = o->batch,
        .nmicro = o->global_batch / o->batch,
        .grad_dtype = o->grad_dtype == GRAD_BF16 ? BF16 : F32,
        .stage = o->zero,
        .threads = (int)o->threads,
        .kernels = o->kernels,
        .device_bytes = o->device_mem ? o->device_mem : SIZE_MAX,
    };
    return model_config_finish(&s->model, e);
}

// What a resume may not change: the flags that shape the numbers, and the data.
static char *identity_of(const struct Flags *f, const struct Data *data) {
    char *flags = options_identity(f);
    char *text = base_format("vocabulary %zu\ndata %016llx\n%s", data_vocab(data),
                             (unsigned long long)data_fingerprint(data), flags);
    free(flags);
    return text;
}

// ---- a run ----

enum { MAX_SKIPPED = 10 }; // steps in a row with a gradient that is not finite, before giving up

struct Trainer {
    const struct Options *o;
    struct Flags *flags;
    struct Data *data;
    struct Rank rank;
    char *identity, *checkpoints;
    struct RunLog log;
    struct EventFile events;
    struct Progress progress;
    double flops_per_token, light; // FLOP/s that the machine's matmul reaches
    uint64_t saved;                // step of the last checkpoint
};

static volatile sig_atomic_t stop_requested; // the one thing a signal can reach

static void on_signal(int number) {
    if (stop_requested)
        _exit(128 + number);
    stop_requested = 1;
}

// Puts n samples on their way to the device, from `first` on: of the endless training order, or of
// the validation data.
static int send_batch(struct Trainer *t, bool train, uint64_t first, size_t n, struct Error *e) {
    int32_t *inputs = feed_host(&t->rank.feed), *targets = inputs + t->rank.feed.tokens;
    int err = train ? data_train_batch(t->data, first, n, inputs, targets, e)
                    : data_val_batch(t->data, first, n, inputs, targets, e);
    if (!err)
        feed_send(&t->rank.feed);
    return err;
}

static void take_batch(struct Trainer *t) {
    t->rank.acts.tokens = feed_take(&t->rank.feed);
    t->rank.acts.targets = t->rank.acts.tokens + t->rank.feed.tokens;
}

// The mean loss of the first `samples` validation sequences; nothing of use once a stop is
// requested.
static int validate(struct Trainer *t, uint64_t samples, float *loss, struct Error *e) {
    struct Acts *acts = &t->rank.acts;
    double sum = 0;
    int err = 0;
    for (uint64_t i = 0; i < samples && !err && !stop_requested; i += acts->b) {
        acts->b = samples - i >= acts->b_max ? acts->b_max : 1;
        err = send_batch(t, false, i, acts->b, e);
        if (err)
            break;
        take_batch(t);
        sum += zero_eval(&t->rank.zero, acts);
        feed_done(&t->rank.feed);
    }
    acts->b = acts->b_max;
    *loss = (float)(sum / (double)(samples * acts->t));
    return err;
}

static int validate_and_log(struct Trainer *t, uint64_t samples, struct Error *e) {
    uint64_t step = t->rank.zero.step;
    float loss;
    int err = validate(t, samples, &loss, e);
    if (stop_requested)
        return err;
    if (!err)
        err = runlog_write_val(&t->log, step, loss, e);
    if (!err && t->o->tensorboard)
        err = event_file_write_val(&t->events, step, loss, e);
    if (!err)
        progress_message(&t->progress, "step %llu  validation loss %.4f  (%llu sequences)",
                         (unsigned long long)step, (double)loss, (unsigned long long)samples);
    return err;
}

static int print_sample(struct Trainer *t, struct Error *e) {
    const struct Tokenizer *tokenizer = data_tokenizer(t->data);
    struct Ids ids = {0};
    int err = tokenizer_encode(tokenizer, t->o->prompt, strlen(t->o->prompt), &ids, e);
    if (!err && ids.count == 0)
        err = error_set(e, -EINVAL, "--prompt is empty: expected at least one token");
    if (!err) {
        int32_t *text = base_alloc((ids.count + t->o->sample_tokens) * sizeof *text);
        memcpy(text, ids.data, ids.count * sizeof *text);
        struct Sampling s = {(float)t->o->temperature, t->o->top_k, t->o->seed};
        rank_generate(&t->rank, text, ids.count, t->o->sample_tokens, &s);
        size_t bytes;
        char *out = tokenizer_decode(tokenizer, text, ids.count + t->o->sample_tokens, &bytes);
        progress_message(&t->progress, "--- sample at step %llu ---\n%s\n---",
                         (unsigned long long)t->rank.zero.step, out);
        free(out);
        free(text);
    }
    ids_free(&ids);
    return err;
}

static int save(struct Trainer *t, struct Error *e) {
    if (t->saved == t->rank.zero.step)
        return 0;
    int err = checkpoint_save(&t->rank.zero, t->checkpoints, t->identity, t->o->keep, e);
    if (!err)
        t->saved = t->rank.zero.step;
    return err;
}

// ---- one step ----

static struct StepState step_settings(const struct Options *o, uint64_t done) {
    struct LrSchedule schedule = {
        (enum Schedule)o->schedule, o->lr, o->min_lr, o->warmup, o->steps, o->decay_share};
    struct AdamSettings adam = {o->beta1, o->beta2, o->eps, o->weight_decay, o->clip};
    return schedule_step(&schedule, &adam, done);
}

// Queues the step after z->step and waits for its loss. The next micro-batch is read while the
// device works.
static int train_step(struct Trainer *t, struct LogStep *out, struct Error *e) {
    struct Rank *r = &t->rank;
    size_t nmicro = r->zero.plan.nmicro, b = r->acts.b;
    double start = base_seconds(), tokens = (double)(t->o->global_batch * t->o->seq_len);
    uint64_t first = r->zero.step * t->o->global_batch;
    struct StepState settings = step_settings(t->o, r->zero.step);
    int err = send_batch(t, true, first, b, e);
    if (err)
        return err;
    for (size_t micro = 0; micro < nmicro; micro++) {
        take_batch(t);
        r->acts.dloss = (float)(1 / tokens);
        zero_step_micro(&r->zero, &r->acts);
        feed_done(&r->feed);
        if (micro + 1 < nmicro)
            err = send_batch(t, true, first + (micro + 1) * b, b, e);
        if (err)
            return err;
    }
    zero_step_end(&r->zero, &settings);
    struct StepResult result = zero_step_wait(&r->zero);
    double seconds = base_seconds() - start;
    *out = (struct LogStep){r->zero.step,     (float)(result.loss_sum / tokens),
                            result.grad_norm, settings.lr,
                            tokens / seconds, seconds * 1e3};
    if (result.skipped)
        progress_message(&t->progress,
                         "step %llu: the gradient is not finite, the update was skipped",
                         (unsigned long long)r->zero.step);
    return 0;
}

// ---- the loop ----

static double measure_light(void *context) {
    struct Trainer *t = context;
    return matmul_speed_of_light(t->rank.device, t->rank.model.config.dtype);
}

// The usual count: 6 per parameter and token, and causal attention's 6 L C T (Chowdhery et al.
// 2022, PaLM, appendix B, halved for the causal mask).
static void find_light(struct Trainer *t) {
    const struct ModelConfig *c = &t->rank.model.config;
    t->flops_per_token =
        6.0 * (double)t->rank.params.real + 6.0 * (double)(c->layers * c->channels * c->seq_len);
    char name[128];
    snprintf(name, sizeof name, "matmul FLOP/s, %s, %zu threads, %s", dtype_name(c->dtype),
             t->o->threads, t->rank.device->kernels->name);
    t->light = machine_measured(t->o->cache, name, measure_light, t);
}

static int log_step(struct Trainer *t, const struct LogStep *s, struct Error *e) {
    struct ProgressStep p = {s->step,         s->loss,
                             s->grad_norm,    s->lr,
                             s->tokens_per_s, s->tokens_per_s * t->flops_per_token / t->light};
    progress_show(&t->progress, &p);
    int err = runlog_write_step(&t->log, s, e);
    return err || !t->o->tensorboard ? err : event_file_write_step(&t->events, s, e);
}

static bool is_due(uint64_t step, size_t every) {
    return every && step % every == 0;
}

static int after_step(struct Trainer *t, struct Error *e) {
    const struct Options *o = t->o;
    uint64_t step = t->rank.zero.step, all = data_val_samples(t->data);
    uint64_t some = o->val_batches * o->batch < all ? o->val_batches * o->batch : all;
    int err = 0;
    if (is_due(step, o->val_every) && step < o->steps)
        err = validate_and_log(t, some, e);
    if (!err && step > 0 && is_due(step, o->sample_every))
        err = print_sample(t, e);
    if (!err && step > 0 && is_due(step, o->save_every))
        err = save(t, e);
    return err;
}

static int train(struct Trainer *t, struct Error *e) {
    struct Zero *z = &t->rank.zero;
    int err = z->step == 0 ? after_step(t, e) : 0;
    size_t skipped = 0;
    while (!err && z->step < t->o->steps && !stop_requested) {
        struct LogStep s;
        err = train_step(t, &s, e);
        if (!err)
            err = log_step(t, &s, e);
        skipped = isfinite(s.grad_norm) ? 0 : skipped + 1;
        if (!err && skipped == MAX_SKIPPED)
            err = error_set(e, -EDOM,
                            "the gradient was not finite in %d steps in a row: try a lower --lr",
                            MAX_SKIPPED);
        if (!err)
            err = after_step(t, e);
    }
    if (!err)
        err = save(t, e);
    if (!err && !stop_requested)
        err = validate_and_log(t, data_val_samples(t->data), e);
    progress_close(&t->progress);
    return err;
}

static int open_logs(struct Trainer *t, struct Error *e) {
    int64_t last = t->rank.zero.step ? (int64_t)t->rank.zero.step : RUNLOG_FRESH;
    char *config = base_format("%s/config.json", t->o->out);
    int err = flags_save_json(t->flags, config, e);
    free(config);
    if (!err)
        err = runlog_open(&t->log, t->o->out, last, e);
    if (!err && t->o->tensorboard)
        err = event_file_open(&t->events, t->o->out, last, e);
    return err;
}

// Opens the rank, finds its weights, and trains or samples.
static int run(struct Trainer *t, const struct RankSettings *s, struct Error *e) {
    int err = rank_open(&t->rank, s, false, e);
    if (err)
        return err;
    zero_init_weights(&t->rank.zero, t->o->seed);
    t->saved = UINT64_MAX;
    if (t->o->resume) {
        err = checkpoint_resume(&t->rank.zero, t->checkpoints, t->o->resume, t->identity, e);
        t->saved = t->rank.zero.step ? t->rank.zero.step : UINT64_MAX;
    }
    if (err)
        return err;
    uint64_t done = t->rank.zero.step;
    progress_open(&t->progress, stdout, done, t->o->steps, t->o->log_every);
    if (t->o->sample_only)
        return print_sample(t, e);
    if (done)
        log_line(LOG_NORMAL, "resumed after step %llu", (unsigned long long)done);
    err = open_logs(t, e);
    if (err)
        return err;
    find_light(t);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    err = train(t, e);
    if (!err)
        printf("weights hash: %016llx\n", (unsigned long long)zero_weights_hash(&t->rank.zero));
    return err;
}

static void trainer_close(struct Trainer *t, struct Error *e) {
    struct Error ignored;
    if (runlog_close(&t->log, e->text[0] ? &ignored : e) != 0 && !e->text[0])
        error_set(e, -EIO, "cannot write the log in --out %s", t->o->out);
    event_file_close(&t->events, &ignored);
    rank_close(&t->rank);
    data_close(t->data);
    free(t->identity);
    free(t->checkpoints);
}

// From resolved options to the end of the run.
static int start(struct Trainer *t, struct Error *e) {
    const struct Options *o = t->o;
    struct DataSpec spec = {.data = o->data,
                            .val_data = o->val_data,
                            .tokenizer = o->tokenizer,
                            .cache_dir = o->cache,
                            .seq_len = o->seq_len,
                            .vocab = o->vocab,
                            .seed = o->seed};
    struct RankSettings settings;
    t->checkpoints = base_format("%s/checkpoints", o->out);
    char *found;
    uint64_t step;
    int err = checkpoint_find(t->checkpoints, UINT64_MAX, &found, &step, e);
    if (err == 1) {
        free(found);
        if (!o->resume && !o->plan)
            return error_set(
                e, -EEXIST,
                "--out %s holds a checkpoint of step %llu: add --resume auto, or choose another "
                "folder",
                o->out, (unsigned long long)step);
    }
    if (err < 0)
        return err;
    err = settings_of(o, 1, &settings, e); // what is wrong without knowing the vocabulary
    if (!err)
        err = data_open(&t->data, &spec, e);
    if (!err)
        err = settings_of(o, data_vocab(t->data), &settings, e);
    if (!err)
        err = rank_plan(&settings, machine_resident_bytes(), machine_free_bytes(), e);
    if (err || o->plan)
        return err;
    t->identity = identity_of(t->flags, t->data);
    err = file_make_folder(o->out, "--out", e);
    return err ? err : run(t, &settings, e);
}

// Reads the line, and where a run is resumed the configuration that it was started with.
static int read_options(struct Flags *f, struct Options *o, int argc, char **argv,
                        struct Error *e) {
    int err = flags_parse(f, argc, argv, e);
    if (err || o->help || o->version)
        return err;
    char *saved = base_format("%s/config.json", o->out);
    if (o->resume && !o->config && access(saved, R_OK) == 0)
        err = flags_load_json(f, saved, e);
    free(saved);
    if (!err)
        err = resolve(o, e);
    return err ? err : options_check(o, e);
}

int main(int argc, char **argv) {
    struct Options o;
    struct Flags flags;
    struct Error e = {{0}};
    flags_init(&flags, options_table, options_count, &o);
    char *cache = cache_default_folder();
    int err = read_options(&flags, &o, argc, argv, &e);
    if (!err && o.help) {
        options_print_help(stdout);
    } else if (!err && o.version) {
        printf("zero.c\n%s", features_table());
    } else if (!err) {
        if (!o.cache)
            o.cache = cache;
        struct Trainer t = {.o = &o, .flags = &flags, .log.fd = -1, .events.fd = -1};
        err = start(&t, &e);
        trainer_close(&t, &e);
    }
    if (!err && (fflush(stdout) != 0 || ferror(stdout)))
        err = error_set(&e, -EIO, "cannot write to standard output");
    if (e.text[0])
        fprintf(stderr, "train: %s\n", e.text);
    flags_free(&flags);
    free(cache);
    return err || e.text[0] ? 2 : 0;
}
