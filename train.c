// ./train: trains a GPT.
//
// From top to bottom: the command line; what a rank does and prints; from the command line to the
// ranks; the modes; main. Only here do zero/ and data/ meet: each gets what it needs from the
// other. Flags: zero/settings/settings_flags.c, data/flags/options.c. Next: zero/train/trainer.c.
#include "zero/state.h"
#include "data/cache.h"
#include "data/file.h"
#include "data/flags/texts.h"
#include "data/hf/kind.h"
#include "data/json.h"
#include "data/llmc/kind.h"
#include "data/log/machine.h"
#include "data/log/console.h"
#include "model/presets.h"
#include "zero/plan/page.h"
#include "zero/plan/predict.h"
#include "zero/process/request.h"
#include "zero/rank/generate.h"
#include "zero/rank/rank.h"
#include "zero/train/trainer.h"
#include "zero/weights/import_run.h"
#include "zero/weights/weights.h"

#include "features_found.h" // build/MODE: FEATURE_TABLE (scripts/dev/probe.sh)

#include <errno.h>
#include <math.h>
#include <stdlib.h>

// All values of the command line.
struct CommandLine {
    struct Settings train;
    struct Options run;
};

// The run, as all ranks of this process share it; only rank 0 prints and logs.
struct Run {
    struct World world;
    struct CommandLine given, line; // as the user gave it; with every 0 and auto resolved
    struct Flags flags, resolved;   // views of `given` and of `line`
    struct Texts texts;
    struct Job job;
    struct PredictRequest request;
    struct Forecast forecast;
    int argc;
    char **argv;
    struct Console console;
    struct DeepSpeed deepspeed;
};

// ---- the command line ----

// Reads a checkpoint's model, as --init's flags: from its identity, a text of data/flags/ in a file
// of zero/checkpoint/. *text: a JSON object of flags; *where: their file, for errors. free() both.
static int read_run_flags(const char *path, char **text, char **where, struct Error *e) {
    char *identity;
    int err = import_run_peek(path, where, &identity, e);
    if (err)
        return err;
    err = init_identity_flags(settings_table, settings_count, identity, *where, text, e);
    free(identity);
    return err;
}

static const struct WeightsKind run_weights = {"run:", "DIR", read_run_flags, import_run_open,
                                               NULL};

// The kinds of weights that --init and --export know.
static const struct WeightsKind *const weights_kinds[] = {&hf_weights, &run_weights, &llmc_weights,
                                                          NULL};

static int read_line(struct Run *run, int argc, char **argv, struct Error *e) {
    const struct FlagPart parts[] = {
        {settings_table, settings_count, offsetof(struct CommandLine, train)},
        {options_table, options_count, offsetof(struct CommandLine, run)}};
    flags_init(&run->flags, parts, sizeof parts / sizeof parts[0], &run->given);
    run->given.run.kinds = weights_kinds;
    run->given.run.resolved = &run->deepspeed;
    run->given.run.processes = (size_t)world_launched();
    int err = options_read(&run->flags, &run->given.run, argc, argv, e);
    run->line = run->given;
    run->resolved = flags_over(&run->flags, &run->line);
    return err;
}

static int resolve_line(struct Run *run, struct Error *e) {
    struct CommandLine *line = &run->line;
    if (options_mode(&line->run) <= MODE_VERSION) // help, or the version
        return 0;
    struct SettingsUse use = {.said = flags_said(&run->flags),
                              .plan = line->run.plan,
                              .has_init = line->run.init != NULL};
    int err = rank_device_join(&line->train.rank, &run->world, machine_cores(), &use, e);
    const struct Options *o = &line->run;
    run->job.trainer.resume.asked = (struct ResumeAsked){
        o->out, o->backup_dir, o->resume, options_only(o), &run->world, line->train.schedule.steps};
    resume_peek(&run->job.trainer.resume, &use);
    line->train.rank.traced_zero = line->run.trace_zero != NULL;
    line->train.rank.traced = line->run.trace || line->run.trace_zero;
    if (!err)
        err = options_resolve(&run->resolved, &line->run, e);
    if (o->sample_only || o->eval_only)
        line->train.global_batch = 0; // there is no step: that of a run's --out means nothing
    if (err || o->html)               // a page's lines are resolved one by one
        return err;
    if (!err)
        err = settings_resolve(&line->train, &run->given.train, &use, e);
    if (!err)
        options_fill_vocab(&line->run, preset_named(line->train.preset)->vocab);
    if (err && e->text[0])
        flags_describe_sources(&run->resolved, true, e);
    return err;
}

