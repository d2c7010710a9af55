// Does what follows the steps of a run: see trainer.h. Next: loop.c.
#include "zero/state.h"
#include "zero/train/trainer.h"

#include "kernels/hash.h"
#include "kernels/trace.h"
#include "zero/train/diverged.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void trainer_keep_error(struct Trainer *t, int err, const struct Error *e) {
    if (!err || t->code)
        return;
    t->code = err;
    t->error = *e;
    request_make(REQUEST_STOP);
}

// Prints a line, on rank 0, and frees it.
static void print_line(struct Trainer *t, char *line) {
    if (trainer_speaks(t))
        t->hooks.tell(t->hooks.console, line);
    free(line);
}

static bool is_due(uint64_t step, uint64_t every) {
    return every && step % every == 0;
}

double trainer_step_tokens(const struct Trainer *t) {
    return (double)(t->settings->global_batch * t->settings->rank.model.seq_len);
}

// Opens the rank. If this rank alone fails, the job ends. Errors: rank_open's.
static int open_trainer(struct Trainer *t, const struct RankSettings *s, struct Error *e) {
    int err = rank_open(&t->rank, s, false, e);
    // Ends the job, because an error that only this rank has seen must not leave the others waiting
    // in their first collective. (Before ranks have a group they fail alike; and once they train,
    // an error is kept, all stop after the same step, and what was trained is saved.)
    if (err && t->rank.all && t->rank.all->size > 1)
        comm_fail(t->rank.all, e->id, "%s", e->text);
    t->rank.requests = request_all();
    return err;
}

static void close_trainer(struct Trainer *t) {
    saver_close(&t->saver);
    rank_close(&t->rank);
    free(t->identity);
}

static void print_path(struct Trainer *t, const char *what) {
    char *path = checkpoint_path(t->saver.folder[t->saver.dir_index], t->saver.saved);
    print_line(t, base_format("%s %s", what, path));
    free(path);
}

static void log_saved(void *trainer) {
    struct Trainer *t = trainer;
    print_path(t, "saved");
    judge_saved(&t->judge);
}

static int sync_log(void *trainer, struct Error *e) {
    struct Trainer *t = trainer;
    return t->hooks.sync(t->hooks.console, e);
}

// Returns 0 if all ranks have the same text, else -EINVAL: that of some rank is not rank 0's. e
// then names the first such rank, on rank 0 alone.
static int compare_texts(struct Zero *z, const char *text, struct Error *e) {
    const uint64_t *all = zero_share(z, hash64(text, strlen(text), 0));
    int other = 0;
    while (other < z->all->size && all[other] == all[0])
        other++;
    if (other == z->all->size)
        return 0;
    if (z->all->rank > 0)
        return -EINVAL;
    return error_set(e, -EINVAL, E_RANKS_DIFFER,
                     "rank %d has other data, kernels or flags than rank 0; give all machines the "
                     "same files and flags, and --kernels that all of them support",
                     other);
}

// Finds the weights: those of the checkpoint that t->resume names, else those of t->init, else
// fresh ones. It owns `identity` from here on. Errors: -EINVAL if a rank has another identity;
// those of resume_load and import_weights.
static int start_trainer(struct Trainer *t, uint64_t seed, char *identity, struct Error *e) {
    struct Zero *z = &t->rank.zero;
    t->identity = identity;
    bool based = z->params->config.lora.rank > 0; // the checkpoint has the adapters alone
    z->reads_base = t->init.context;
    z->reads_adapters = t->init_adapter.context || !resume_is_fresh(&t->resume);
    zero_init_weights(z, seed);
    int err = compare_texts(z, identity, e);
    if (!err && based && t->init.context)
        err = import_weights(z, &t->init, e);
    if (!err)
        z->base_hash = zero_base_hash(z);
    if (!err)
        err = resume_load(&t->resume, z, identity, e);
    if (!err && !z->step && !based && t->init.context)
        err = import_weights(z, &t->init, e);
    if (!err && !z->step && t->init_adapter.context)
        err = import_weights(z, &t->init_adapter, e);
    t->saver = (struct Saver){
        .zero = z,
        .folder = {t->resume.folder[0], t->resume.folder[1]},
        .lock = t->resume.lock,
        .disk = t->resume.disk,
        .identity = identity,
        .keep = {.newest = t->settings->intervals.keep, .refused = &t->resume.refused},
        .saved = z->step ? z->step : UINT64_MAX,
        .dir_index = -1,
        .pre_save = sync_log,
        .post_save = log_saved,
        .context = t,
        .snapshot_memory = &t->rank.snapshot};
    t->rank.own_word = &t->saver.word;
    t->good = z->step;
    if (!err && !t->resume.asked.only)
        judge_open(&t->judge, &t->saver, &t->settings->intervals, t->val_samples);
    return err;
}

