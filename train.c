// ./train: trains a GPT.
//
// From top to bottom: the line; what a rank tells of its training (the training itself is
// zero/run/trainer.c); a rank; what precedes the ranks; the modes; main. The flags are in
// zero/run/settings_flags.c and data/flags/options.c. What a step does is in zero/step.c, what a
// model computes in model/block.c, and where text becomes tokens in data/text/loader.c.
#include "zero/state.h"
#include "data/cache.h"
#include "data/file.h"
#include "data/flags/options.h"
#include "data/log/machine.h"
#include "data/log/progress.h"
#include "data/log/report.h"
#include "data/text/data.h"
#include "kernels/features.h"
#include "model/sample.h"
#include "zero/comm/world.h"
#include "zero/plan/fit.h"
#include "zero/plan/table.h"
#include "zero/run/stop.h"
#include "zero/run/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- the line ----

// All that the line says.
struct Line {
    struct Settings train;
    struct Options run;
};

static void open_flags(struct Flags *f, struct Line *line) {
    const struct FlagPart parts[] = {
        {settings_table, settings_count, offsetof(struct Line, train)},
        {options_table, options_count, offsetof(struct Line, run)},
    };
    flags_init(f, parts, sizeof parts / sizeof parts[0], line);
}

// What the line cannot say of a rank's settings: its world's part, and the text's vocabulary.
static int settings_for(const struct Line *line, const struct World *w, size_t vocab,
                        struct RankSettings *s, struct Error *e) {
    *s = line->train.rank;
    s->processes = w->launched && s->ranks > 1;
    s->node_rank = w->node_rank;
    s->node_ranks = w->node_size;
    s->traced = line->run.trace != NULL;
    s->model.vocab = vocab;
    return model_config_finish(&s->model, e);
}

// What the user said stays in the flags' own struct; *line gets it with every "the usual" replaced.
static int read_line(struct World *w, struct Flags *f, struct Line *line, int argc, char **argv,
                     struct Error *e) {
    struct Line *said = f->options;
    int err = options_read(f, &said->run, argc, argv, e);
    *line = *said;
    if (err || said->run.help || said->run.version)
        return err;
    struct SettingsUse use = {flags_said(f), said->run.resume != NULL, said->run.plan, 0};
    size_t ranks = (size_t)line->train.rank.ranks;
    err = world_set_ranks(w, &ranks, flag_is_on_line(&use.said, "ranks"), e);
    line->train.rank.ranks = (int)ranks;
    use.cores = (int)world_cores(w, machine_cores());
    if (!err)
        err = options_resolve(&line->run, e);
    if (!err)
        err = settings_resolve(&line->train, &said->train, &use, e);
    struct Flags resolved = flags_over(f, line);
    if (err && e->text[0])
        flags_tell_sources(&resolved, e);
    return err;
}

// ---- a run ----

// One rank of the run. Rank 0 speaks for all: it alone writes to --out and to the terminal.
struct Run {
    const struct World *world;
    struct Line *line;       // with every "the usual" replaced
    const struct Options *o; // of it
    const struct Flags *flags;
    int (*work)(struct Run *, struct Error *); // of a rank that has its weights
    struct Data *data;                         // shared by the ranks of a process
    struct RankSettings settings;
    struct Forecast forecast;
    struct Trainer trainer;
    bool speaks;
    struct Report report;
    struct Progress progress;
};

static int tell_step(void *run, const struct StepResult *r, double seconds, struct Error *e) {
    struct Run *t = run;
    double light = t->forecast.speeds.flops * t->settings.ranks; // what all of them could reach
    double tokens = (double)(t->line->train.global_batch * t->settings.model.seq_len);
    struct LogStep s = {.step = r->step,
                        .loss = (float)(r->loss_sum / tokens),
                        .grad_norm = r->grad_norm,
                        .lr = r->lr,
                        .tokens_per_s = tokens / seconds,
                        .step_ms = seconds * 1e3,
                        .loss_scale = r->loss_scale.scale};
    double share = s.tokens_per_s * rank_flops_per_token(&t->trainer.rank) / light;
    struct ProgressStep p = {s.step, s.loss, s.grad_norm, s.lr, s.tokens_per_s, share};
    progress_show(&t->progress, &p);
    return report_step(&t->report, &s, e);
}

