// The candidates, their order and their forecasts: see candidates.h.
#include "zero/plan/candidates.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SAME(field, number)                                                                        \
    _Static_assert(offsetof(struct Candidate, field) == (number) * sizeof(int), #field)
SAME(opt, CHOOSE_OPT);
SAME(param, CHOOSE_PARAM);
SAME(act, CHOOSE_ACT);
SAME(master, CHOOSE_MASTER);
SAME(moments, CHOOSE_MOMENTS);
SAME(recompute, CHOOSE_LEVEL);
SAME(stage, CHOOSE_STAGE);

struct Candidate candidate_of(const struct RankSettings *s) {
    return (struct Candidate){.opt = s->opt_tier,
                              .param = s->param_tier,
                              .act = s->act_tier,
                              .master = s->master_format,
                              .moments = s->moments_dtype,
                              .recompute = s->recompute,
                              .stage = s->stage,
                              .batch = s->batch};
}

void candidate_apply(const struct Candidate *c, struct RankSettings *s) {
    s->stage = c->stage;
    s->recompute = c->recompute;
    s->opt_tier = c->opt;
    s->param_tier = c->param;
    s->act_tier = c->act;
    s->master_format = c->master;
    s->moments_dtype = c->moments;
}

static bool same_choices(const struct Candidate *a, const struct Candidate *b) {
    return memcmp(a->of, b->of, sizeof a->of) == 0;
}

// ---- the list ----

static int count_stages(void) {
    int n = 0;
    while (zero_stage(n))
        n++;
    return n;
}

// True if an axis may have this value in place of `is`, the user's.
static bool may_choose(const struct FitOpen *open, enum Choose axis, int is, int value) {
    const bool may[NCHOOSE] = {open->opt,
                               open->param,
                               open->act,
                               value == MASTER_BF16 ? open->master : open->split,
                               open->moments,
                               open->recompute,
                               open->stage && (!open->keeps_stage_pair || is / 2 == value / 2)};
    return value == is || may[axis];
}

// Fills in combination number i of the axes' values; the last axis changes fastest. False: `open`
// does not allow it, or it needs NVMe without a disk. Axes up to CHOOSE_ACT are tiers.
static bool fill_candidate(size_t i, const int values[NCHOOSE], const struct Candidate *said,
                           const struct FitOpen *open, bool disk, struct Candidate *c) {
    bool allowed = true;
    for (int a = NCHOOSE - 1; a >= 0; a--) {
        int is = said->of[a], value = c->of[a] = (int)(i % (size_t)values[a]);
        i /= (size_t)values[a];
        bool tier_exists = a > CHOOSE_ACT || disk || value != TIER_NVME || is == TIER_NVME;
        allowed = allowed && tier_exists && may_choose(open, (enum Choose)a, is, value);
    }
    return allowed;
}

size_t candidates_list(const struct RankSettings *said, const struct FitOpen *open, bool disk,
                       struct Candidate **out) {
    struct Candidate first = candidate_of(said), c = first;
    const int values[NCHOOSE] = {NTIER,    NTIER,      NTIER,         NMASTER,
                                 BF16 + 1, NRECOMPUTE, count_stages()};
    size_t all = 1, n = 1;
    for (int a = 0; a < NCHOOSE; a++)
        all *= (size_t)values[a];
    *out = base_alloc((all + 1) * sizeof **out);
    (*out)[0] = first;
    for (size_t i = 0; i < all; i++)
        if (fill_candidate(i, values, &first, open, disk, &c) && !same_choices(&c, &first))
            (*out)[n++] = c;
    return n;
}

size_t candidates_batches(const struct RankSettings *said, size_t most, size_t **out) {
    struct RankSettings unused = *said;
    size_t n = 0;
    *out = base_alloc(size_max(most, 1) * sizeof **out);
    for (size_t b = 1; b <= most; b++)
        if (settings_set_batch(&unused, b) == 0)
            (*out)[n++] = b;
    return n;
}

bool candidates_largest(const size_t *batch, size_t n, struct Candidate c, CandidateFits *fits,
                        void *context) {
    size_t fitting = 0;
    for (size_t end = n; fitting < end;) { // batch[0 .. fitting) fit, batch[end ..] do not
        size_t middle = fitting + (end - fitting) / 2;
        c.batch = batch[middle];
        if (fits(context, &c))
            fitting = middle + 1;
        else
            end = middle;
    }
    c.batch = fitting ? batch[fitting - 1] : 0;
    return fitting && fits(context, &c); // others were tried behind it
}

// ---- in words ----

static const char *offload_flag_value(enum TierKind kind) {
    return kind == TIER_DEVICE ? "none" : tier_name(kind);
}

static bool uses_disk(const struct Candidate *c) {
    return c->opt == TIER_NVME || c->param == TIER_NVME || c->act == TIER_NVME;
}

int candidates_refuse_flags(struct Error *e) {
    return error_set(e, -EINVAL, E_FIT_NOTHING,
                     "--fit auto: no run with the other flags is valid; try them without --fit "
                     "auto, which says what is wrong");
}

void candidate_describe(const struct Candidate *c, const struct Candidate *from, const char *folder,
                        char text[CANDIDATE_BYTES]) {
    bool first_disk = uses_disk(c) && !uses_disk(from) && !folder;
    char number[24];
    snprintf(number, sizeof number, "%zu", c->batch);
    char stage[2] = {(char)('0' + c->stage)};
    const struct {
        bool differs;
        const char *flag, *value;
    } part[] = {{c->stage != from->stage, "zero", stage},
                {c->recompute != from->recompute, "recompute", recompute_name(c->recompute)},
                {c->opt != from->opt, "offload-optimizer", offload_flag_value(c->opt)},
                {c->param != from->param, "offload-param", offload_flag_value(c->param)},
                {c->act != from->act, "offload-activations", offload_flag_value(c->act)},
                {first_disk, "nvme-path", "FOLDER"},
                {c->master != from->master, "master-dtype", master_name(c->master)},
                {c->moments != from->moments, "adam-dtype", dtype_name(c->moments)},
                {c->batch != from->batch, "batch", number}};
    int at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        if (part[i].differs)
            at += snprintf(text + at, CANDIDATE_BYTES - (size_t)at, " --%s %s", part[i].flag,
                           part[i].value);
}

// ---- the order of advice ----

// The choices of offload, in the order in which they are tried.
static const struct {
    enum TierKind opt, param, act;
} offloads[] = {
    {TIER_CPU, TIER_DEVICE, TIER_DEVICE}, {TIER_CPU, TIER_CPU, TIER_DEVICE},
    {TIER_CPU, TIER_CPU, TIER_CPU},       {TIER_NVME, TIER_DEVICE, TIER_DEVICE},
    {TIER_NVME, TIER_CPU, TIER_DEVICE},   {TIER_NVME, TIER_CPU, TIER_CPU},
    {TIER_NVME, TIER_NVME, TIER_CPU},     {TIER_NVME, TIER_NVME, TIER_NVME},
};
enum { NOFFLOADS = sizeof offloads / sizeof offloads[0] };

static bool same_offload(const struct Candidate *a, const struct Candidate *b) {
    return a->opt == b->opt && a->param == b->param && a->act == b->act;
}

// Returns `said` with as much offloaded as offloads[i], or more where it had.
static struct Candidate with_offload(int i, struct Candidate said) {
    said.opt = said.opt > offloads[i].opt ? said.opt : offloads[i].opt;
    said.param = said.param > offloads[i].param ? said.param : offloads[i].param;
    said.act = said.act > offloads[i].act ? said.act : offloads[i].act;
    return said;
}

// Returns the row of offloads that makes c of `said`; -1: none.
static int offload_row(const struct Candidate *c, const struct Candidate *said) {
    for (int i = 0; i < NOFFLOADS; i++) {
        struct Candidate more = with_offload(i, *said);
        if (!same_offload(&more, said) && same_offload(&more, c))
            return i;
    }
    return -1;
}

// Returns what comes back from the host's memory to make c of `said`: 0: activations, which cost
// the bus most; 1: weights, too; 2: the optimizer state, too. -1: c differs otherwise.
static int onload_row(const struct Candidate *c, struct Candidate said) {
    enum TierKind *const from_host[] = {&said.act, &said.param, &said.opt};
    for (int i = 0; i < 3; i++) {
        bool was = *from_host[i] == TIER_CPU;
        *from_host[i] = was ? TIER_DEVICE : *from_host[i];
        if (was && same_offload(&said, c))
            return i;
    }
    return -1;
}

enum { MANY_STAGES = 8 }; // more than there are

// Returns the distance of a stage: higher ones are nearer; fit.c tries the lower ones last of all.
// Shards make a rank's part smaller, but what is gathered for a unit may need more than they save.
static uint64_t stage_distance(const struct Candidate *c, const struct Candidate *said) {
    int up = c->stage - said->stage;
    return (uint64_t)(up >= 0 ? up : MANY_STAGES - up);
}

// Returns the distance of another stage, below 50; of more recomputation, below 100; or of both.
static uint64_t layout_distance(const struct Candidate *c, const struct Candidate *said) {
    uint64_t stages = stage_distance(c, said);
    if (c->recompute < said->recompute)
        return CANDIDATE_NOT;
    uint64_t levels = (uint64_t)(c->recompute - said->recompute);
    return !levels ? stages : !stages ? 50 + levels : 100 + 20 * stages + levels;
}

enum { FAR_ROW = 1000, FAR_GROUP = 100000 };

// Returns the distance by the kind of change, and by its place among those of that kind.
static uint64_t group_distance(const struct Candidate *c, const struct Candidate *said,
                               bool host_is_short, bool disk) {
    int more = offload_row(c, said), back = onload_row(c, *said); // rows; -1: c is no such change
    bool as_it_was = same_offload(c, said);
    bool on_host = more >= 0 && offloads[more].opt == TIER_CPU;
    if (c->master != said->master) // split ones, which have the same results
        return as_it_was || on_host ? 2 * FAR_GROUP + (uint64_t)(more + 1) * FAR_ROW
                                    : CANDIDATE_NOT;
    if (as_it_was)
        return 0;
    if (on_host)
        return 1 * FAR_GROUP + (uint64_t)more * FAR_ROW;
    // A disk that the user named, or uses, comes first; where there may be none, it is the last
    // resort.
    if (back >= 0 && host_is_short)
        return (disk ? 4 : 3) * FAR_GROUP + (uint64_t)back * FAR_ROW;
    return more >= 0 ? (disk ? 3 : 4) * FAR_GROUP + (uint64_t)more * FAR_ROW : CANDIDATE_NOT;
}

uint64_t candidate_distance(const struct Candidate *c, const struct Candidate *said,
                            bool host_is_short, bool disk) {
    uint64_t group = group_distance(c, said, host_is_short, disk || uses_disk(said));
    uint64_t layout = layout_distance(c, said);
    return group == CANDIDATE_NOT || layout == CANDIDATE_NOT ? CANDIDATE_NOT : group + layout;
}

// Returns `said` with the most offloaded that has the optimizer in tier `opt`.
static struct Candidate most_offload(enum TierKind opt, const struct Candidate *said) {
    struct Candidate most = *said;
    for (int i = 0; i < NOFFLOADS; i++)
        if (offloads[i].opt == opt)
            most = with_offload(i, *said);
    return most;
}

uint64_t candidate_distance_with_batch(const struct Candidate *c, const struct Candidate *said) {
    if (c->master != said->master)
        return CANDIDATE_NOT;
    if (same_choices(c, said))
        return 0;
    for (enum TierKind opt = TIER_CPU; opt <= TIER_NVME; opt++) {
        struct Candidate most = most_offload(opt, said);
        if (c->recompute == NRECOMPUTE - 1 && same_offload(c, &most))
            return (uint64_t)opt * FAR_GROUP + stage_distance(c, said);
    }
    return CANDIDATE_NOT;
}

// ---- forecasts ----

int trials_open(struct Trials *t, const struct RankSettings *s, const struct Capacity *room,
                int ranks_here, bool advice, struct Error *e) {
    *t = (struct Trials){.settings = s,
                         .room = room,
                         .ranks_here = ranks_here,
                         .advice = advice,
                         .nearest = candidate_of(s),
                         .excess = SIZE_MAX};
    int err = rank_device_open(&t->device, s, true, e);
    return err ? err : device_open_cpu(&t->host, s->threads, s->kernels, e);
}

void trials_close(struct Trials *t) {
    if (t->host)
        device_close(t->host);
    if (t->device)
        device_close(t->device);
}

// Makes the settings of a candidate's run. False: there is no such run.
static bool make_run_settings(const struct Trials *t, const struct Candidate *c,
                              struct RankSettings *out) {
    struct Error ignored;
    *out = *t->settings;
    candidate_apply(c, out);
    bool part = out->offload_ratio > 0 && out->offload_ratio < 1;
    bool stops = settings_needs_offload(t->settings) && !settings_needs_offload(out);
    if (out->opt_tier == TIER_DEVICE && (part || out->delayed))
        return false; // as the rules of zero/settings/settings_rules.c refuse them
    if (settings_check_shards(out, &ignored))
        return false;
    if (t->advice && stops && (out->host_bytes || out->rank_host_bytes))
        return false;
    return c->batch == out->batch || settings_set_batch(out, c->batch) == 0;
}

// Forecasts a candidate's run. False: there is no such run.
static bool forecast_candidate(const struct Trials *t, const struct Candidate *c,
                               struct Forecast *out) {
    struct RankSettings s;
    struct Error ignored;
    if (!make_run_settings(t, c, &s))
        return false;
    s.borrowed = t->device;
    s.borrowed_host = t->host;
    if (footprint_predict(&s, 0, t->ranks_here, out, &ignored))
        return false;
    out->settings.borrowed = out->settings.borrowed_host = NULL; // no longer than the trials
    return true;
}

bool trials_fit(void *trials, const struct Candidate *c) {
    struct Trials *t = trials;
    t->last_exists = forecast_candidate(t, c, &t->last);
    if (!t->last_exists)
        return false;
    size_t excess = capacity_excess(&t->last, t->room);
    if (!excess || excess < t->excess) {
        t->nearest = *c;
        t->excess = excess;
        t->needs = capacity_needs(&t->last);
    }
    return !excess;
}