// Computes the loss of the first `samples` validation sequences. -EINTR: a stop was requested.
static int validate(struct Trainer *t, uint64_t samples, float *loss, struct Error *e) {
    const struct TrainerHooks *h = &t->hooks;
    const struct BatchSource from = {h->read_val, h->count_val, h->data};
    int err = rank_validate(&t->rank, &from, samples, loss, e);
    int read_err = zero_agree(&t->rank.zero, err == -EINTR ? 0 : err); // of any rank
    if (err == -EINTR && read_err)
        err = read_err;
    if (!err && trainer_speaks(t))
        h->validated(t, *loss, samples);
    t->last_val = (struct Best){t->rank.zero.step, err ? 0 : samples, *loss, 0};
    return err;
}

static int export_model(struct Trainer *t, struct Error *e) {
    struct Error why = {0};
    const char *flag = "--export";
    int err = t->exported.write ? export_weights(&t->rank.zero, &t->exported, t->joins, &why) : 0;
    if (!err && t->exported_adapter.write) {
        flag = "--export-adapter";
        err = export_weights(&t->rank.zero, &t->exported_adapter, t->joins, &why);
    }
    if (err && why.text[0])
        error_set(e, err, why.id, "%s: %s%s", flag, why.text,
                  t->resume.asked.only ? "" : "; the run is saved; export it with --resume auto");
    return err;
}

int trainer_evaluate(struct Trainer *t, struct Error *e) {
    float loss;
    if (t->resume.asked.only && (t->exported.write || t->exported_adapter.write))
        return export_model(t, e);
    int err = t->eval_samples ? validate(t, t->eval_samples, &loss, e) : 0;
    return err ? err : t->hooks.evaluate(t, e); // -EINTR as above
}

// While updates are skipped the weights may be bad: it saves after the next one that is not.
static void save(struct Trainer *t) {
    t->save_requested = t->skipped > 0;
    if (t->save_requested)
        return;
    judge_finish(&t->judge);
    saver_save(&t->saver);
    t->clock_at = base_seconds();
}

void loss_scale_describe(const struct LossScale *before, const struct LossScale *after, char *text,
                         size_t bytes) {
    double scale = (double)after->scale;
    *text = '\0';
    if (before->scale == 0)
        return;
    if (after->hysteresis < before->hysteresis)
        snprintf(text, bytes,
                 ", the loss scale stays at %.10g (of --loss-scale-hysteresis %" PRIu64 " left)",
                 scale, after->hysteresis);
    else if (after->scale < before->scale)
        snprintf(text, bytes, ", the loss scale is halved to %.10g", scale);
    else
        snprintf(text, bytes, ", the loss scale stays at %.10g, its minimum", scale);
}

static void log_skipped(struct Trainer *t, const struct StepResult *result) {
    char scale[128];
    loss_scale_describe(&result->loss_scale, &t->rank.zero.loss_scale, scale, sizeof scale);
    print_line(t, base_format("step %llu: the gradient is not finite, the update was skipped%s",
                              (unsigned long long)result->step, scale));
}

static void log_note(struct Trainer *t, const struct LogNote *n) {
    if (trainer_speaks(t))
        t->hooks.noted(t->hooks.console, n);
}

// Logs where that step's time went; 0: of no step.
static void note_breakdown(struct Trainer *t, uint64_t step) {
    const struct BreakdownTimes *times = &t->breakdown.last;
    struct LogValue v[BREAKDOWN_VALUES];
    if (!step)
        return;
    int n = breakdown_shares(times, t->rank.host, v);
    log_note(t, &(struct LogNote){.step = step, .what = "breakdown", .value = v, .n = n});
    n = breakdown_waited(times, v);
    log_note(t, &(struct LogNote){.step = step, .what = "waited_s", .value = v, .n = n});
}