static int tell_validation(void *run, float loss, uint64_t samples, struct Error *e) {
    struct Run *t = run;
    uint64_t step = t->trainer.rank.zero.step;
    float bits = (float)data_bits_per_byte(t->data, loss);
    int err = report_val(&t->report, step, loss, bits, e);
    progress_validation(&t->progress, step, loss, bits, samples, data_val_samples(t->data));
    return err;
}

static void tell_line(void *run, const char *line) {
    progress_message(&((struct Run *)run)->progress, "%s", line);
}

static int print_sample(void *run, struct Error *e) {
    struct Run *t = run;
    struct Ids ids = {0};
    int err = data_prompt(t->data, t->o->prompt, flags_was_set(t->flags, "prompt"), &ids, e);
    if (!err) {
        size_t count = ids.count + t->o->sample_tokens;
        int32_t *text = base_alloc(count * sizeof *text);
        memcpy(text, ids.data, ids.count * sizeof *text);
        struct Sampling s = {(float)t->o->temperature, t->o->top_k, t->o->seed};
        rank_generate(&t->trainer.rank, text, ids.count, t->o->sample_tokens, &s);
        char *out = data_printable(t->data, text, count);
        progress_sample(&t->progress, t->trainer.rank.zero.step, out, t->o->sample_only);
        free(out);
        free(text);
    }
    ids_free(&ids);
    return err;
}

// What was foretold beside what was measured, and the weights' hash.
static void tell_end(struct Run *t) {
    struct Rank *r = &t->trainer.rank;
    uint64_t hash = zero_weights_hash(&r->zero);
    if (!t->speaks || t->trainer.code)
        return;
    struct Footprint measured = footprint_measure(r, &t->settings, machine_peak_bytes());
    char *json = table_json(&t->forecast, &measured, NULL);
    struct Error e;
    table_print(stdout, &t->forecast, &measured);
    rank_tell_fallbacks(r, stdout);
    int err = report_memory(&t->report, t->o->out, json, &e);
    if (!err)
        err = report_counts(&t->report, r->zero.step, "sent_bytes", collective_names, r->dp->bytes,
                            NCOLLECTIVE, &e);
    trainer_keep_error(&t->trainer, err, &e);
    free(json);
    if (t->progress.exceeded)
        speed_doubt(&t->settings, machine_doubt, t->o->cache);
    if (!err)
        printf("weights hash: %016llx\n", (unsigned long long)hash);
}

// ---- a rank ----

static void settle_trainer(struct Run *t) {
    const struct Options *o = t->o;
    uint64_t all = data_val_samples(t->data), some = o->val_batches * t->settings.batch;
    t->trainer.schedule = t->line->train.schedule;
    t->trainer.adam = t->line->train.adam;
    t->trainer.one_by_one = t->settings.one_queue;
    t->trainer.habits = (struct Habits){
        o->val_every, o->sample_every, o->save_every, size_min(some, all), all, o->keep};
    t->trainer.hooks = (struct TrainerHooks){.read_train = data_train_batch,
                                             .read_val = data_val_batch,
                                             .data = t->data,
                                             .context = t,
                                             .stepped = tell_step,
                                             .validated = tell_validation,
                                             .sample = print_sample,
                                             .tell = tell_line};
}

static int train(struct Run *t, struct Error *e) {
    struct Zero *z = &t->trainer.rank.zero;
    int err = 0;
    if (t->speaks)
        err = report_open(&t->report, t->flags, t->o->out,
                          z->step ? (int64_t)z->step : RUNLOG_FRESH, t->o->tensorboard, e);
    err = zero_agree(z, err);
    if (err)
        return err;
    stop_on_signals();
    err = trainer_run(&t->trainer, e);
    progress_close(&t->progress);
    if (!err && t->o->trace)
        trainer_keep_error(&t->trainer, rank_write_trace(&t->trainer.rank, t->o->trace, e), e);
    if (!err)
        tell_end(t);
    return err;
}

