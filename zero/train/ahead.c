// Batches read ahead: see ahead.h. Next: loop.c.
#include "zero/train/ahead.h"

#include <stdlib.h>
#include <string.h>

static size_t arrays_of(bool packed) {
    return packed ? FEED_STARTS + 1 : FEED_STARTS;
}

static size_t slot_of(uint64_t step) {
    return (size_t)(step % (AHEAD_STEPS + 1));
}

static struct Batch batch_of(const struct Ahead *a, uint64_t step, size_t micro) {
    size_t index = slot_of(step) * a->nmicro + micro;
    int32_t *inputs = a->batches + index * a->arrays * a->tokens;
    bool packed = a->arrays > FEED_STARTS;
    return (struct Batch){.inputs = inputs,
                          .targets = inputs + FEED_TARGETS * a->tokens,
                          .starts = packed ? inputs + FEED_STARTS * a->tokens : NULL};
}

size_t ahead_bytes(const struct RankSettings *s) {
    return (AHEAD_STEPS + 1) * s->nmicro * arrays_of(s->packed) * s->batch * s->model.seq_len *
           sizeof(int32_t);
}

void ahead_open(struct Ahead *a, const struct Rank *r, const struct BatchSource *from,
                uint64_t end) {
    *a = (struct Ahead){.rank = r,
                        .from = *from,
                        .end = end,
                        .nmicro = r->zero.plan.nmicro,
                        .tokens = r->acts.b_max * r->acts.t_max,
                        .have = r->zero.step,
                        .arrays = arrays_of(r->model.packed)};
    a->batches =
        base_alloc((AHEAD_STEPS + 1) * a->nmicro * a->arrays * a->tokens * sizeof *a->batches);
}

void ahead_close(struct Ahead *a) {
    free(a->batches);
    *a = (struct Ahead){0};
}

static int read_step(struct Ahead *a, uint64_t step, struct Error *e) {
    int err = 0;
    for (size_t micro = 0; micro < a->nmicro && !err; micro++) {
        struct Batch batch = batch_of(a, step, micro);
        err = a->from.read(a->from.data, rank_first_sample(a->rank, step, micro),
                           a->rank->acts.b_max, &batch, e);
    }
    return err ? err : rank_count_step(a->rank, &a->from, step, &a->counted[slot_of(step)], e);
}

int ahead_fill(struct Ahead *a, struct Error *e) {
    int err = 0;
    while (!a->failed && a->have < a->end && a->have <= a->rank->zero.step + AHEAD_STEPS) {
        err = read_step(a, a->have, e);
        a->failed = err != 0;
        a->have += !err;
    }
    return err;
}

// A BatchReader: copies a micro-batch of the step after z->step that was read ahead.
static int ahead_read(void *ahead, uint64_t first, size_t n, const struct Batch *batch,
                      struct Error *e) {
    const struct Ahead *a = ahead;
    uint64_t step = a->rank->zero.step;
    size_t micro = 0;
    (void)e;
    while (micro < a->nmicro && rank_first_sample(a->rank, step, micro) != first)
        micro++;
    CHECK(micro < a->nmicro && step < a->have && n == a->rank->acts.b_max,
          "%zu samples from %llu on in step %llu", n, (unsigned long long)first,
          (unsigned long long)step + 1);
    struct Batch had = batch_of(a, step, micro);
    memcpy(batch->inputs, had.inputs, a->tokens * sizeof *had.inputs);
    memcpy(batch->targets, had.targets, a->tokens * sizeof *had.targets);
    if (had.starts)
        memcpy(batch->starts, had.starts, a->tokens * sizeof *had.starts);
    return 0;
}

static int ahead_count(void *ahead, uint64_t first, uint64_t n, uint64_t *counted,
                       struct Error *e) {
    const struct Ahead *a = ahead;
    (void)first;
    (void)n;
    (void)e;
    *counted = a->counted[slot_of(a->rank->zero.step)];
    return 0;
}

struct BatchSource ahead_source(struct Ahead *a) {
    return (struct BatchSource){ahead_read, a->from.count ? ahead_count : NULL, a};
}
