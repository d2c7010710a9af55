// ./train: trains a GPT.
//
// From top to bottom: a rank's settings; validation, samples and checkpoints; what follows a step
// (the loop itself is zero/run/loop.c); main. The flags are in data/flags/options.c. What a step
// does is in zero/step.c, what a model computes in model/block.c, and where text becomes tokens in
// data/text/loader.c.
#include "data/cache.h"
#include "data/text/data.h"
#include "data/file.h"
#include "data/log/machine.h"
#include "data/flags/options.h"
#include "data/log/progress.h"
#include "data/log/report.h"
#include "kernels/features.h"
#include "model/sample.h"
#include "zero/run/checkpoint.h"
#include "zero/plan/fit.h"
#include "zero/run/loop.h"
#include "zero/run/rank.h"
#include "zero/run/resume.h"
#include "zero/run/schedule.h"
#include "zero/run/stop.h"
#include "zero/plan/table.h"
#include "zero/comm/world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- from flags to settings ----

static int settings_of(const struct Options *o, const struct World *w, size_t vocab,
                       struct RankSettings *s, struct Error *e) {
    *s = (struct RankSettings){
        .model = {o->layers, o->heads, o->channels, o->seq_len, vocab,
                  .dtype = (enum Dtype)o->dtype},
        .recompute = (enum Recompute)o->recompute,
        .batch = o->batch,
        .nmicro = o->global_batch / (o->batch * o->ranks),
        .grad_dtype = (enum Dtype)(o->grad_dtype - GRAD_FP32),
        .moments_dtype = (enum Dtype)o->moments,
        .loss_scale = {(float)o->loss_scale, (float)o->loss_scale_min, o->loss_scale_window,
                       o->loss_scale_hysteresis},
        .global_batch = o->asked_batch,
        .grad_auto = o->grad_auto,
        .stage = o->zero,
        .prefetch = o->prefetch,
        .ranks = (int)o->ranks,
        .processes = w->launched && o->ranks > 1,
        .node_rank = w->node_rank,
        .node_ranks = w->node_size,
        .timeout_s = o->comm_timeout,
        .comm_chunk = o->comm_chunk,
        .check_comm = o->check_comm,
        .reduce_native = o->reduce == 1,
        .traced = o->trace != NULL,
        .device = (enum DeviceKind)o->device,
        .one_queue = o->overlap == 0,
        .autotune = o->autotune,
        .check_launches = o->check_launches,
        .threads = (int)o->threads,
        .kernels = o->kernels,
        .device_bytes = o->device_mem ? o->device_mem : SIZE_MAX,
        .host_bytes = o->host_mem,
        .param_tier = (enum TierKind)o->offload_param,
        .opt_tier = (enum TierKind)o->offload_optimizer,
        .act_tier = (enum TierKind)o->offload_activations,
        .offload_ratio = o->offload_ratio,
        .delayed = o->delay_update,
        .delay_after = o->delay_after,
        .nvme = {o->nvme_path, o->nvme_block, o->nvme_depth, o->check_io, NULL}};
    return model_config_finish(&s->model, e);
}

// ---- a run ----

// One rank of the run. Rank 0 speaks for all: it alone writes to --out and to the terminal.
struct Trainer {
    const struct World *world;
    const struct Options *o;
    struct Flags *flags;
    struct Data *data; // shared by the ranks of a process
    struct RankSettings settings;
    struct Forecast forecast;
    struct Resume resume;
    struct Rank rank;
    bool speaks;
    char *identity;
    struct Report report;
    struct Progress progress;
    uint64_t saved; // step of the last checkpoint
    int code;       // of its end
    struct Error error;
};

// What only this rank has seen (a full disk, a shard that cannot be read) must not leave the others
// waiting: before a collective that they are in, it ends the job; else it is kept, all ranks stop
// at the next step, and what was trained is saved. (Before ranks have a group they fail alike.)
static void end_if_alone(struct Trainer *t, int err, const struct Error *e) {
    if (err && t->rank.dp && t->rank.dp->size > 1)
        comm_fail(t->rank.dp, "%s", e->text);
}

static void keep_error(struct Trainer *t, int err, const struct Error *e) {
    if (!err || t->code)
        return;
    t->code = err;
    t->error = *e;
    stop_request();
}

