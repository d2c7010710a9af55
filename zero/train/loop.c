// The training loop, and the batches that it reads ahead: see loop.h.
#include "zero/train/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- batches read ahead ----

// A failure is known to all ranks STEPS_AHEAD + 1 steps later.
enum { AHEAD_STEPS = STEPS_AHEAD + 1 };

struct LoopState {
    const struct Loop *loop;
    struct Rank *rank;
    uint64_t have;                     // steps before this one have been read
    int32_t *batches;                  // of these: (AHEAD_STEPS + 1, micro-batches, arrays, B, T)
    uint64_t counted[AHEAD_STEPS + 1]; // their targets, of all ranks
    bool failed;                       // nothing more is read
    double last_end;                   // of a step; or when the only one under way was begun
    bool stop;
};

static size_t slot_of(uint64_t step) {
    return (size_t)(step % (AHEAD_STEPS + 1));
}

// Returns the number of arrays of a batch: inputs, targets and, if documents are packed, starts.
static size_t arrays_of(bool packed) {
    return packed ? FEED_STARTS + 1 : FEED_STARTS;
}

size_t loop_bytes_ahead(const struct RankSettings *s) {
    return (AHEAD_STEPS + 1) * s->nmicro * arrays_of(s->packed) * s->batch * s->model.seq_len *
           sizeof(int32_t);
}

static size_t tokens_of(const struct Rank *r) {
    return r->acts.b_max * r->acts.t_max;
}

static struct Batch batch_of(const struct LoopState *run, uint64_t step, size_t micro) {
    const struct Rank *r = run->rank;
    size_t tokens = tokens_of(r), index = slot_of(step) * r->zero.plan.nmicro + micro;
    int32_t *inputs = run->batches + index * arrays_of(r->model.packed) * tokens;
    return (struct Batch){.inputs = inputs,
                          .targets = inputs + FEED_TARGETS * tokens,
                          .starts = r->model.packed ? inputs + FEED_STARTS * tokens : NULL};
}

static int read_step(struct LoopState *run, uint64_t step, struct Error *e) {
    const struct BatchSource *from = &run->loop->from;
    const struct Rank *r = run->rank;
    int err = 0;
    for (size_t micro = 0; micro < r->zero.plan.nmicro && !err; micro++) {
        struct Batch batch = batch_of(run, step, micro);
        err = from->read(from->data, rank_first_sample(r, step, micro), r->acts.b_max, &batch, e);
    }
    return err ? err : rank_count_step(r, from, step, &run->counted[slot_of(step)], e);
}

// Reads what is missing before the successor of step z->step is queued. Errors: the reader's, once;
// the batches that were read before stay.
static int read_ahead(struct LoopState *run, struct Error *e) {
    const uint64_t *step = &run->rank->zero.step;
    int err = 0;
    while (!run->failed && run->have < run->loop->schedule.steps &&
           run->have <= *step + AHEAD_STEPS) {
        err = read_step(run, run->have, e);
        run->failed = err != 0;
        run->have += !err;
    }
    return err;
}

// A BatchReader: copies a micro-batch of the step after z->step that was read ahead.
static int copy_batch(void *state, uint64_t first, size_t n, const struct Batch *batch,
                      struct Error *e) {
    const struct LoopState *run = state;
    const struct Rank *r = run->rank;
    uint64_t step = r->zero.step;
    size_t micro = 0, tokens = tokens_of(r);
    (void)e;
    while (micro < r->zero.plan.nmicro && rank_first_sample(r, step, micro) != first)
        micro++;
    CHECK(micro < r->zero.plan.nmicro && step < run->have && n == r->acts.b_max,
          "%zu samples from %llu on in step %llu", n, (unsigned long long)first,
          (unsigned long long)step + 1);
    struct Batch had = batch_of(run, step, micro);
    memcpy(batch->inputs, had.inputs, tokens * sizeof *had.inputs);
    memcpy(batch->targets, had.targets, tokens * sizeof *had.targets);
    if (had.starts)
        memcpy(batch->starts, had.starts, tokens * sizeof *had.starts);
    return 0;
}

// A BatchCounter: returns what was counted when the step after z->step was read ahead.
static int count_step(void *state, uint64_t first, uint64_t n, uint64_t *counted, struct Error *e) {
    const struct LoopState *run = state;
    (void)first;
    (void)n;
    (void)e;
    *counted = run->counted[slot_of(run->rank->zero.step)];
    return 0;
}

// ---- the loop ----

// Queues the step after z->step; its settings and sequences are the same on every rank.
static int queue_step(struct LoopState *run, struct Error *e) {
    const struct Loop *l = run->loop;
    struct Rank *r = run->rank;
    const struct Zero *z = &r->zero;
    struct StepState settings = schedule_step(&l->schedule, &l->adam, z->step, z->updates);
    if (z->known == z->step)
        run->last_end = base_seconds();
    struct Error unread;
    int err = read_ahead(run, &unread);
    if (err)
        l->unread(l->context, err, &unread);
    // Without a counter every target counts.
    const struct BatchSource from = {copy_batch, l->from.count ? count_step : NULL, run};
    return rank_queue_step(r, &from, &settings, e);
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
    return step == l->schedule.steps || l->pauses(l->context, step);
}

int loop_run(const struct Loop *l, struct Rank *r, bool *stopped, struct Error *e) {
    struct LoopState run = {.loop = l, .rank = r, .have = r->zero.step};
    struct Zero *z = &r->zero;
    size_t arrays = arrays_of(r->model.packed), batches = (AHEAD_STEPS + 1) * z->plan.nmicro;
    struct Error ignored;
    run.batches = base_alloc(batches * arrays * tokens_of(r) * sizeof *run.batches);
    int err = zero_agree(z, read_ahead(&run, e));
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
    free(run.batches);
    *stopped = run.stop;
    return err;
}