// ---- a rank ----

static void print_validation(struct Trainer *t, float loss, uint64_t samples) {
    struct Run *run = t->hooks.context;
    float bits = (float)data_bits_per_byte(run->texts.data, loss);
    uint64_t all = data_val_samples(run->texts.data);
    console_validation(&run->console, t->rank.zero.step, loss, bits, samples, all);
}

static struct Sampling make_sampling(const struct Options *o, const struct Ids *stops) {
    return (struct Sampling){.temperature = o->temperature,
                             .top_k = o->top_k,
                             .top_p = o->top_p,
                             .min_p = o->min_p,
                             .repetition_penalty = o->repetition_penalty,
                             .seed = o->seed,
                             .stops = stops->data,
                             .stop_count = stops->count};
}

// Makes a sample, and prints it. Errors: -EDOM, on all ranks alike.
static int make_sample(struct Trainer *t, struct Error *e) {
    struct Run *run = t->hooks.context;
    const struct Options *o = &run->line.run;
    const struct Ids *prompt = &run->texts.prompt;
    const struct Ids *stops = &run->texts.stops;
    struct Sampling s = make_sampling(o, stops);
    struct Generation g;
    generation_open(&g, &t->rank);
    generation_begin(&g, 0, prompt->data, prompt->count, o->sample_tokens, &s);
    while (generation_step(&g))
        ;
    int err = generation_check(&g, e);
    char *text = texts_format_sample(&run->texts, g.text[0].ids, g.text[0].count);
    bool cut = stops->count && !sample_stops(&s, g.text[0].ids[g.text[0].count - 1]);
    if (!err && trainer_speaks(t)) {
        progress_sample(&run->console.progress, t->rank.zero.step, text, o->sample_only);
        if (cut && o->sample_only)
            log_line(LOG_NORMAL,
                     "cut after %zu token%s, before its end; raise --sample-tokens for more",
                     o->sample_tokens, o->sample_tokens == 1 ? "" : "s");
    }
    free(text);
    generation_close(&g);
    return err;
}

// Prints a sample while a run trains, which goes on if none can be made.
static void print_sample(struct Trainer *t) {
    struct Run *run = t->hooks.context;
    struct Error e;
    if (make_sample(t, &e) && trainer_speaks(t))
        console_line(&run->console, "no sample: the logits are not finite; a lower --lr may help");
}

// Makes an answer, and prints it as it grows, until it ends or the person stops it.
static void print_answer(struct Run *run, struct Rank *r, struct Generation *g) {
    const struct GenText *x = g->text;
    bool speaks = r->all->rank == 0, ends = false;
    if (speaks)
        request_answer_begin();
    while (!ends) {
        bool more = generation_step(g) > 0;
        bool stopped = speaks && request_to_stop(request_all());
        ends = !more || zero_share(&r->zero, stopped)[0];
        bool whole = !g->not_finite && sample_stops(x->sampling, x->ids[x->count - 1]);
        enum AnswerEnd end = whole           ? ANSWER_WHOLE
                             : g->not_finite ? ANSWER_STOPPED
                             : !more         ? ANSWER_FULL
                             : ends          ? ANSWER_STOPPED
                                             : ANSWER_GOES_ON;
        if (speaks)
            dialog_print(&run->texts.dialog, x->ids + x->prompt, x->count - x->prompt - whole, end);
    }
    if (speaks)
        request_answer_end();
}

// Rank 0 reads questions and prints answers; all ranks make them.
static int converse(struct Trainer *t, struct Error *e) {
    struct Run *run = t->hooks.context;
    struct Sampling s = make_sampling(&run->line.run, &run->texts.stops);
    size_t longest = t->rank.model.config.seq_len, count;
    struct Ids prompt = {0};
    struct Generation g;
    int err;
    generation_open(&g, &t->rank);
    if (trainer_speaks(t) && run->texts.dialog.terminal)
        run->texts.dialog.interrupts = request_typing_begin();
    do {
        prompt.count = 0;
        err = trainer_speaks(t) ? dialog_ask(&run->texts.dialog, &prompt, e) : 0;
        count = prompt.count;
        int32_t *ids = generation_share(&t->rank, prompt.data, &count);
        if (count) {
            generation_begin(&g, 0, ids, count,
                             size_min(run->line.run.sample_tokens, longest - count), &s);
            print_answer(run, &t->rank, &g);
            err = generation_check(&g, e);
        }
        free(ids);
    } while (count && !err);
    if (trainer_speaks(t))
        request_typing_end();
    generation_close(&g);
    ids_free(&prompt);
    return zero_agree(&t->rank.zero, err);
}