// Logs the hash of the weights, as a checkpoint of this step would have them.
static void note_hash(struct Trainer *t) {
    char word[17];
    snprintf(word, sizeof word, "%016llx", (unsigned long long)zero_weights_hash(&t->rank.zero));
    log_note(t, &(struct LogNote){.step = t->rank.zero.step, .what = "weights_hash", .word = word});
}

// The clock is rank 0's; the others receive its request like any other.
static void check_clock(struct Trainer *t) {
    const struct Intervals *h = &t->settings->intervals;
    double now = base_seconds();
    if (h->save_every.seconds && now - t->clock_at >= (double)h->save_every.seconds) {
        t->clock_at = now;
        request_make(REQUEST_SAVE);
    }
    if (h->time_limit && request_age() >= (double)h->time_limit)
        request_make(REQUEST_STOP);
}

static bool step_ended(void *trainer, const struct StepResult *result, double seconds) {
    struct Trainer *t = trainer;
    note_breakdown(t, breakdown_step(&t->breakdown, result->step));
    t->loss = rank_mean_loss(&t->rank, result);
    t->skipped = result->skipped ? t->skipped + 1 : 0;
    t->good = result->skipped ? t->good : result->step;
    if (result->skipped)
        log_skipped(t, result);
    else
        saver_prove(&t->saver, result->step);
    if (trainer_speaks(t)) {
        struct LogStep s = {.step = result->step,
                            .loss = (float)t->loss,
                            .grad_norm = result->grad_norm,
                            .lr = result->lr,
                            .loss_scale = result->loss_scale.scale,
                            .tokens_seen = result->step * (uint64_t)trainer_step_tokens(t)};
        t->hooks.stepped(t->hooks.console, &s, seconds);
        check_clock(t);
    }
    saver_hear(&t->saver, result->words);
    t->save_requested = t->save_requested || result->words & REQUEST_SAVE;
    return t->code || request_to_stop(request_all());
}

static void cannot_read(void *trainer, int err, const struct Error *e) {
    trainer_keep_error(trainer, err, e);
}

// True if something that needs the whole state follows that step, or no steps overlap.
static bool is_pause(void *trainer, uint64_t step) {
    const struct Trainer *t = trainer;
    const struct Intervals *h = &t->settings->intervals;
    return is_due(step, h->val_every) || is_due(step, h->eval_every) ||
           is_due(step, h->sample_every) || is_due(step, h->hash_every) ||
           is_due(step, h->save_every.steps) || t->save_requested || t->settings->rank.one_queue;
}

static bool judges(const struct Trainer *t) {
    return t->judge.keeps || t->judge.patience;
}

// Validates during training, and judges if its step made an update. *better: it is to be saved.
static int validate_and_judge(struct Trainer *t, bool due, bool *better, struct Error *e) {
    float loss;
    int err = validate(t, t->val_samples, &loss, e);
    if (!err && judges(t) && t->rank.zero.step > 0 && !t->skipped)
        *better = judge_loss(&t->judge, loss, t->val_samples, due);
    return err;
}

// True if --patience ends the run here, which is then printed.
static bool ends_here(struct Trainer *t) {
    char *text = judge_end_text(&t->judge);
    t->ended_by_patience = text != NULL;
    if (text)
        print_line(t, text);
    return t->ended_by_patience;
}

static int after_step(void *trainer, struct Error *e) {
    struct Trainer *t = trainer;
    const struct Intervals *h = &t->settings->intervals;
    uint64_t step = t->rank.zero.step;
    bool on_the_way = step < t->settings->schedule.steps; // the end of the run has its own
    bool evaluates = on_the_way && is_due(step, h->eval_every);
    bool validates = is_due(step, h->val_every), better = false;
    bool judged = judges(t) && step > 0 && (validates || !on_the_way);
    int err = 0;
    if (step > 0 && is_due(step, h->hash_every))
        note_hash(t);
    if (judged || (on_the_way && validates && !(evaluates && t->eval_samples)))
        err = validate_and_judge(t, validates, &better, e);
    if (!err && evaluates)
        err = trainer_evaluate(t, e);
    if (!err && step > 0 && is_due(step, h->sample_every))
        t->hooks.sample(t);
    if (!err && step > 0 && on_the_way && // the last is saved by saver_save_last
        (t->save_requested || better || is_due(step, h->save_every.steps)))
        save(t);
    if (!err && on_the_way && ends_here(t))
        err = -EINTR;
    breakdown_pause(&t->breakdown);
    return err;
}

