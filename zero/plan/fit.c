// Does a run fit, and if not, what would make it? See fit.h.
#include "zero/plan/fit.h"

#include "zero/plan/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { ADVICE_BYTES = 256, LACK_BYTES = 192 };

// What a user might say otherwise.
struct Change {
    int stage;
    enum Recompute recompute;
    size_t batch;
    enum TierKind opt, param, act;
    enum MasterFormat master;
};

// What there is too little of: what --device-mem and --host-mem allow, the place where the device
// tier is (a GPU's memory, or the machine's), and the machine's memory.
enum Shortage { SHORT_NOT, SHORT_DEVICE, SHORT_HOST, SHORT_PLACE, SHORT_MEMORY, NSHORTAGE };

// Whose memory it is, and who says how much there is.
static const struct {
    const char *memory, *limit;
} shortages[NSHORTAGE] = {[SHORT_DEVICE] = {"device", "--device-mem allows each rank"},
                          [SHORT_HOST] = {"CPU", "--host-mem allows each rank"},
                          [SHORT_PLACE] = {"device", "the machine has for each rank"},
                          [SHORT_MEMORY] = {"CPU", "the machine has for each rank"}};

// Bytes for each rank, SIZE_MAX: not bounded.
struct Room {
    size_t of[NSHORTAGE];
};

struct Search {
    const struct Forecast *run;
    const struct Room *room;
    enum Shortage shortage;  // the run's
    struct Change best;      // one that fits, or of those tried the one that exceeds least
    size_t excess;           // what it needs beyond all limits
    enum Shortage best_lack; // what it is short of: where it fits, that of the run
    size_t best_bytes;       // so much of that it needs, on one rank
};

// A rank's need of what would be short.
static size_t need(const struct Forecast *f, enum Shortage of) {
    size_t device = f->is.tier[TIER_DEVICE].peak, host = f->is.tier[TIER_CPU].peak;
    if (of == SHORT_HOST)
        return host;
    bool both = of == SHORT_MEMORY && f->settings.device == DEVICE_CPU;
    return of == SHORT_MEMORY ? footprint_host_bytes(&f->is) + (both ? device : 0) : device;
}

static enum Shortage shortage(const struct Forecast *f, const struct Room *room) {
    for (enum Shortage s = SHORT_DEVICE; s < NSHORTAGE; s++)
        if (need(f, s) > room->of[s])
            return s;
    return SHORT_NOT;
}

// What is needed beyond each limit, together: a change that only moves it elsewhere gains nothing.
static size_t excess(const struct Forecast *f, const struct Room *room) {
    size_t sum = 0;
    for (enum Shortage s = SHORT_DEVICE; s < NSHORTAGE; s++)
        sum += need(f, s) > room->of[s] ? need(f, s) - room->of[s] : 0;
    return sum;
}

// The settings with a change, as if the user had said it. False: there is no such run.
static bool apply(const struct Search *s, const struct Change *c, struct RankSettings *out) {
    *out = s->run->settings;
    out->stage = c->stage;
    out->recompute = c->recompute;
    out->opt_tier = c->opt;
    out->param_tier = c->param;
    out->act_tier = c->act;
    out->master_format = c->master;
    bool stops = settings_offload(&s->run->settings) && !settings_offload(out);
    bool part = out->offload_ratio > 0 && out->offload_ratio < 1;
    if ((part && out->opt_tier == TIER_DEVICE) || (stops && out->host_bytes))
        return false; // as check_offload (settings.c) refuses them
    return settings_set_batch(out, c->batch) == 0;
}

static bool try_change(struct Search *s, struct Change c) {
    struct RankSettings settings;
    struct Forecast f;
    struct Error ignored;
    if (!apply(s, &c, &settings) ||
        footprint_predict(&settings, 0, s->run->ranks_here, &f, &ignored))
        return false;
    size_t beyond = excess(&f, s->room);
    if (!beyond || beyond < s->excess) {
        s->best = c;
        s->excess = beyond;
        s->best_lack = beyond ? shortage(&f, s->room) : s->shortage;
        s->best_bytes = need(&f, s->best_lack);
    }
    return !beyond;
}

// The other stages, higher ones first: shards make a rank's part smaller, but what is gathered
// around a unit may need more than they save, so none is left out.
static bool try_stages(struct Search *s, struct Change c,
                       bool (*try)(struct Search *, struct Change)) {
    int stage = c.stage;
    for (c.stage = stage + 1; zero_stage(c.stage); c.stage++)
        if (try(s, c))
            return true;
    for (c.stage = stage - 1; c.stage >= 0; c.stage--)
        if (try(s, c))
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
    if (fitting) {
        c.batch = batch[fitting - 1];
        try_change(s, c); // others fitted before
    }
    free(batch);
    return fitting > 0;
}