// The answers of --prompts that are being made: text i of the generation is for prompt
// `prompt_of[i]`, or for none if that is `prompts`, their number.
struct Answering {
    struct Run *run;
    struct Generation g;
    struct Answers *answers; // of rank 0
    struct Sampling *sampling;
    size_t *prompt_of, prompts, next;
    uint64_t tokens;         // that were made
    double begin, last_told; // when the first text began; when progress was last told
};

// Answers wait in memory for the first that is not written: so many batches of them, at most.
enum { PROGRESS_SECONDS = 10, BATCHES_AHEAD = 8 };

// Begins the next prompt as text i of the generation.
static void begin_prompt(struct Answering *a, size_t i) {
    const struct Prompts *p = a->run->texts.prompts;
    const struct Options *o = &a->run->line.run;
    const struct Ids *ids = &p->prompt[a->next].ids;
    size_t room = a->g.rank->model.config.seq_len - ids->count;
    a->sampling[i] = make_sampling(o, p->prompt[a->next].stops);
    // Equal prompts may get different answers. With seed + line a prompt would get the answer that
    // the one before it gets with the next seed.
    a->sampling[i].seed = rng_bits(o->seed, a->next);
    a->g.text[i].cached = 0; // an answer does not depend on what was answered before it
    generation_begin(&a->g, i, ids->data, ids->count, size_min(o->sample_tokens, room),
                     &a->sampling[i]);
    a->prompt_of[i] = a->next++;
}

// Gives prompts to the texts that have none, while there are some and BATCHES_AHEAD allows. Returns
// how many texts have one.
static size_t begin_prompts(struct Answering *a) {
    size_t first = a->next, active = 0;
    for (size_t i = 0; i < a->g.texts; i++)
        first = size_min(first, a->prompt_of[i]);
    for (size_t i = 0; i < a->g.texts; i++) {
        bool idle = a->prompt_of[i] == a->prompts;
        if (idle && a->next < size_min(a->prompts, first + BATCHES_AHEAD * a->g.texts))
            begin_prompt(a, i);
        active += a->prompt_of[i] < a->prompts;
    }
    return active;
}

static int put_answer(struct Answering *a, size_t i, struct Error *e) {
    const struct GenText *x = &a->g.text[i];
    bool stopped = sample_stops(x->sampling, x->ids[x->count - 1]);
    size_t bytes;
    char *text = printed_text(data_tokenizer(a->run->texts.data), x->ids + x->prompt,
                              x->count - x->prompt - stopped, &bytes);
    int err = answers_put(a->answers, a->prompt_of[i], text, bytes, !stopped, e);
    free(text);
    return err;
}

// Logs on rank 0, every PROGRESS_SECONDS, how many answers are done. open: how many are being made.
static void log_progress(struct Answering *a, size_t open) {
    double now = base_seconds();
    if (!a->answers || now - a->last_told < PROGRESS_SECONDS)
        return;
    a->last_told = now;
    size_t done = answers_done(a->answers);
    log_line(LOG_NORMAL,
             "%zu of %zu answers are written, %zu wait for one before them, %.1f tokens/s", done,
             a->prompts, a->next - open - done, (double)a->tokens / (now - a->begin));
}

// Answers prompts, as many at a time as the cache has sequences, until all are answered.
static int answer_all(struct Answering *a, struct Error *e) {
    size_t open;
    int err = 0;
    while (!err && (open = begin_prompts(a)) > 0) {
        generation_step(&a->g);
        err = generation_check(&a->g, e);
        a->tokens += open;
        for (size_t i = 0; i < a->g.texts && !err; i++)
            if (a->prompt_of[i] < a->prompts && !a->g.text[i].active) {
                err = zero_agree(&a->g.rank->zero, a->answers ? put_answer(a, i, e) : 0);
                a->prompt_of[i] = a->prompts;
                open--;
            }
        log_progress(a, open);
    }
    return err;
}