static int sample(struct Run *t, struct Error *e) {
    return print_sample(t, e);
}

// Opens the rank, finds its weights, and does its work.
static int run_rank(struct Run *t, struct Error *e) {
    struct Flags resolved = flags_over(t->flags, (void *)t->line);
    settle_trainer(t);
    int err = trainer_open(&t->trainer, &t->settings, e);
    if (err)
        return err;
    char *identity = options_identity(&resolved, data_vocab(t->data), data_fingerprint(t->data),
                                      t->trainer.rank.device->kernels->name);
    err = trainer_start(&t->trainer, t->o->seed, identity, e);
    if (err)
        return err;
    if (t->speaks)
        progress_open(&t->progress, stdout, t->trainer.rank.zero.step,
                      t->line->train.schedule.steps, t->o->log_every);
    t->progress.live &= !t->world->launched; // a launcher's pipe may look like a terminal
    return t->work(t, e);
}

// One rank from its beginning to its end, on a thread of its own.
static void rank_main(void *all, int rank, struct ThreadGroup *group) {
    struct Run *t = (struct Run *)all + (rank - ((struct Run *)all)->world->first);
    struct Error e = {{0}}, ignored;
    t->settings.rank = rank;
    t->settings.group = group;
    t->speaks = rank == 0;
    trainer_keep_error(&t->trainer, run_rank(t, &e), &e);
    if (t->speaks)
        report_close(&t->report, t->trainer.code ? &ignored : &t->trainer.error);
    trainer_close(&t->trainer);
}

// The error is that of the lowest rank that has a line to say.
static int run_ranks(const struct Run *first, struct Error *e) {
    int ranks = first->world->count, err = 0;
    struct Run *all = base_alloc_zeroed((size_t)ranks * sizeof *all);
    for (int r = 0; r < ranks; r++)
        all[r] = *first;
    world_run(first->world, rank_main, all);
    for (int r = 0; r < ranks; r++) {
        err = err ? err : all[r].trainer.code;
        *e = e->text[0] ? *e : all[r].trainer.error;
    }
    free(all);
    return err;
}

// ---- before the ranks ----

// Foretells memory, traffic and time, and refuses what does not fit. A plan may be for another
// machine. Speeds are measured before anything is counted.
static int foretell(struct Run *t, struct Error *e) {
    struct Speeds speeds = {0};
    FILE *table = t->world->first ? NULL : t->o->sample_only ? stderr : stdout;
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
                           .out = table,
                           .json = t->o->json};
    return fit_or_refuse(&r, &t->forecast, e);
}

static struct DataSpec data_of(const struct Run *t) {
    const struct Line *said = t->flags->options;
    return options_data(t->o, t->line->train.rank.model.seq_len, !said->train.rank.model.seq_len);
}

static int open_data(void *run, struct Error *e) {
    struct Run *t = run;
    struct DataSpec spec = data_of(t);
    return data_open(&t->data, &spec, e);
}

// What the data chose where nothing was said: the length of a short text's sequences, and the
// tokenizer. Both count as said, and so go into config.json: a resumed run is not to choose again.
static void keep_fit(struct Run *t) {
    struct Line *said = t->flags->options;
    size_t *seq_len = &t->line->train.rank.model.seq_len;
    const char *tokenizer = data_fitted_tokenizer(t->data);
    if (data_seq_len(t->data) != *seq_len)
        *seq_len = said->train.rank.model.seq_len = data_seq_len(t->data);
    if (tokenizer)
        t->line->run.tokenizer = said->run.tokenizer = tokenizer;
}

// All that can be refused is, before data are prepared and anything is printed. The vocabulary is
// not known yet; only memory depends on it.
static int check(struct Run *t, struct Error *e) {
    const struct RankSettings *s = &t->settings;
    struct Forecast unused;
    int err = file_check_folder(t->o->out, "--out", e);
    if (!err)
        err = place_check(s, e);
    if (!err && settings_use_disk(s))
        err = nvme_preflight(&s->nvme, 0, e);
    if (!err)
        err = footprint_foretell(s, 0, t->world->count, &unused, e);
    return err ? err : resume_check(&t->trainer.resume, e);
}

