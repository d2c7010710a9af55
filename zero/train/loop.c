// The training loop: see loop.h.
#include "zero/train/loop.h"

#include "zero/train/ahead.h"

#include <errno.h>

struct LoopState {
    const struct Loop *loop;
    struct Rank *rank;
    struct Ahead ahead;
    double last_end; // of a step; or when the only one under way was begun
    bool stop;
};

// Queues the step after z->step; its settings and sequences are the same on every rank.
static int queue_step(struct LoopState *run, struct Error *e) {
    const struct Loop *l = run->loop;
    struct Rank *r = run->rank;
    const struct Zero *z = &r->zero;
    struct StepState settings = schedule_step(&l->schedule, &l->adam, z->step, z->updates);
    if (z->known == z->step)
        run->last_end = base_seconds();
    struct Error unread;
    int err = ahead_fill(&run->ahead, &unread);
    if (err)
        l->unread(l->context, err, &unread);
    struct BatchSource had = ahead_source(&run->ahead);
    return rank_queue_step(r, &had, &settings, e);
}

// Finishes the oldest step under way; its result is the same on every rank.
static int finish_step(struct LoopState *run, struct Error *e) {
    struct Zero *z = &run->rank->zero;
    struct StepResult result = zero_step_wait(z);
    double now = base_seconds(), seconds = now - run->last_end;
    run->last_end = now;
    bool asks = run->loop->ended(run->loop->context, &result, seconds);
    run->stop = run->stop || result.words & REQUEST_STOP || (asks && z->all->size == 1);
    if (z->skipped_at_least < SKIPPED_MAX)
        return 0;
    // diverged.c adds what to do.
    return error_set(e, -EDOM, E_DIVERGED, "the gradient was not finite in %zu steps in a row",
                     z->skipped_at_least);
}

static bool pauses(const struct Loop *l, uint64_t step) {
    return l->one_by_one || step == l->schedule.steps || l->pauses(l->context, step);
}

int loop_run(const struct Loop *l, struct Rank *r, bool *stopped, struct Error *e) {
    struct LoopState run = {.loop = l, .rank = r};
    struct Zero *z = &r->zero;
    struct Error ignored;
    ahead_open(&run.ahead, r, &l->from, l->schedule.steps);
    int err = zero_agree(z, ahead_fill(&run.ahead, e));
    while (!err && z->step < l->schedule.steps && !run.stop) {
        err = queue_step(&run, e);
        uint64_t last = pauses(l, z->step) ? z->step : z->step - STEPS_AHEAD;
        while (!err && z->known < last)
            err = finish_step(&run, e);
        if (!err && !run.stop && z->known == z->step)
            err = l->paused(l->context, e);
        run.stop = run.stop || err == -EINTR;
    }
    while (z->known < z->step)
        finish_step(&run, &ignored);
    ahead_close(&run.ahead);
    *stopped = run.stop;
    return err;
}