static int answer_prompts(struct Trainer *t, struct Error *e) {
    struct Run *run = t->hooks.context;
    const struct Options *o = &run->line.run;
    struct Answering a = {.run = run, .prompts = run->texts.prompts->count};
    struct Error ignored;
    int err = trainer_speaks(t) ? answers_open(&a.answers, run->texts.prompts, o->answers, e) : 0;
    err = zero_agree(&t->rank.zero, err);
    if (!err) {
        generation_open(&a.g, &t->rank);
        a.prompt_of = base_alloc(a.g.texts * sizeof *a.prompt_of);
        a.sampling = base_alloc(a.g.texts * sizeof *a.sampling);
        for (size_t i = 0; i < a.g.texts; i++)
            a.prompt_of[i] = a.prompts;
        size_t answered = zero_share(&t->rank.zero, a.answers ? answers_done(a.answers) : 0)[0];
        a.next = answered;
        if (answered && trainer_speaks(t))
            log_line(LOG_NORMAL, "%zu of %zu prompts are answered already in %s", answered,
                     a.prompts, o->answers);
        a.begin = a.last_told = base_seconds();
        err = answer_all(&a, e);
        double seconds = base_seconds() - a.begin;
        if (!err && answered < a.prompts && trainer_speaks(t))
            log_line(LOG_NORMAL, "%zu answer%s, %llu tokens in %.1f s: %.1f tokens/s",
                     a.prompts - answered, a.prompts - answered == 1 ? "" : "s",
                     (unsigned long long)a.tokens, seconds, (double)a.tokens / seconds);
        generation_close(&a.g);
    }
    free(a.prompt_of);
    free(a.sampling);
    int closed = answers_close(a.answers, err ? &ignored : e);
    return zero_agree(&t->rank.zero, err ? err : closed);
}

// Scores the items of evaluation tasks on all ranks.
static int evaluate(struct Trainer *t, struct Error *e) {
    struct Run *run = t->hooks.context;
    const struct Evals *evals = &run->texts.evals;
    int err = 0;
    for (const struct EvalTask *task = evals->task; task < evals->task + evals->count; task++) {
        const struct EvalList *list = task->items.list;
        double *scores = base_alloc((list[0].count + list[1].count) * sizeof *scores);
        for (size_t p = 0, n = 0; p < NEVALPROTOCOL && !err; n += list[p++].count)
            err = rank_score(&t->rank, list[p].sequence, list[p].count, scores + n, e);
        if (!err && trainer_speaks(t))
            console_evaluation(&run->console, t->rank.zero.step, task, scores);
        free(scores);
    }
    return err;
}

// Opens rank 0's console, and if there will be steps its files in --out.
static int open_rank_console(struct Run *run, struct Trainer *t, struct Error *e) {
    const struct Options *o = &run->line.run;
    struct Console *console = &run->console;
    uint64_t step = t->rank.zero.step;
    int err = 0;
    if (trainer_speaks(t)) {
        console->tokens = trainer_step_tokens(t);
        console->flops = rank_flops_per_token(&t->rank);
        console->peak = o->peak_tflops * 1e12 * run->world.size;
        console->light = run->forecast.speeds.flops * run->world.size; // what all ranks could reach
        progress_open(&console->progress, stdout, step, run->line.train.schedule.steps,
                      o->log_every);
        console->progress.live &= !run->world.launched; // a launcher's pipe may look like a tty
        if (!options_only(o))
            err = console_open(console, &run->flags, o->out, step ? (int64_t)step : RUNLOG_FRESH,
                               o->tensorboard, e);
    }
    return zero_agree(&t->rank.zero, err);
}

// Marks the stored speed of matrix products as in doubt, because training was faster.
static void doubt_speed(const struct Run *run) {
    char *name = rank_device_speed_name(&run->job.settings);
    log_line(LOG_NORMAL, "training was faster than the measured rates of this machine allow; the "
                         "next run measures them again");
    machine_doubt(run->line.run.cache, name);
    free(name);
}

// Reports predicted against counted memory and traffic, and prints the weights hash.
static void print_end(struct Run *run, struct Trainer *t) {
    struct Rank *r = &t->rank;
    struct Error e;
    uint64_t hash = zero_weights_hash(&r->zero);
    if (!trainer_speaks(t) || t->code)
        return;
    char *json = predict_compare(&run->request, &run->forecast, r);
    if (run->console.progress.exceeded)
        doubt_speed(run);
    int err = console_memory(run->line.run.out, json, &e);
    struct Traffic sent = rank_traffic(r);
    runlog_write_counts(&run->console.log, r->zero.step, "sent_bytes", collective_names, sent.bytes,
                        NCOLLECTIVE);
    trainer_keep_error(t, err, &e);
    free(json);
    base_wait_for_reader(stdout);
    if (!err)
        printf("weights hash: %016llx\n", (unsigned long long)hash);
}

