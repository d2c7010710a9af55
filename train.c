// ./train: trains a GPT.
//
// From top to bottom: from options to a rank's settings; validation, samples and checkpoints; one
// step; the training loop; main. The flags are in data/options.c. What a step does is in
// zero/step.c, what the model computes in model/block.c, and where text becomes tokens in
// data/loader.c.
#include "data/cache.h"
#include "data/data.h"
#include "data/file.h"
#include "data/machine.h"
#include "data/options.h"
#include "data/progress.h"
#include "data/report.h"
#include "kernels/features.h"
#include "kernels/speed.h"
#include "model/sample.h"
#include "zero/checkpoint.h"
#include "zero/rank.h"
#include "zero/schedule.h"

#include <ctype.h>
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
    if (o->plan && !o->data)
        o->data = "random"; // memory does not depend on the text
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
        .model = {o->layers, o->heads, o->channels, o->seq_len, vocab,
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

// ---- a run ----

enum { MAX_SKIPPED = 10 }; // steps in a row with a gradient that is not finite, before giving up

struct Trainer {
    const struct Options *o;
    struct Flags *flags;
    struct Data *data;
    struct Rank rank;
    char *identity, *checkpoints;
    struct Report report;
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

// What a resume may not change: the flags that shape the numbers, the kernels, and the text.
static char *identity_of(const struct Trainer *t) {
    char *flags = options_identity(t->flags, t->o);
    char *text = base_format("vocabulary %zu\ntext of --data, --val-data, --tokenizer %016llx\n"
                             "--kernels %s\n%s",
                             data_vocab(t->data), (unsigned long long)data_fingerprint(t->data),
                             t->rank.device->kernels->name, flags);
    free(flags);
    return text;
}

static int read_train(void *trainer, uint64_t first, size_t n, int32_t *inputs, int32_t *targets,
                      struct Error *e) {
    return data_train_batch(((struct Trainer *)trainer)->data, first, n, inputs, targets, e);
}

static int read_val(void *trainer, uint64_t first, size_t n, int32_t *inputs, int32_t *targets,
                    struct Error *e) {
    if (stop_requested)
        return error_set(e, -EINTR, "stopped");
    return data_val_batch(((struct Trainer *)trainer)->data, first, n, inputs, targets, e);
}

// The loss of the first `samples` validation sequences; none if a stop is requested meanwhile.
static int validate(struct Trainer *t, uint64_t samples, struct Error *e) {
    uint64_t step = t->rank.zero.step;
    float loss;
    int err = rank_validate(&t->rank, read_val, t, samples, &loss, e);
    if (err == -EINTR) {
        e->text[0] = '\0';
        return 0;
    }
    if (!err)
        err = report_val(&t->report, step, loss, e);
    if (!err)
        progress_message(&t->progress, "step %llu  validation loss %.4f  (%llu sequences)",
                         (unsigned long long)step, (double)loss, (unsigned long long)samples);
    return err;
}

// The ids of --prompt, at least one. For ids without a tokenizer the default prompt is id 0.
static int read_prompt(struct Trainer *t, struct Ids *ids, struct Error *e) {
    const char *prompt = t->o->prompt;
    int err = tokenizer_encode(data_tokenizer(t->data), prompt, strlen(prompt), ids, e);
    if (!err && !ids->count && !flags_was_set(t->flags, "prompt"))
        ids_append(ids, 0);
    if (!err && !ids->count)
        err = error_set(e, -EINVAL, "--prompt \"%s\": expected at least one token", prompt);
    return err;
}

static int print_sample(struct Trainer *t, struct Error *e) {
    struct Ids ids = {0};
    int err = read_prompt(t, &ids, e);
    if (!err) {
        size_t bytes, count = ids.count + t->o->sample_tokens;
        int32_t *text = base_alloc(count * sizeof *text);
        memcpy(text, ids.data, ids.count * sizeof *text);
        struct Sampling s = {(float)t->o->temperature, t->o->top_k, t->o->seed};
        rank_generate(&t->rank, text, ids.count, t->o->sample_tokens, &s);
        char *out = tokenizer_decode(data_tokenizer(t->data), text, count, &bytes);
        for (size_t i = 0; i < bytes; i++) // no terminal is to obey what a model says
            if (iscntrl((unsigned char)out[i]) && out[i] != '\n' && out[i] != '\t')
                out[i] = '?';
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
    int err = feed_read(&r->feed, read_train, t, first, b, e);
    if (err)
        return err;
    for (size_t micro = 0; micro < nmicro; micro++) {
        rank_take_batch(r);
        r->acts.dloss = (float)(1 / tokens);
        zero_step_micro(&r->zero, &r->acts);
        feed_done(&r->feed);
        if (micro + 1 < nmicro)
            err = feed_read(&r->feed, read_train, t, first + (micro + 1) * b, b, e);
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

static void find_light(struct Trainer *t) {
    t->flops_per_token = rank_flops_per_token(&t->rank);
    char name[128];
    snprintf(name, sizeof name, "matmul FLOP/s, %s, %zu threads, %s",
             dtype_name(t->rank.model.config.dtype), t->o->threads, t->rank.device->kernels->name);
    t->light = machine_measured(t->o->cache, name, measure_light, t);
}

static int log_step(struct Trainer *t, const struct LogStep *s, struct Error *e) {
    struct ProgressStep p = {s->step,         s->loss,
                             s->grad_norm,    s->lr,
                             s->tokens_per_s, s->tokens_per_s * t->flops_per_token / t->light};
    progress_show(&t->progress, &p);
    return report_step(&t->report, s, e);
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
        err = validate(t, some, e);
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
        struct LogStep s = {0};
        err = train_step(t, &s, e);
        if (!err)
            err = log_step(t, &s, e);
        skipped = isfinite(s.grad_norm) ? 0 : skipped + 1;
        if (!err && skipped == MAX_SKIPPED)
            err = error_set(e, -EDOM, "the gradient was not finite in %d steps: try a lower --lr",
                            MAX_SKIPPED);
        if (!err)
            err = after_step(t, e);
    }
    struct Error ignored; // what went wrong is told, and the steps that were made are kept
    if (err && t->saved != z->step && z->step > 0)
        save(t, &ignored);
    if (!err)
        err = save(t, e);
    if (!err && !stop_requested)
        err = validate(t, data_val_samples(t->data), e);
    progress_close(&t->progress);
    return err;
}

static int open_out(struct Trainer *t, struct Error *e) {
    int64_t last = t->rank.zero.step ? (int64_t)t->rank.zero.step : RUNLOG_FRESH;
    char *config = base_format("%s/config.json", t->o->out);
    int err = file_make_folder(t->o->out, "--out", e);
    if (!err)
        err = flags_save_json(t->flags, config, e);
    free(config);
    return err ? err : report_open(&t->report, t->o->out, last, t->o->tensorboard, e);
}

// Gives the rank its weights: those of a checkpoint, or fresh ones. A sample needs the weights
// alone, so any checkpoint of this shape will do.
static int find_weights(struct Trainer *t, uint64_t newest, struct Error *e) {
    const struct Options *o = t->o;
    struct Zero *z = &t->rank.zero;
    zero_init_weights(z, o->seed);
    t->saved = UINT64_MAX;
    if (!o->resume)
        return 0;
    int err =
        checkpoint_resume(z, t->checkpoints, o->resume, o->sample_only ? NULL : t->identity, e);
    if (err || o->sample_only || !z->step)
        return err;
    t->saved = z->step;
    if (z->step > o->steps)
        return error_set(e, -EINVAL, "--steps %zu: the checkpoint is of step %llu already",
                         o->steps, (unsigned long long)z->step);
    if (newest > z->step && strcmp(o->resume, "auto") != 0)
        return error_set(
            e, -EEXIST,
            "--resume %s: --out %s holds a later checkpoint, of step %llu; expected another "
            "--out, or --resume auto",
            o->resume, o->out, (unsigned long long)newest);
    log_line(LOG_NORMAL, "resumed after step %llu", (unsigned long long)z->step);
    return 0;
}

// Opens the rank, finds its weights, and trains or samples. newest: step of --out's newest
// checkpoint.
static int run(struct Trainer *t, const struct RankSettings *s, uint64_t newest, struct Error *e) {
    int err = rank_open(&t->rank, s, false, e);
    if (err)
        return err;
    t->identity = identity_of(t);
    err = find_weights(t, newest, e);
    if (err)
        return err;
    progress_open(&t->progress, stdout, t->rank.zero.step, t->o->steps, t->o->log_every);
    if (t->o->sample_only)
        return print_sample(t, e);
    err = open_out(t, e);
    if (err)
        return err;
    find_light(t);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    err = train(t, e);
    if (!err)
        printf("weights hash: %016llx\n", (unsigned long long)zero_weights_hash(&t->rank.zero));
    return err;
}

static void trainer_close(struct Trainer *t, struct Error *e) {
    struct Error ignored;
    report_close(&t->report, e->text[0] ? &ignored : e);
    rank_close(&t->rank);
    data_close(t->data);
    free(t->identity);
    free(t->checkpoints);
}

// An --out with checkpoints belongs to a run: it is only touched to go on with that run.
static int check_out(struct Trainer *t, uint64_t *newest, struct Error *e) {
    const struct Options *o = t->o;
    char *path;
    int found = checkpoint_find(t->checkpoints, UINT64_MAX, &path, newest, e);
    if (found < 0)
        return found;
    if (found)
        free(path);
    if (found && !o->resume && !o->plan)
        return error_set(e, -EEXIST,
                         "--out %s holds a checkpoint of step %llu: add --resume auto, or choose "
                         "another folder",
                         o->out, (unsigned long long)*newest);
    if (!found && o->sample_only && strcmp(o->resume, "auto") == 0)
        return error_set(e, -ENOENT, "--sample-only: --out %s holds no checkpoint", o->out);
    return 0;
}

// From resolved options to the end of the run.
static int start(struct Trainer *t, struct Error *e) {
    const struct Options *o = t->o;
    struct DataSpec spec = {o->data,    o->val_data, o->tokenizer, o->cache,
                            o->seq_len, o->vocab,    o->seed};
    struct RankSettings settings;
    struct Ids prompt = {0};
    uint64_t newest = 0;
    t->checkpoints = base_format("%s/checkpoints", o->out);
    int err = o->plan ? 0 : file_check_folder(o->out, "--out", e);
    err = err ? err : check_out(t, &newest, e);
    err = err ? err : settings_of(o, 1, &settings, e); // what needs no vocabulary
    if (!err)
        err = data_open(&t->data, &spec, e);
    if (!err && (o->sample_every || o->sample_only))
        err = read_prompt(t, &prompt, e);
    ids_free(&prompt);
    if (!err)
        err = settings_of(o, data_vocab(t->data), &settings, e);
    if (!err)
        err = rank_plan(&settings, machine_resident_bytes(), machine_free_bytes(), e);
    return err || o->plan ? err : run(t, &settings, newest, e);
}

// Reads the line, and where a run is resumed the configuration that it was started with. What the
// user said stays in the flags' own struct; *o gets it with every "the usual" replaced.
static int read_options(struct Flags *f, struct Options *o, int argc, char **argv,
                        struct Error *e) {
    const struct Options *said = f->options;
    int err = flags_parse(f, argc, argv, e);
    *o = *said;
    if (err || o->help || o->version)
        return err;
    char *saved = base_format("%s/config.json", o->out);
    if (o->resume && !o->config && access(saved, R_OK) == 0)
        err = flags_load_json(f, saved, e);
    free(saved);
    *o = *said;
    if (!err)
        err = resolve(o, e);
    return err ? err : options_check(o, e);
}

int main(int argc, char **argv) {
    struct Options said, o;
    struct Flags flags;
    struct Error e = {{0}};
    flags_init(&flags, options_table, options_count, &said);
    signal(SIGPIPE, SIG_IGN); // a reader that goes away is no reason to lose a run
    char *cache = cache_default_folder();
    int err = read_options(&flags, &o, argc, argv, &e);
    if (!err && o.help) {
        options_print_help(stdout);
    } else if (!err && o.version) {
        printf("zero.c 0.1\n\n%s", features_table());
    } else if (!err) {
        if (!o.cache)
            o.cache = cache;
        struct Trainer t = {.o = &o, .flags = &flags};
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