// Records the time, as compute may be idle meanwhile.
static int read_timed(void *trainer, uint64_t first, size_t n, const struct Batch *batch,
                      struct Error *e) {
    struct Trainer *t = trainer;
    double begin = base_seconds();
    int err = t->hooks.read_train(t->hooks.data, first, n, batch, e);
    trace_host_waited(t->rank.device, "tokens read", begin);
    return err;
}

static int count_targets(void *trainer, uint64_t first, uint64_t n, uint64_t *counted,
                         struct Error *e) {
    struct Trainer *t = trainer;
    return t->hooks.count_train(t->hooks.data, first, n, counted, e);
}

// Makes the steps to the end of the schedule, or of the run. Errors: -EINTR a validation was
// interrupted; loop_run's.
static int make_steps(struct Trainer *t, bool *stop, struct Error *e) {
    struct Loop loop = {.schedule = t->settings->schedule,
                        .adam = t->settings->adam,
                        .from = {read_timed, count_targets, t},
                        .context = t,
                        .unread = cannot_read,
                        .pauses = is_pause,
                        .ended = step_ended,
                        .paused = after_step};
    int err = t->rank.zero.step == 0 ? after_step(t, e) : 0;
    *stop = err == -EINTR;
    if (err || (t->rank.zero.step < t->settings->schedule.steps && ends_here(t)))
        return err;
    breakdown_open(&t->breakdown, &t->rank.zero, t->rank.trace, t->rank.host_trace);
    err = loop_run(&loop, &t->rank, stop, e);
    *stop = *stop && !t->ended_by_patience;
    note_breakdown(t, breakdown_end(&t->breakdown));
    if (t->breakdown.sum.all > 0)
        print_line(t, breakdown_text(&t->breakdown.sum, t->rank.host));
    return err;
}

// True if the loop has given up, or comes to its own end after a skipped update, unless fp16 has
// found a lower loss scale for the next. A run that was merely stopped may go on.
static bool has_diverged(const struct Trainer *t, int err, bool stop) {
    const struct Zero *z = &t->rank.zero;
    bool scaled = z->plan.param.dtype == F16 && !z->skipped_at_least && isfinite(t->loss);
    return err == -EDOM || (!err && !stop && t->skipped && !scaled);
}

// Ends a run that has diverged, and is good for nothing that would follow.
static int end_diverged(struct Trainer *t, const char *what, struct Error *e) {
    const struct ResumeAsked *a = &t->resume.asked;
    const char *const *folders = (const char *const *)t->resume.folder;
    struct Diverged d = {folders, a->out, a->also, what, t->good, &t->settings->schedule};
    e->text[0] = 0;
    return trainer_speaks(t) ? diverged_end(&d, e) : -EDOM;
}

static int end_skipping(struct Trainer *t, int err, struct Error *e) {
    char what[ERROR_TEXT_BYTES];
    snprintf(what, sizeof what, "the gradient was not finite in the last %zu step%s", t->skipped,
             t->skipped == 1 ? "" : "s");
    return end_diverged(t, err ? strcpy(what, e->text) : what, e);
}

// Saves what was trained, also if the run ends with an error (`failed`).
static int save_last(struct Trainer *t, bool failed, bool diverged, struct Error *e) {
    struct Error lost; // the first error is the one that is returned
    int err = 0;
    judge_finish(&t->judge);
    if (!diverged && (t->rank.zero.step > 0 || !failed))
        err = saver_save_last(&t->saver, failed ? &lost : e);
    else
        saver_finish(&t->saver);
    if (err && t->saver.dir_index >= 0)
        print_path(t, "the newest checkpoint is");
    return err;
}