static int train(struct Trainer *t, struct Error *e) {
    struct Run *run = t->hooks.context;
    int err = open_rank_console(run, t, e);
    if (!err)
        err = trainer_run(t, e);
    if (trainer_speaks(t))
        progress_close(&run->console.progress);
    if (!err)
        print_end(run, t);
    return err;
}

// True for --chat without a question.
static bool is_conversation(const struct Options *o) {
    return o->chat && !*o->chat;
}

static int sample(struct Trainer *t, struct Error *e) {
    struct Run *run = t->hooks.context;
    int err = open_rank_console(run, t, e);
    if (err)
        return err;
    if (run->texts.prompts)
        return answer_prompts(t, e);
    if (is_conversation(&run->line.run))
        return converse(t, e);
    return make_sample(t, e);
}

static int only_evaluate(struct Trainer *t, struct Error *e) {
    int err = open_rank_console(t->hooks.context, t, e);
    return err ? err : trainer_evaluate(t, e);
}

// ---- from the command line to the ranks ----

// True if weights of --init are read, where it is given: when a run begins; and also when a run of
// adapters goes on, as its checkpoints hold the adapters alone.
static bool reads_init_weights(const struct Run *run) {
    return resume_is_fresh(&run->job.trainer.resume) || run->line.train.rank.model.lora.rank;
}

// Returns the initial trainer of each rank.
static struct Trainer make_trainer(struct Run *run) {
    const struct Options *o = &run->line.run;
    struct Data *data = run->texts.data;
    uint64_t all = data_val_samples(data), wanted = o->val_batches * run->job.settings.batch;
    uint64_t eval_samples = o->eval_limit ? size_min(o->eval_limit, all) : all;
    return (struct Trainer){
        .settings = &run->line.train,
        .val_samples = size_min(wanted, all),
        .val_samples_at_end = all,
        .hooks = {data_train_batch, data_val_batch, data_train_counted, data_val_counted, data,
                  &run->console, console_step, console_note, console_line, console_sync, run,
                  print_validation, print_sample, evaluate},
        .eval_samples = o->evals_ppl ? eval_samples : 0,
        .init = reads_init_weights(run) ? run->texts.model : (struct ImportSource){0},
        .init_adapter = run->texts.adapter,
        .exported = run->texts.exported,
        .exported_adapter = run->texts.exported_adapter,
        .joins = run->world.first != 0,
        .resume = run->job.trainer.resume,
        .trace = o->trace,
        .trace_zero = o->trace_zero,
        .model = o->init ? o->init : run->line.train.preset};
}

// Returns how many texts are continued side by side; of --prompts, before they are read, at most.
static size_t texts_together(const struct Run *run) {
    const struct Prompts *p = run->texts.prompts;
    size_t batch = run->line.run.prompts ? run->job.settings.batch : 1;
    return p ? size_min(batch, p->count) : batch;
}

// Completes the ranks' settings.
static int complete_settings(struct Run *run, size_t vocab, struct Error *e) {
    const struct Options *o = &run->line.run;
    struct RankSettings *s = &run->job.settings;
    int err = settings_of_ranks(&run->line.train, &run->world, vocab, s, e);
    if (!err && (o->sample_only || (o->eval_only && !o->export)))
        settings_set_inference(s);
    if (!err && (o->sample_only || run->line.train.intervals.sample_every))
        settings_set_cache(s, texts_together(run));
    if (is_conversation(o))
        s->timeout_s = HUGE_VAL; // the ranks wait for a person
    return err;
}

// Completes the settings once the vocabulary is known, lets --fit choose, and completes them again.
static int resolve_and_fit(struct Run *run, size_t vocab, struct Error *e) {
    int err = complete_settings(run, vocab, e);
    if (!err)
        err = predict_choose(&run->request, &run->line.train, &run->given.train, e);
    return err ? err : complete_settings(run, vocab, e);
}

// An export copies the files beside the weights, and checkpoints lack the base of adapters: so a
// resume may need the model, too.
static int open_model(struct Run *run, bool fresh, struct Error *e) {
    int err = texts_open_model(&run->texts, e);
    if (!err || fresh)
        return err;
    struct Error why = *e;
    const char *export = run->line.run.export;
    return error_set(e, err, why.id,
                     "%s%s needs the model that --init names: %s; if it has moved, name it by "
                     "--init KIND:PATH",
                     export ? "--export " : "--lora-rank", export ? export : "", why.text);
}