static struct Change as_it_is(const struct Forecast *f) {
    const struct RankSettings *s = &f->settings;
    return (struct Change){s->stage,      s->recompute, s->batch,        s->opt_tier,
                           s->param_tier, s->act_tier,  s->master_format};
}

// With no other batch.
static bool try_layouts(struct Search *s, struct Change c) {
    return try_stages(s, c, try_change) || try_recompute(s, c) || try_stages(s, c, try_recompute);
}

// What is offloaded first, and what then.
static const struct {
    enum TierKind opt, param, act;
} offloads[] = {
    {TIER_CPU, TIER_DEVICE, TIER_DEVICE}, {TIER_CPU, TIER_CPU, TIER_DEVICE},
    {TIER_CPU, TIER_CPU, TIER_CPU},       {TIER_NVME, TIER_DEVICE, TIER_DEVICE},
    {TIER_NVME, TIER_CPU, TIER_DEVICE},   {TIER_NVME, TIER_CPU, TIER_CPU},
    {TIER_NVME, TIER_NVME, TIER_CPU},     {TIER_NVME, TIER_NVME, TIER_NVME},
};
enum { NOFFLOADS = sizeof offloads / sizeof offloads[0] };

// *c becomes a change that offloads as much as offloads[i], or more where it did. False: it does.
static bool offload(int i, struct Change *c) {
    struct Change old = *c;
    c->opt = c->opt > offloads[i].opt ? c->opt : offloads[i].opt;
    c->param = c->param > offloads[i].param ? c->param : offloads[i].param;
    c->act = c->act > offloads[i].act ? c->act : offloads[i].act;
    return c->opt != old.opt || c->param != old.param || c->act != old.act;
}

// With more and more offloaded, the optimizer to `opt`; *most becomes the last of these changes.
static bool try_offloads(struct Search *s, struct Change c, enum TierKind opt,
                         struct Change *most) {
    for (int i = 0; i < NOFFLOADS; i++) {
        struct Change more = c;
        if (offloads[i].opt != opt || !offload(i, &more))
            continue;
        if (try_change(s, more) || try_layouts(s, more))
            return true;
        *most = more;
    }
    return false;
}

// With split master weights, which have the same results.
static bool try_split(struct Search *s, struct Change c) {
    struct Change unused;
    if (!s->run->settings.master_open)
        return false;
    c.master = MASTER_SPLIT;
    return try_change(s, c) || try_layouts(s, c) || try_offloads(s, c, TIER_CPU, &unused);
}

// Where the host's memory is short, less in it: activations come back first, which cost the bus
// most.
static bool try_less_offload(struct Search *s, struct Change c) {
    enum TierKind *const from_host[] = {&c.act, &c.param, &c.opt};
    if (s->shortage != SHORT_HOST && s->shortage != SHORT_MEMORY)
        return false;
    for (int i = 0; i < 3; i++)
        if (*from_host[i] == TIER_CPU) {
            *from_host[i] = TIER_DEVICE;
            if (try_change(s, c) || try_layouts(s, c))
                return true;
        }
    return false;
}

static bool uses_disk(const struct Change *c) {
    return c->opt == TIER_NVME || c->param == TIER_NVME || c->act == TIER_NVME;
}

// A disk that the user named, or uses, comes first; where there may be none, it is the last resort.
static bool try_disk_or_less(struct Search *s, struct Change c, struct Change *most) {
    if (uses_disk(&c) || s->run->settings.nvme.folder)
        return try_offloads(s, c, TIER_NVME, most) || try_less_offload(s, c);
    return try_less_offload(s, c) || try_offloads(s, c, TIER_NVME, most);
}

// With the batch alone changed, or more than that.
static bool try_batches_and(struct Search *s, struct Change most) {
    most.recompute = NRECOMPUTE - 1;
    return try_batches(s, most) || try_stages(s, most, try_batches);
}

static bool search(struct Search *s) {
    struct Change c = as_it_is(s->run), on_host = c, on_disk = c;
    if (try_layouts(s, c) || try_offloads(s, c, TIER_CPU, &on_host) || try_split(s, c) ||
        try_disk_or_less(s, c, &on_disk))
        return true;
    // A batch changes the training, too.
    return try_batches(s, c) || try_batches_and(s, on_host) || try_batches_and(s, on_disk);
}

static const char *place_name(enum TierKind kind) {
    return kind == TIER_DEVICE ? "none" : tier_name(kind);
}