// After the last step of the schedule: validates on all sequences, and evaluates; else prints how
// to go on.
static int end_with_result(struct Trainer *t, bool stop, struct Error *e) {
    const struct Best *had = &t->last_val; // judged already
    float loss = had->loss;
    if (!stop) {
        bool known = had->samples == t->val_samples_at_end && had->step == t->rank.zero.step;
        int err =
            known && !t->settings->rank.delayed ? 0 : validate(t, t->val_samples_at_end, &loss, e);
        if (!err && !isfinite(loss))
            return end_diverged(t, "the validation loss is not finite", e);
        if (!err)
            saver_prove(&t->saver, UINT64_MAX);
        return err ? err : t->hooks.evaluate(t, e);
    }
    if (!t->code)
        print_line(
            t,
            base_format("stopped after step %llu, as asked: --resume auto goes on%s",
                        (unsigned long long)t->rank.zero.step,
                        t->exported.write ? "; nothing is exported yet: give --export again" : ""));
    return 0;
}

// Warns if --save-every 30M was meant as half an hour.
static void warn_late_save(const struct Trainer *t) {
    uint64_t every = t->settings->intervals.save_every.steps, steps = t->settings->schedule.steps;
    if (every > steps && t->rank.all->rank == 0)
        log_line(LOG_NORMAL,
                 "--save-every %llu: the run ends at step %llu, so it saves only at its end (30m "
                 "are minutes, 30M are steps)",
                 (unsigned long long)every, (unsigned long long)steps);
}

// Writes what the last step did, before anything follows it.
static int write_traces(struct Trainer *t, struct Error *e) {
    int err = t->trace ? rank_write_trace(&t->rank, t->trace, e) : 0;
    if (!err && t->trace_zero)
        err = rank_write_trace_zero(&t->rank, t->model, t->trace_zero, e);
    return err;
}

int trainer_run(struct Trainer *t, struct Error *e) {
    struct Error why; // a trace is not written, which ends nothing before its time
    unsigned long long step = t->rank.zero.step, steps = t->settings->schedule.steps;
    bool stop;
    int err = step < steps ? saver_check(&t->saver, e) : 0;
    if (err)
        return err;
    request_on_signals();
    warn_late_save(t);
    t->clock_at = base_seconds();
    if (step > 0 && step >= steps)
        print_line(
            t, base_format("step %llu of %llu is done already; --steps N trains on", step, steps));
    err = make_steps(t, &stop, e);
    err = err == -EINTR ? 0 : err;
    bool diverged = has_diverged(t, err, stop);
    int trace_err = err || diverged ? 0 : write_traces(t, &why);
    int save_err = save_last(t, err != 0, diverged, e);
    err = err ? err : save_err;
    zero_install_new_weights(&t->rank.zero); // continues as after any save, though the run ends
    if (diverged)
        err = end_skipping(t, err, e);
    if (!err)
        err = end_with_result(t, stop, e);
    err = err == -EINTR ? 0 : err;
    if (!err && !stop)
        err = export_model(t, e);
    if (!err && t->judge.keeps && t->judge.kept.step)
        print_line(t, judge_best_text(&t->judge));
    if (!err)
        trainer_keep_error(t, trace_err, &why);
    return err;
}

// ---- all ranks of this process ----

struct JobRank {
    const struct Job *job;
    struct RankSettings settings;
    struct Trainer trainer;
};

// Opens the rank, finds its weights, and does its work.
static int run_rank(struct JobRank *r, struct Error *e) {
    const struct Job *j = r->job;
    struct Trainer *t = &r->trainer;
    int err = open_trainer(t, &r->settings, e);
    if (err)
        return err;
    char *identity = j->identity(j->text, t->rank.device->kernels->name);
    err = start_trainer(t, j->seed, identity, e);
    return err ? err : j->work(t, e);
}

static void rank_main(void *all, int rank, struct ThreadGroup *group) {
    struct JobRank *first = all, *r = first + (rank - first->job->world->first);
    struct Error e = {0};
    r->settings.rank = rank;
    r->settings.group = group;
    trainer_keep_error(&r->trainer, run_rank(r, &e), &e);
    close_trainer(&r->trainer);
}

int job_run(const struct Job *j, struct Error *e) {
    int ranks = j->world->count, err = 0;
    struct JobRank *all = base_alloc_zeroed((size_t)ranks * sizeof *all);
    for (int r = 0; r < ranks; r++)
        all[r] = (struct JobRank){j, j->settings, j->trainer};
    world_run(j->world, rank_main, all);
    for (int r = 0; r < ranks; r++) {
        err = err ? err : all[r].trainer.code;
        *e = e->text[0] ? *e : all[r].trainer.error;
    }
    free(all);
    return err;
}