// Checks the model of --init, and the export of --export.
static int check_weights(struct Run *run, struct Error *e) {
    const struct ModelConfig *model = &run->job.settings.model;
    const struct Options *o = &run->line.run;
    struct FlagsSaid said = flags_said(&run->flags);
    bool fresh = resume_is_fresh(&run->job.trainer.resume);
    int err = 0;
    if (!fresh && flag_is_on_line(&said, "init"))
        err = init_check_resumed(&run->resolved, o->kinds, o->init, e);
    if (!err && (reads_init_weights(run) || o->export))
        err = open_model(run, fresh, e);
    if (!err && reads_init_weights(run) && run->texts.model.context)
        err = import_check(model, &run->texts.model, e);
    if (!err && fresh)
        err = texts_open_adapter(&run->texts, e);
    return err ? err : texts_open_export(&run->texts, 0, model->dtype, e);
}

// Refuses whatever can be refused before data are prepared and anything is printed. The vocabulary
// is not known yet; only memory depends on it.
static int check_before_data(struct Run *run, struct Error *e) {
    int err = complete_settings(run, 1, e);
    if (!err && !options_only(&run->line.run))
        err = console_check(run->line.run.out, e);
    return err ? err : predict_check(&run->request, e);
}

// Lists the parameters to export, once the vocabulary is known, and checks that the disk has room.
static int list_export(struct Run *run, struct Error *e) {
    const struct ModelConfig *model = &run->job.settings.model;
    const struct ExportSink *sinks[] = {&run->texts.exported, &run->texts.exported_adapter};
    int err = texts_open_export(&run->texts, model->vocab, model->dtype, e);
    for (int i = 0; i < 2; i++) {
        const struct ExportSink *to = sinks[i];
        if (to->list && !err)
            err = params_visit(model, to->adapters, to->list, to->context, e);
        if (to->write && !err)
            err = to->check_room(to->context, e);
    }
    return err;
}

// Sets what depends on the data: whether sequences are packed, and how many steps --epochs are.
static int set_from_data(struct Run *run, struct Error *e) {
    struct Settings *s = &run->line.train;
    double warmup_share = init_is_fine_tuning_default(&run->flags, "warmup") ? INIT_WARMUP : -1;
    uint64_t samples = data_epoch_samples(run->texts.data);
    s->rank.packed = data_packed(run->texts.data);
    if (!s->epochs || options_only(&run->line.run))
        return 0;
    int err = settings_set_epochs(s, &run->given.train, samples, warmup_share, e);
    if (!err && !run->world.first)
        settings_log_epochs(s, samples);
    run->job.trainer.resume.asked.steps = s->schedule.steps;
    return err;
}

// Opens the texts; only rank 0 logs.
static int open_run_texts(struct Run *run, struct Error *e) {
    enum LogLevel level = log_level;
    log_level = run->world.first ? LOG_QUIET : level;
    int err = texts_open(&run->texts, e);
    log_level = level;
    return err;
}

// The first process of each machine fetches, encodes and packs the training data, and tells the
// others what to open.
static int prepare(struct Run *run, struct Error *e) {
    const struct World *w = &run->world;
    struct Texts *t = &run->texts;
    t->only_opens = w->node_rank > 0;
    int err = world_agree(w, t->only_opens ? 0 : open_run_texts(run, e), e);
    if (err)
        return err;
    world_broadcast_in_node(w, (uint64_t *)&t->found, sizeof t->found / sizeof(uint64_t));
    if (t->only_opens)
        err = open_run_texts(run, e);
    if (err == -ENOENT) { // this process has a --cache of its own
        t->only_opens = false;
        err = open_run_texts(run, e);
    }
    return world_agree(w, err, e);
}

// Reports settings that came from --init or --deepspeed files, and what the model's files remark.
static void report_defaults(struct Run *run) {
    const struct Options *o = &run->line.run;
    if (o->from_model && options_mode(o) == MODE_TRAIN && !run->world.first)
        init_log_defaults(&run->flags);
    if (!run->world.first)
        import_log(&run->job.settings.model, &run->texts.model);
    if (o->deepspeed && !o->json && run->request.out && !run->world.first)
        deepspeed_describe(&run->deepspeed, &run->resolved, run->request.out);
}

