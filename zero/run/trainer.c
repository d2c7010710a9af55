// What follows the steps of a run: see trainer.h. Next: loop.c.
#include "zero/state.h"
#include "zero/run/trainer.h"

#include "zero/run/stop.h"

#include <errno.h>
#include <stdlib.h>

// What only this rank has seen (a full disk, a shard that cannot be read) must not leave the others
// waiting: before a collective that they are in, it ends the job; else it is kept, all ranks stop
// at the next step, and what was trained is saved. (Before ranks have a group they fail alike.)
static void end_if_alone(struct Trainer *t, int err, const struct Error *e) {
    if (err && t->rank.dp && t->rank.dp->size > 1)
        comm_fail(t->rank.dp, "%s", e->text);
}

void trainer_keep_error(struct Trainer *t, int err, const struct Error *e) {
    if (!err || t->code)
        return;
    t->code = err;
    t->error = *e;
    stop_request();
}

static void tell(struct Trainer *t, char *line) {
    if (trainer_speaks(t))
        t->hooks.tell(t, line);
    free(line);
}

static bool is_due(uint64_t step, uint64_t every) {
    return every && step % every == 0;
}

int trainer_open(struct Trainer *t, const struct RankSettings *s, struct Error *e) {
    int err = rank_open(&t->rank, s, false, e);
    end_if_alone(t, err, e);
    t->rank.stop = stop_wish();
    return err;
}

void trainer_close(struct Trainer *t) {
    rank_close(&t->rank);
    free(t->identity);
}

int trainer_start(struct Trainer *t, uint64_t seed, char *identity, struct Error *e) {
    struct Zero *z = &t->rank.zero;
    t->identity = identity;
    zero_init_weights(z, seed);
    int err = zero_compare(z, identity, e);
    if (!err)
        err = resume_load(&t->resume, z, identity, e);
    t->saved = z->step ? z->step : UINT64_MAX;
    return err;
}

// The loss of the first `samples` validation sequences. -EINTR: none, as a stop was asked for.
static int validate(struct Trainer *t, uint64_t samples, struct Error *e) {
    const struct TrainerHooks *h = &t->hooks;
    float loss;
    int err = rank_validate(&t->rank, h->read_val, h->data, samples, &loss, e);
    if (err == -EINTR)
        return err;
    end_if_alone(t, err, e);
    if (!err && trainer_speaks(t))
        trainer_keep_error(t, h->validated(t, loss, samples, e), e);
    return err;
}

static int save(struct Trainer *t, struct Error *e) {
    if (t->saved == t->rank.zero.step)
        return 0;
    int err = checkpoint_save(&t->rank.zero, t->resume.folder, t->identity, t->habits.keep, e);
    if (!err)
        t->saved = t->rank.zero.step;
    return err;
}

static void tell_skipped(struct Trainer *t, const struct StepResult *result) {
    char scale[128];
    loss_scale_describe(&result->loss_scale, &t->rank.zero.loss_scale, scale, sizeof scale);
    tell(t, base_format("step %llu: the gradient is not finite, the update was skipped%s",
                        (unsigned long long)result->step, scale));
}

static bool step_ended(void *trainer, const struct StepResult *result, double seconds) {
    struct Trainer *t = trainer;
    struct Error e;
    if (result->skipped)
        tell_skipped(t, result);
    if (trainer_speaks(t))
        trainer_keep_error(t, t->hooks.stepped(t, result, seconds, &e), &e);
    return t->code || *stop_wish();
}

// Whether something that wants the whole state follows that step.
static bool is_pause(void *trainer, uint64_t step) {
    const struct Habits *h = &((struct Trainer *)trainer)->habits;
    return is_due(step, h->val_every) || is_due(step, h->sample_every) ||
           is_due(step, h->save_every);
}

static int after_step(void *trainer, struct Error *e) {
    struct Trainer *t = trainer;
    const struct Habits *h = &t->habits;
    uint64_t step = t->rank.zero.step;
    int err = 0;
    if (is_due(step, h->val_every) && step < t->settings->schedule.steps)
        err = validate(t, h->val_samples, e);
    if (!err && step > 0 && is_due(step, h->sample_every))
        err = t->hooks.sample(t, e);
    if (!err && step > 0 && is_due(step, h->save_every))
        err = save(t, e);
    return err;
}

static void tell_done(struct Trainer *t) {
    unsigned long long step = t->rank.zero.step, steps = t->settings->schedule.steps;
    if (step > 0 && step >= steps)
        tell(t, base_format("step %llu of %llu is done already; --steps N trains on", step, steps));
}

int trainer_run(struct Trainer *t, struct Error *e) {
    struct Zero *z = &t->rank.zero;
    struct Loop loop = {.schedule = t->settings->schedule,
                        .adam = t->settings->adam,
                        .one_by_one = t->settings->rank.one_queue,
                        .read = t->hooks.read_train,
                        .data = t->hooks.data,
                        .context = t,
                        .pauses = is_pause,
                        .ended = step_ended,
                        .paused = after_step};
    uint64_t loaded = t->saved;
    stop_on_signals();
    tell_done(t);
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
    if (t->saved != loaded) {
        char *path = checkpoint_path(t->resume.folder, t->saved);
        tell(t, base_format("saved %s", path));
        free(path);
    }
    zero_install(z); // what was saved is as if the run went on
    if (!err && !stop)
        err = validate(t, t->habits.val_samples_at_end, e);
    else if (!err && !t->code)
        tell(t, base_format("stopped after step %llu, as asked: --resume auto goes on",
                            (unsigned long long)z->step));
    err = err == -EINTR ? 0 : err;
    if (!err && t->trace)
        trainer_keep_error(t, rank_write_trace(&t->rank, t->trace, e), e);
    return err;
}