// The change as flags, each after a space.
static void describe(const struct Search *s, char text[ADVICE_BYTES]) {
    struct Change as_is = as_it_is(s->run);
    const struct Change *c = &s->best, *from = &as_is;
    bool first_disk = uses_disk(c) && !uses_disk(from) && !s->run->settings.nvme.folder;
    char number[24];
    snprintf(number, sizeof number, "%zu", c->batch);
    char stage[2] = {(char)('0' + c->stage)};
    const struct {
        bool differs;
        const char *flag, *value;
    } part[] = {{c->stage != from->stage, "zero", stage},
                {c->recompute != from->recompute, "recompute", recompute_name(c->recompute)},
                {c->opt != from->opt, "offload-optimizer", place_name(c->opt)},
                {c->param != from->param, "offload-param", place_name(c->param)},
                {c->act != from->act, "offload-activations", place_name(c->act)},
                {first_disk, "nvme-path", "FOLDER"},
                {c->master != from->master, "master", master_name(c->master)},
                {c->batch != from->batch, "batch", number}};
    int at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        if (part[i].differs)
            at += snprintf(text + at, ADVICE_BYTES - (size_t)at, " --%s %s", part[i].flag,
                           part[i].value);
}

static double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

// In what tables count, and in what a user may have written: --device-mem 24G is 22888.2 MiB.
static double gb(size_t bytes) {
    return (double)bytes / 1e9;
}

static void tell_lack(const struct Search *s, enum Shortage of, size_t bytes,
                      char text[LACK_BYTES]) {
    size_t has = s->room->of[of];
    snprintf(text, LACK_BYTES,
             "%d x %.1f MiB (%.2f GB) of %s memory are needed, %s %.1f MiB (%.2f GB)",
             s->run->settings.ranks, mib(bytes), gb(bytes), shortages[of].memory,
             shortages[of].limit, mib(has), gb(has));
}

// advice: the change as flags, or "" where none helps.
static int refuse(struct Search *s, char advice[ADVICE_BYTES], struct Error *e) {
    const char *none = "no stage, recomputation, offload or batch makes it fit";
    char lack[LACK_BYTES], least[LACK_BYTES], flags[ADVICE_BYTES];
    tell_lack(s, s->shortage, s->best_bytes, lack);
    bool found = search(s);
    describe(s, flags);
    snprintf(advice, ADVICE_BYTES, "%s", found ? flags + 1 : "");
    if (found)
        return error_set(e, -ENOMEM, "%s: with%s it would fit, in %d x %.1f MiB (%.2f GB)", lack,
                         flags, s->run->settings.ranks, mib(s->best_bytes), gb(s->best_bytes));
    if (!flags[0])
        return error_set(e, -ENOMEM, "%s: %s", lack, none);
    tell_lack(s, s->best_lack, s->best_bytes, least);
    return error_set(e, -ENOMEM, "%s: %s; at the least, with%s, %s", lack, none, flags, least);
}

static struct Room room_of(const struct FitRequest *r, const struct PlaceMemory *place) {
    size_t ranks = (size_t)r->ranks_here, here = ranks * (size_t)r->processes_here;
    const struct RankSettings *s = r->settings;
    struct Room room = {{[SHORT_DEVICE] = s->device_bytes ? s->device_bytes : SIZE_MAX,
                         [SHORT_HOST] = s->host_bytes ? s->host_bytes : SIZE_MAX,
                         [SHORT_PLACE] = r->plan ? SIZE_MAX : place->free_bytes / ranks,
                         [SHORT_MEMORY] = r->plan ? SIZE_MAX : r->host.free_bytes / here}};
    return room;
}

// The disk, which nothing but files can tell about: a plan leaves it alone.
static int check_disk(const struct FitRequest *r, const struct Forecast *f, struct Error *e) {
    size_t bytes = f->is.tier[TIER_NVME].peak;
    return r->plan || !bytes
               ? 0
               : nvme_preflight(&r->settings->nvme, bytes * (size_t)f->work.disk_ranks, e);
}

int fit_or_refuse(const struct FitRequest *r, struct Forecast *out, struct Error *e) {
    struct PlaceMemory memory;
    int err = place_memory(r->settings, r->host, r->processes_here, &memory, e);
    if (!err)
        err = footprint_predict(r->settings, memory.process_bytes, r->ranks_here, out, e);
    if (err)
        return err;
    out->speeds = r->speeds;
    out->is.host_bytes = r->host.process_bytes + out->is.own_bytes +
                         (size_t)r->ranks_here * footprint_host_bytes(&out->is);
    char advice[ADVICE_BYTES] = "";
    struct Room room = room_of(r, &memory);
    struct Search s = {.run = out, .room = &room, .best = as_it_is(out)};
    s.shortage = s.best_lack = shortage(out, &room);
    s.best_bytes = need(out, s.shortage);
    s.excess = excess(out, &room);
    err = s.shortage ? refuse(&s, advice, e) : check_disk(r, out, e);
    if (r->out && !r->json)
        table_print(r->out, out, NULL);
    if (r->out && r->json) {
        char *json = table_json(out, NULL, err ? advice : NULL);
        fputs(json, r->out);
        free(json);
    }
    return err;
}