// Runs a job from resolved options to its end. Processes agree after each part.
static int prepare_and_run(struct Run *run, struct Error *e) {
    struct Error ignored;
    int err = world_agree(&run->world, check_before_data(run, e), e);
    if (!err)
        err = world_agree(&run->world, resume_check(&run->job.trainer.resume, e), e);
    if (!err)
        err = world_agree(&run->world, check_weights(run, e), e);
    if (!err)
        err = prepare(run, e);
    err = err ? err : set_from_data(run, e);
    err = err ? err : resolve_and_fit(run, data_vocab(run->texts.data), e);
    if (!err)
        report_defaults(run);
    if (!err)
        err = predict(&run->request, &run->forecast, e);
    if (!err && (run->texts.exported.write || run->texts.exported_adapter.write))
        err = list_export(run, e);
    err = world_agree(&run->world, err, e);
    if (!err) {
        run->job.trainer = make_trainer(run);
        err = job_run(&run->job, e);
        int unlogged = console_close(&run->console, err ? &ignored : e);
        err = err ? err : unlogged;
    }
    texts_close(&run->texts);
    resume_close(&run->job.trainer.resume);
    return err;
}

// Returns how many samples a run trains on, counted from its first step; UINT64_MAX with --epochs.
static uint64_t count_train_samples(const struct CommandLine *line, enum Mode mode) {
    if (mode != MODE_TRAIN && mode != MODE_PREPARE)
        return 0;
    return line->train.epochs ? UINT64_MAX : line->train.schedule.steps * line->train.global_batch;
}

static void set_text_options(struct Run *run, enum Mode mode) {
    struct CommandLine *given = &run->given, *line = &run->line;
    const struct Options *o = &line->run;
    run->texts.options = (struct TextOptions){&run->resolved,
                                              &given->run,
                                              &line->run,
                                              &given->train.rank.model.seq_len,
                                              &line->train.rank.model.seq_len,
                                              o->sample_only || line->train.intervals.sample_every,
                                              !o->sample_only,
                                              run->world.launched ? run->world.size : 1,
                                              count_train_samples(line, mode)};
}

// ---- the modes ----

// A command line of the page's, and what it has of the user's run.
struct PageLine {
    struct Run *user, run;
};

// Reads a command line of the page's, as far as `plan` does before it predicts.
static int page_read(void *context, int argc, char **argv, struct RankSettings *out,
                     struct Error *e) {
    struct PageLine *line = context;
    struct Run *run = &line->run;
    size_t vocab = 1;
    memset(run, 0, sizeof *run);
    int err = read_line(run, argc, argv, e);
    if (!err)
        err = world_open(&run->world, run->given.train.rank.timeout_s, e);
    if (err)
        return err;
    run->line.run.cache = line->user->line.run.cache;
    err = resolve_line(run, e);
    if (err)
        return err;
    set_text_options(run, MODE_PLAN);
    err = texts_predict(&run->texts, &vocab, &run->line.train.rank.packed, e);
    if (!err)
        err = complete_settings(run, vocab, e);
    if (err)
        flags_describe_sources(&run->resolved, err == -EINVAL, e);
    *out = run->job.settings;
    return err;
}

static void page_forget(void *context) {
    struct PageLine *line = context;
    world_close(&line->run.world);
    flags_free(&line->run.flags);
    deepspeed_close(&line->run.deepspeed);
}

static int make_page(struct Run *run, struct Error *e) {
    struct FlagsSaid said = flags_said(&run->flags);
    struct PageLine *line = base_alloc_zeroed(sizeof *line);
    line->user = run;
    struct PageRequest r = {.said = &said,
                            .argc = run->argc,
                            .argv = run->argv,
                            .read = page_read,
                            .forget = page_forget,
                            .context = line,
                            .path = run->line.run.html};
    int err = page_write(&r, e);
    free(line);
    return err;
}

// Plans a model, or a number of parameters without a model; or many models, for a page.
static int plan(struct Run *run, struct Error *e) {
    if (run->line.run.html)
        return make_page(run, e);
    size_t vocab = 1, parameters = run->line.run.params;
    int err = parameters ? 0 : texts_predict(&run->texts, &vocab, &run->line.train.rank.packed, e);
    if (!err && run->line.train.epochs)
        settings_log_epochs(&run->line.train, 0);
    if (!err)
        err = parameters ? complete_settings(run, vocab, e) : resolve_and_fit(run, vocab, e);
    if (err)
        return err;
    report_defaults(run);
    return parameters ? predict_parameters(&run->request, parameters, e)
                      : predict(&run->request, &run->forecast, e);
}

