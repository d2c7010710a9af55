// Does a run fit, and if not, what would make it? See fit.h.
#include "zero/fit.h"

#include "zero/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { ADVICE_BYTES = 96 };

struct Room {
    size_t device_bytes;  // for each rank; SIZE_MAX: not bounded
    size_t machine_bytes; // for all ranks of this process; likewise
};

// What a user might say otherwise.
struct Change {
    int stage;
    enum Recompute recompute;
    size_t batch;
};

struct Search {
    const struct Forecast *run;
    const struct Room *room;
    struct Change best; // the last one that was tried, or the one that fits
    size_t best_bytes;  // its peak on one rank
};

static bool fits(const struct Forecast *f, const struct Room *room) {
    return f->is.tier[TIER_DEVICE].peak <= room->device_bytes &&
           f->is.tier[TIER_DEVICE].peak <= room->machine_bytes / (size_t)f->ranks_here;
}

// The settings with a change, as if the user had said it. False: there is no such run.
static bool apply(const struct Search *s, const struct Change *c, struct RankSettings *out) {
    *out = s->run->settings;
    out->stage = c->stage;
    out->recompute = c->recompute;
    return rank_set_batch(out, c->batch) == 0;
}

static bool try_change(struct Search *s, struct Change c) {
    struct RankSettings settings;
    struct Forecast f;
    struct Error ignored;
    if (!apply(s, &c, &settings) ||
        footprint_foretell(&settings, 0, s->run->ranks_here, &f, &ignored))
        return false;
    s->best = c;
    s->best_bytes = f.is.tier[TIER_DEVICE].peak;
    return fits(&f, s->room);
}

static bool try_stages(struct Search *s, struct Change c) {
    if (s->run->settings.ranks == 1)
        return false;
    while (zero_stage(++c.stage))
        if (try_change(s, c))
            return true;
    return false;
}

static bool try_recompute(struct Search *s, struct Change c) {
    while (++c.recompute < NRECOMPUTE)
        if (try_change(s, c))
            return true;
    return false;
}

// The largest batch that fits, among those that make a run: memory grows with the batch.
static bool try_batches(struct Search *s, struct Change c) {
    size_t *batch = base_alloc(c.batch * sizeof *batch), n = 0, fitting = 0;
    struct RankSettings unused;
    for (size_t b = 1, most = c.batch; b < most; b++) {
        c.batch = b;
        if (apply(s, &c, &unused))
            batch[n++] = b;
    }
    for (size_t end = n; fitting < end;) { // batch[0 .. fitting) fit, batch[end ..] do not
        size_t middle = fitting + (end - fitting) / 2;
        c.batch = batch[middle];
        if (try_change(s, c))
            fitting = middle + 1;
        else
            end = middle;
    }
    if (n) {
        c.batch = batch[fitting ? fitting - 1 : 0];
        try_change(s, c); // what was tried last need not be the one
    }
    free(batch);
    return fitting > 0;
}

static struct Change as_it_is(const struct Forecast *f) {
    const struct RankSettings *s = &f->settings;
    return (struct Change){s->stage, s->recompute, s->batch};
}

static int highest_stage(const struct Forecast *f) {
    int stage = f->settings.stage;
    while (f->settings.ranks > 1 && zero_stage(stage + 1))
        stage++;
    return stage;
}

static bool search(struct Search *s) {
    struct Change c = as_it_is(s->run);
    if (try_stages(s, c) || try_recompute(s, c))
        return true;
    struct Change higher = c;
    higher.stage = highest_stage(s->run);
    if (higher.stage != c.stage && try_recompute(s, higher))
        return true;
    if (try_batches(s, c)) // the first change that also changes the training
        return true;
    higher.recompute = NRECOMPUTE - 1;
    return try_batches(s, higher);
}

static void describe(const struct Change *c, const struct Change *from, char text[ADVICE_BYTES]) {
    int at = 0;
    text[0] = '\0';
    if (c->stage != from->stage)
        at += snprintf(text + at, ADVICE_BYTES - (size_t)at, " --zero %d", c->stage);
    if (c->recompute != from->recompute)
        at += snprintf(text + at, ADVICE_BYTES - (size_t)at, " --recompute %s",
                       recompute_name(c->recompute));
    if (c->batch != from->batch)
        snprintf(text + at, ADVICE_BYTES - (size_t)at, " --batch %zu", c->batch);
}

static double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

// advice: the change as flags, or "" where none helps.
static int refuse(struct Search *s, char advice[ADVICE_BYTES], struct Error *e) {
    const struct Forecast *f = s->run;
    struct Change from = as_it_is(f);
    bool found = search(s), device = f->is.tier[TIER_DEVICE].peak > s->room->device_bytes;
    char flags[ADVICE_BYTES], rest[ADVICE_BYTES + 96] = "";
    describe(&s->best, &from, flags);
    if (found)
        snprintf(rest, sizeof rest, "with%s it would fit, in %d x %.1f MiB", flags,
                 f->settings.ranks, mib(s->best_bytes));
    else if (flags[0])
        snprintf(rest, sizeof rest,
                 "no stage, recomputation or batch makes it fit;%s needs %d x %.1f MiB", flags,
                 f->settings.ranks, mib(s->best_bytes));
    else
        snprintf(rest, sizeof rest, "no stage, recomputation or batch makes it fit");
    snprintf(advice, ADVICE_BYTES, "%s", found ? flags + 1 : "");
    return error_set(e, -ENOMEM, "%d x %.1f MiB of device memory are needed, %s %.1f MiB: %s",
                     f->settings.ranks, mib(f->is.tier[TIER_DEVICE].peak),
                     device ? "--device-mem allows each rank" : "the machine has",
                     mib(device ? s->room->device_bytes : s->room->machine_bytes), rest);
}

int fit_or_refuse(const struct FitRequest *r, struct Forecast *out, struct Error *e) {
    struct PlaceMemory memory;
    int err = place_memory(r->settings, r->host, r->processes_here, &memory, e);
    if (!err)
        err = footprint_foretell(r->settings, memory.process_bytes, r->ranks_here, out, e);
    if (err)
        return err;
    char advice[ADVICE_BYTES] = "";
    struct Room room = {r->settings->device_bytes, r->plan ? SIZE_MAX : memory.free_bytes};
    struct Search s = {.run = out, .room = &room, .best = as_it_is(out)};
    if (!fits(out, &room))
        err = refuse(&s, advice, e);
    if (r->out && !r->json)
        table_print(r->out, out, NULL);
    if (r->out && r->json) {
        char *json = table_json(out, NULL, err ? advice : NULL);
        fputs(json, r->out);
        free(json);
    }
    return err;
}