// From resolved options to the end of the run. Processes agree after each part.
static int run_job(struct Run *t, struct Error *e) {
    const struct Options *o = t->o;
    const struct World *w = t->world;
    t->trainer.resume = (struct Resume){.out = o->out,
                                        .which = o->resume,
                                        .sample_only = o->sample_only,
                                        .steps = t->line->train.schedule.steps};
    struct Ids prompt = {0};
    int err = settings_for(t->line, w, 1, &t->settings, e); // all but the vocabulary
    err = world_agree(w, err ? err : check(t, e), e);
    if (!err)
        err = world_take_turns(w, open_data, t, e);
    if (!err)
        keep_fit(t);
    if (!err && (o->sample_every || o->sample_only))
        err = data_prompt(t->data, o->prompt, flags_was_set(t->flags, "prompt"), &prompt, e);
    ids_free(&prompt);
    if (!err)
        err = settings_for(t->line, w, data_vocab(t->data), &t->settings, e);
    if (!err)
        err = foretell(t, e);
    err = world_agree(w, err, e);
    if (!err)
        err = world_agree(w, run_ranks(t, e), e);
    data_close(t->data);
    free(t->trainer.resume.folder);
    return err;
}

// ---- the modes ----

static int plan(struct Run *t, struct Error *e) {
    size_t vocab;
    struct DataSpec spec = data_of(t);
    int err = data_foretell(&spec, &vocab, &t->line->train.rank.model.seq_len, e);
    if (!err)
        err = settings_for(t->line, t->world, vocab, &t->settings, e);
    return world_agree(t->world, err ? err : foretell(t, e), e);
}

static int plan_parameters(struct Run *t, struct Error *e) {
    int err = settings_for(t->line, t->world, 1, &t->settings, e);
    if (!err && t->world->first == 0)
        err = table_of_parameters(stdout, t->o->params, &t->settings, t->o->json, e);
    return world_agree(t->world, err, e);
}

static int print_help(struct Run *t, struct Error *e) {
    return t->world->first ? 0 : options_print_help(t->flags, t->o->help, stdout, e);
}

static int print_version(struct Run *t, struct Error *e) {
    (void)e;
    if (t->world->first == 0)
        printf("zero.c 0.1\n\n%s", features_table());
    return 0;
}

// What the program does, and what each rank of it does then.
static const struct {
    int (*start)(struct Run *, struct Error *);
    int (*work)(struct Run *, struct Error *);
} modes[] = {
    [MODE_HELP] = {print_help, NULL},  [MODE_VERSION] = {print_version, NULL},
    [MODE_PLAN] = {plan, NULL},        [MODE_PLAN_PARAMETERS] = {plan_parameters, NULL},
    [MODE_SAMPLE] = {run_job, sample}, [MODE_TRAIN] = {run_job, train},
};

int main(int argc, char **argv) {
    struct Line said = {0}, line = {0};
    struct Flags flags;
    struct World world;
    struct Error e = {{0}};
    open_flags(&flags, &said);
    signal(SIGPIPE, SIG_IGN); // a reader that goes away is no reason to lose a run
    char *cache = cache_default_folder();
    int err = world_open(&world, &e);
    if (!err)
        err = world_agree(&world, read_line(&world, &flags, &line, argc, argv, &e), &e);
    if (!err) {
        enum Mode mode = options_mode(&line.run);
        line.run.cache = line.run.cache ? line.run.cache : cache;
        struct Run t = {.world = &world, .line = &line, .o = &line.run, .flags = &flags};
        t.work = modes[mode].work;
        err = modes[mode].start(&t, &e);
        struct Flags resolved = flags_over(&flags, &line);
        if (err == -EINVAL && e.text[0])
            flags_tell_sources(&resolved, &e);
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