static int only_prepare(struct Run *run, struct Error *e) {
    int err = prepare(run, e);
    struct Data *data = run->texts.data;
    if (!err && !run->world.first) {
        const struct Settings *s = &run->line.train;
        char *paths = data_places(data);
        char *what = s->epochs ? base_format("--epochs %zu", s->epochs)
                               : base_format("--steps %zu, --global-batch %zu", s->schedule.steps,
                                             s->global_batch);
        printf("prepared: %llu tokens to train on, %llu to validate on, a vocabulary of %zu, for "
               "%s: %s\n",
               (unsigned long long)data_train_tokens(data),
               (unsigned long long)data_val_tokens(data), data_vocab(data), what, paths);
        free(what);
        free(paths);
    }
    texts_close(&run->texts);
    return err;
}

static int print_help_or_version(struct Run *run, struct Error *e) {
    return run->world.first ? 0 : options_print(&run->flags, &run->line.run, FEATURE_TABLE, e);
}

// For each mode: what the program does, and what each rank then does.
static const struct {
    int (*start)(struct Run *, struct Error *);
    int (*work)(struct Trainer *, struct Error *);
} modes[] = {
    [MODE_HELP] = {print_help_or_version, NULL},
    [MODE_VERSION] = {print_help_or_version, NULL},
    [MODE_PLAN] = {plan, NULL},
    [MODE_PLAN_PARAMETERS] = {plan, NULL},
    [MODE_PREPARE] = {only_prepare, NULL},
    [MODE_SAMPLE] = {prepare_and_run, sample},
    [MODE_EVAL... MODE_EXPORT] = {prepare_and_run, only_evaluate},
    [MODE_TRAIN] = {prepare_and_run, train},
};

static int start_mode(struct Run *run, struct Error *e) {
    struct CommandLine *line = &run->line;
    const struct Options *o = &line->run;
    enum Mode mode = options_mode(o);
    set_text_options(run, mode);
    run->job = (struct Job){.world = &run->world,
                            .seed = o->seed,
                            .identity = texts_identity,
                            .text = &run->texts,
                            .work = modes[mode].work,
                            .trainer.resume = run->job.trainer.resume};
    run->request = (struct PredictRequest){.settings = &run->job.settings,
                                           .world = &run->world,
                                           .measured = machine_measured,
                                           .cache = o->cache,
                                           .read_json = json_read,
                                           .steps = !options_only(o) && line->train.schedule.steps,
                                           .plan = o->plan,
                                           .json = o->json,
                                           .out = mode == MODE_SAMPLE ? NULL // it plans no training
                                                  : options_only(o)   ? stderr
                                                                      : stdout};
    if (!run->world.first && mode > MODE_VERSION)
        flags_log_renamed(&run->flags);
    int err = modes[mode].start(run, e);
    if (!o->html && (err == -EINVAL || err == -ENOMEM) && e->text[0])
        flags_describe_sources(&run->resolved, err == -EINVAL, e);
    return err;
}

// Flushes standard output. True if all was printed. A run that trains has --out, and may start with
// stdout closed.
static bool flush_output(enum Mode mode) {
    base_wait_for_reader(stdout);
    bool failed = fflush(stdout) || ferror(stdout);
    return !failed || (mode == MODE_TRAIN && base_was_closed(fileno(stdout)));
}

int main(int argc, char **argv) {
    struct Run run = {0};
    struct Error e = {0};
    base_hold_descriptors();
    base_keep_status();
    setvbuf(stdout, NULL, _IOLBF, 0); // keeps its lines in order with those of standard error
    request_begin();
    char *cache = cache_default_folder();
    run.argc = argc;
    run.argv = argv;
    int misread = read_line(&run, argc, argv, &e); // it sets the timeout of waiting for other ranks
    int err = world_open(&run.world, run.given.train.rank.timeout_s, &e);
    if (!err)
        err = world_agree(&run.world, misread, &e);
    if (!run.line.run.cache)
        run.line.run.cache = cache;
    if (!err)
        err = world_agree(&run.world, resolve_line(&run, &e), &e);
    if (!err)
        err = world_agree(&run.world, start_mode(&run, &e), &e);
    if (!flush_output(options_mode(&run.line.run)) && !err)
        err = error_set(&e, -EIO, E_STDOUT,
                        "cannot write to standard output; check the disk or program behind it");
    if (e.text[0])
        base_last_line("train: %s [%s]\n", e.text, error_name(e.id));
    world_close(&run.world);
    flags_free(&run.flags);
    deepspeed_close(&run.deepspeed);
    free(cache);
    return err || e.text[0] || argc == 1 ? 2 : 0; // without a flag nothing was done
}