// The loss of the first `samples` validation sequences. -EINTR: none, as a stop was asked for.
static int validate(struct Trainer *t, uint64_t samples, struct Error *e) {
    uint64_t step = t->rank.zero.step;
    float loss;
    int err = rank_validate(&t->rank, data_val_batch, t->data, samples, &loss, e);
    if (err == -EINTR)
        return err;
    end_if_alone(t, err, e);
    if (!err)
        keep_error(t, report_val(&t->report, step, loss, e), e);
    if (!err)
        progress_message(&t->progress, "step %llu  validation loss %.4f  (%llu sequences)",
                         (unsigned long long)step, plain_nan(loss), (unsigned long long)samples);
    return err;
}

static int print_sample(struct Trainer *t, struct Error *e) {
    struct Ids ids = {0};
    int err = data_prompt(t->data, t->o->prompt, flags_was_set(t->flags, "prompt"), &ids, e);
    if (!err) {
        size_t count = ids.count + t->o->sample_tokens;
        int32_t *text = base_alloc(count * sizeof *text);
        memcpy(text, ids.data, ids.count * sizeof *text);
        struct Sampling s = {(float)t->o->temperature, t->o->top_k, t->o->seed};
        rank_generate(&t->rank, text, ids.count, t->o->sample_tokens, &s);
        char *out = data_printable(t->data, text, count);
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
    int err = checkpoint_save(&t->rank.zero, t->resume.folder, t->identity, t->o->keep, e);
    if (!err)
        t->saved = t->rank.zero.step;
    return err;
}

static void tell_skipped(struct Trainer *t, const struct StepResult *result) {
    char scale[128];
    loss_scale_describe(&result->loss_scale, &t->rank.zero.loss_scale, scale, sizeof scale);
    progress_message(&t->progress,
                     "step %llu: the gradient is not finite, the update was skipped%s",
                     (unsigned long long)result->step, scale);
}

// ---- the loop ----

static int log_step(struct Trainer *t, const struct StepResult *r, double seconds,
                    struct Error *e) {
    double light = t->forecast.speeds.flops * t->settings.ranks; // what all of them could reach
    double tokens = (double)(t->o->global_batch * t->o->seq_len);
    struct LogStep s = {.step = r->step,
                        .loss = (float)(r->loss_sum / tokens),
                        .grad_norm = r->grad_norm,
                        .lr = r->lr,
                        .tokens_per_s = tokens / seconds,
                        .step_ms = seconds * 1e3,
                        .loss_scale = r->loss_scale.scale};
    double share = s.tokens_per_s * rank_flops_per_token(&t->rank) / light;
    struct ProgressStep p = {s.step, s.loss, s.grad_norm, s.lr, s.tokens_per_s, share};
    progress_show(&t->progress, &p);
    return report_step(&t->report, &s, e);
}

static bool step_ended(void *trainer, const struct StepResult *result, double seconds) {
    struct Trainer *t = trainer;
    struct Error e;
    if (result->skipped)
        tell_skipped(t, result);
    keep_error(t, log_step(t, result, seconds, &e), &e);
    return t->code || *stop_wish();
}

// Whether something that wants the whole state follows that step.
static bool is_pause(void *trainer, uint64_t step) {
    const struct Options *o = ((struct Trainer *)trainer)->o;
    return is_due(step, o->val_every) || is_due(step, o->sample_every) ||
           is_due(step, o->save_every);
}

static int after_step(void *trainer, struct Error *e) {
    struct Trainer *t = trainer;
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
    const struct Options *o = t->o;
    struct Zero *z = &t->rank.zero;
    struct Loop loop = {.schedule = {(enum Schedule)o->schedule, o->lr, o->min_lr, o->warmup,
                                     o->steps, o->decay_share},
                        .adam = {o->beta1, o->beta2, o->eps, o->weight_decay, o->clip},
                        .one_by_one = t->settings.one_queue,
                        .read = data_train_batch,
                        .data = t->data,
                        .context = t,
                        .pauses = is_pause,
                        .ended = step_ended,
                        .paused = after_step};
    int err = z->step == 0 ? after_step(t, e) : 0;
    bool stop = err == -EINTR;
    if (!err)
        err = loop_run(&loop, &t->rank, &stop, e);
    err = err == -EINTR ? 0 : err;
    struct Error ignored; // what went wrong is told, and the steps that were made are kept
    if (err && t->saved != z->step && z->step > 0)
        save(t, &ignored);
    if (!err)
        err = save(t, e);
    zero_install(z); // what was saved is as if the run went on
    if (!err && !stop)
        err = validate(t, data_val_samples(t->data), e);
    else if (!err && !t->code)
        progress_message(&t->progress, "stopped after step %llu, as asked: --resume auto goes on",
                         (unsigned long long)z->step);
    err = err == -EINTR ? 0 : err;
    progress_close(&t->progress);
    return err;
}

// What was foretold beside what was measured, and the weights' hash.
static void tell_end(struct Trainer *t) {
    uint64_t hash = zero_weights_hash(&t->rank.zero);
    if (!t->speaks || t->code)
        return;
    struct Footprint measured = footprint_measure(&t->rank, &t->settings, machine_peak_bytes());
    char *json = table_json(&t->forecast, &measured, NULL);
    struct Error e;
    table_print(stdout, &t->forecast, &measured);
    rank_tell_fallbacks(&t->rank, stdout);
    keep_error(t, report_memory(&t->report, t->o->out, json, &e), &e);
    keep_error(t,
               report_counts(&t->report, t->rank.zero.step, "sent_bytes", collective_names,
                             t->rank.dp->bytes, NCOLLECTIVE, &e),
               &e);
    free(json);
    if (!t->code)
        printf("weights hash: %016llx\n", (unsigned long long)hash);
}

// Opens the rank, finds its weights, and trains or samples.
static int run(struct Trainer *t, struct Error *e) {
    struct Zero *z = &t->rank.zero;
    int err = rank_open(&t->rank, &t->settings, false, e);
    end_if_alone(t, err, e);
    if (err)
        return err;
    t->rank.stop = stop_wish();
    t->identity = options_identity(t->flags, t->o, data_vocab(t->data), data_fingerprint(t->data),
                                   t->rank.device->kernels->name);
    zero_init_weights(z, t->o->seed);
    err = zero_compare(z, t->identity, e);
    if (!err)
        err = resume_load(&t->resume, z, t->identity, e);
    if (err)
        return err;
    t->saved = z->step ? z->step : UINT64_MAX;
    if (t->speaks)
        progress_open(&t->progress, stdout, z->step, t->o->steps, t->o->log_every);
    t->progress.live &= !t->world->launched; // a launcher's pipe may look like a terminal
    if (t->o->sample_only)
        return print_sample(t, e);
    if (t->speaks)
        err = report_open(&t->report, t->flags, t->o->out,
                          z->step ? (int64_t)z->step : RUNLOG_FRESH, t->o->tensorboard, e);
    err = zero_agree(z, err);
    if (err)
        return err;
    stop_on_signals();
    err = train(t, e);
    if (!err && t->o->trace)
        keep_error(t, rank_write_trace(&t->rank, t->o->trace, e), e);
    if (!err)
        tell_end(t);
    return err;
}

// One rank from its beginning to its end, on a thread of its own.
static void rank_main(void *all, int rank, struct ThreadGroup *group) {
    struct Trainer *t = (struct Trainer *)all + (rank - ((struct Trainer *)all)->world->first);
    struct Error e = {{0}}, ignored;
    t->settings.rank = rank;
    t->settings.group = group;
    t->speaks = rank == 0;
    keep_error(t, run(t, &e), &e);
    if (t->speaks)
        report_close(&t->report, t->code ? &ignored : &t->error);
    rank_close(&t->rank);
    free(t->identity);
}

// The error is that of the lowest rank that has a line to say.
static int run_ranks(const struct Trainer *first, struct Error *e) {
    int ranks = first->world->count, err = 0;
    struct Trainer *all = base_alloc_zeroed((size_t)ranks * sizeof *all);
    for (int r = 0; r < ranks; r++)
        all[r] = *first;
    world_run(first->world, rank_main, all);
    for (int r = 0; r < ranks; r++) {
        err = err ? err : all[r].code;
        *e = e->text[0] ? *e : all[r].error;
    }
    free(all);
    return err;
}

// ---- before the run ----

// Foretells memory, traffic and time, and refuses what does not fit. A plan may be for another
// machine. Speeds are measured before anything is counted.
static int foretell(struct Trainer *t, struct Error *e) {
    struct Speeds speeds = {0};
    if (t->world->first == 0 && !t->o->sample_only &&
        speeds_find(&t->settings, t->o->plan, machine_measured, t->o->cache, &speeds, e))
        return -EINVAL;
    machine_peak_reset();
    struct FitRequest r = {.settings = &t->settings,
                           .host = {machine_free_bytes(), machine_resident_bytes()},
                           .processes_here = t->world->node_size,
                           .ranks_here = t->world->count,
                           .speeds = speeds,
                           .plan = t->o->plan,
                           .out = t->world->first ? NULL : stdout,
                           .json = t->o->json};
    return fit_or_refuse(&r, &t->forecast, e);
}

static int plan(struct Trainer *t, struct Error *e) {
    const struct Options *o = t->o;
    if (o->params)
        return t->world->first ? 0
                               : table_of_parameters(stdout, o->params, &t->settings, o->json, e);
    size_t vocab;
    struct DataSpec spec = options_data(o);
    int err = data_foretell_vocab(&spec, &vocab, e);
    if (!err)
        err = settings_of(o, t->world, vocab, &t->settings, e);
    return err ? err : foretell(t, e);
}

static int open_data(void *trainer, struct Error *e) {
    struct Trainer *t = trainer;
    struct DataSpec spec = options_data(t->o);
    return data_open(&t->data, &spec, e);
}

// From resolved options to the end of the run. Processes agree after each part.
static int start(struct Trainer *t, struct Error *e) {
    const struct Options *o = t->o;
    const struct World *w = t->world;
    t->resume = (struct Resume){o->out, o->resume, o->sample_only, o->steps, 0, NULL};
    struct Ids prompt = {0};
    int err = settings_of(o, w, 1, &t->settings, e); // all but the vocabulary
    if (err || o->plan)
        return world_agree(w, err ? err : plan(t, e), e);
    err = file_check_folder(o->out, "--out", e);
    if (!err)
        err = place_check(&t->settings, e);
    if (!err)
        err = resume_check(&t->resume, e);
    err = world_agree(w, err, e);
    if (!err)
        err = world_take_turns(w, open_data, t, e);
    if (!err && (o->sample_every || o->sample_only))
        err = data_prompt(t->data, o->prompt, flags_was_set(t->flags, "prompt"), &prompt, e);
    ids_free(&prompt);
    if (!err)
        err = settings_of(o, w, data_vocab(t->data), &t->settings, e);
    if (!err)
        err = foretell(t, e);
    err = world_agree(w, err, e);
    return err ? err : world_agree(w, run_ranks(t, e), e);
}

// What the user said stays in the flags' own struct; *o gets it with every "the usual" replaced.
static int read_options(struct World *w, struct Flags *f, struct Options *o, int argc, char **argv,
                        struct Error *e) {
    int err = options_read(f, argc, argv, e);
    *o = *(const struct Options *)f->options;
    if (err || o->help || o->version)
        return err;
    bool said = f->source[flags_find(f, "ranks")] == FLAG_FROM_LINE;
    if (world_set_ranks(w, &o->ranks, said, e))
        return -EINVAL;
    return options_resolve(o, f->options, world_cores(w, machine_cores()), e);
}

int main(int argc, char **argv) {
    struct Options said, o;
    struct Flags flags;
    struct World world;
    struct Error e = {{0}};
    flags_init(&flags, options_table, options_count, &said);
    signal(SIGPIPE, SIG_IGN); // a reader that goes away is no reason to lose a run
    char *cache = cache_default_folder();
    int err = world_open(&world, &e);
    if (!err)
        err = world_agree(&world, read_options(&world, &flags, &o, argc, argv, &e), &e);
    if (!err && (o.help || o.version)) {
        if (world.first == 0 && o.help)
            options_print_help(stdout);
        else if (world.first == 0)
            printf("zero.c 0.1\n\n%s", features_table());
    } else if (!err) {
        o.cache = o.cache ? o.cache : cache;
        struct Trainer t = {.world = &world, .o = &o, .flags = &flags};
        err = start(&t, &e);
        data_close(t.data);
        free(t.resume.folder);
    }
    if (!err && (fflush(stdout) != 0 || ferror(stdout)))
        err = error_set(&e, -EIO, "cannot write to standard output");
    if (e.text[0])
        fprintf(stderr, "train: %s\n", e.text);
    world_close(&world);
    flags_free(&flags);
    free(cache);
    return err || e.text[0] ? 2 : 0;
}
