// A resume from every tier to every tier, with delayed updates on their way, too.
//
// Chains of runs: each loads what the one before has saved, makes a step, and saves. From one run
// to the next optimizer state and parameters change their tiers, so that in a chain every placement
// follows on every other one, and the stage and the ratio change along. What is loaded must be what
// was saved, element by element: master weights, both moments, and under a delayed update the
// weights that are in use meanwhile. Where the ranks stay, every step's loss and norm must be those
// of a run that never stopped, to the bit.
//
// Fault 14 of real trainers (some states dropped on resume) is of this kind. Read next:
// test_reshape.c.
#include "zero/state.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include "zero/checkpoint/checkpoint.h"

#include <errno.h>

enum { MOST_STEPS = 84, GLOBAL_BATCH = 12, PLACES = NTIER * NTIER };

static const char identity[] = "--lr 0.001\n";

// ---- all state, whole ----

struct Whole {
    bool late;
    size_t n;
    float *x; // (n): group by group, array by array
};

static size_t whole_numel(const struct Zero *z) {
    size_t n = 0;
    for (int g = 0; g < z->params->ngroup; g++)
        n += z->params->group[g].numel * NSTATE_LATE;
    return n;
}

// Each rank writes its shard of every group.
static void read_shards(struct Zero *z, struct Whole *all) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk), *x = all->x;
    zero_finish(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t n = zero_shard_numel(z, g), begin = n * (size_t)z->shard_group->rank;
        size_t numel = z->params->group[g].numel, end = size_min(begin + n, numel);
        for (enum State what = 0; what < (all->late ? NSTATE_LATE : NSTATE); what++, x += numel) {
            if (begin >= end)
                continue;
            zero_read_state(z, g, what, begin - zero_owned_begin(z, g), end - begin, chunk);
            memcpy(x + begin, chunk, (end - begin) * sizeof *x);
        }
    }
    device_free_host(z->device, chunk);
}

// ---- one leg: load, train, save ----

struct Leg {
    struct RankSettings settings;
    int before, steps; // to train before and after loading
    bool loads, saves_each;
    const char *text; // of identity
    // Results.
    int err;
    struct Error error;
    struct Whole loaded, saved;
    struct TinyStep step[MOST_STEPS];
    uint64_t hash;
};

static void meet(struct Rank *r) {
    zero_share(&r->zero, 0);
}

static void keep_state(struct Rank *r, struct Whole *all) {
    if (r->shard_group->rank == 0) {
        all->late = zero_is_late(&r->zero);
        all->n = whole_numel(&r->zero);
        all->x = base_alloc_zeroed(all->n * sizeof *all->x);
    }
    meet(r);
    read_shards(&r->zero, all);
    meet(r);
}

static void run_leg(void *context, struct Rank *r) {
    struct Leg *leg = context;
    struct Error e = {0};
    int err = 0;
    for (int i = 0; i < leg->before; i++)
        tiny_step(r);
    if (leg->loads)
        err = checkpoint_resume(&r->zero, (const char *const[]){disk_folder, NULL}, "auto",
                                leg->text, NULL, &e);
    if (!err)
        keep_state(r, &leg->loaded);
    for (int i = 0; i < leg->steps && !err; i++) {
        struct TinyStep step = tiny_step(r);
        if (r->shard_group->rank == 0)
            leg->step[i] = step;
        if (leg->saves_each || i + 1 == leg->steps)
            err = checkpoint_save(&r->zero, disk_folder, leg->text, NULL, &e);
    }
    if (!err)
        keep_state(r, &leg->saved);
    uint64_t hash = zero_weights_hash(&r->zero);
    if (r->shard_group->rank > 0)
        return;
    leg->hash = hash;
    leg->err = err;
    leg->error = e;
}

static const char *name_of(const struct RankSettings *s) {
    static char text[240];
    snprintf(text, sizeof text,
             "%d ranks, stage %d, %s, moments %s, late: %d, optimizer on %s (%g), parameters on %s",
             s->ranks, s->stage, dtype_name(s->model.dtype), dtype_name(s->moments_dtype),
             s->delayed, tier_name(s->opt_tier), s->offload_ratio, tier_name(s->param_tier));
    return text;
}

static void go(struct Leg *leg) {
    leg->text = leg->text ? leg->text : identity;
    leg->settings.batch = GLOBAL_BATCH / (size_t)leg->settings.ranks / leg->settings.nmicro;
    tiny_ranks(&leg->settings, run_leg, leg);
}

static void leg_free(struct Leg *leg) {
    free(leg->loaded.x);
    free(leg->saved.x);
    leg->loaded.x = leg->saved.x = NULL;
}

static void go_well(struct Leg *leg) {
    go(leg);
    if (leg->err)
        fail_msg("%s: %s", name_of(&leg->settings), leg->error.text);
}

static void expect_state(const struct Whole *saved, const struct Leg *leg) {
    const struct Whole *got = &leg->loaded;
    if (got->late != saved->late || got->n != saved->n)
        fail_msg("%s: a delayed update: %d, not %d", name_of(&leg->settings), got->late,
                 saved->late);
    for (size_t i = 0; i < got->n; i++)
        if (f32_bits(got->x[i]) != f32_bits(saved->x[i]))
            fail_msg("%s: element %zu of the state is %.9g, not %.9g", name_of(&leg->settings), i,
                     (double)got->x[i], (double)saved->x[i]);
}

// ---- chains ----

struct Continued {
    enum Dtype dtype, moments;
    bool late;
    uint64_t after;
    int ranks; // 0: another number in each leg
    size_t nmicro;
    enum MasterFormat master;
};

static struct RankSettings settings_of(const struct Continued *c) {
    struct RankSettings s = tiny_settings(c->dtype);
    struct Error e;
    s.model.layers = 5; // more groups than the host has queued ahead
    s.model.channels = 12;
    assert_ok(model_config_finish(&s.model, &e), &e);
    s.threads = 1;
    s.ranks = c->ranks ? c->ranks : 1;
    s.nmicro = c->nmicro;
    s.stage = c->nmicro > 1 ? 2 : 0;
    s.grad_dtype = c->nmicro > 1 ? F32 : c->dtype;
    s.moments_dtype = c->moments;
    s.master_format = c->master;
    s.loss_scale = (struct LossScaleSettings){0x1p18f, 1, 5, 2};
    s.nvme.folder = disk_folder;
    s.delayed = c->late;
    s.delay_after = c->after;
    s.opt_tier = c->late ? TIER_CPU : TIER_DEVICE;
    return s;
}

// Stages that add up in the same order, where that matters.
static void place_leg(struct RankSettings *s, const struct Continued *c, int place, int i) {
    static const int worlds[] = {4, 3, 1, 2};
    static const double ratios[] = {1, 0.3, 0.7};
    s->ranks = c->ranks ? c->ranks : worlds[i % 4];
    s->opt_tier = (enum TierKind)(place % NTIER);
    s->param_tier = (enum TierKind)(place / NTIER);
    s->stage = c->nmicro > 1 ? 2 + i % 2 : (i + i / 4) % 4;
    s->offload_ratio = c->late || !s->opt_tier ? 1 : ratios[i % 3];
    s->prefetch = (size_t)(i % 3);
}

// The place that a chain goes to next: the last one to which it never went from here. So it passes
// from every place to every place, itself included (Martin 1934, on de Bruijn's sequences).
static int next_place(bool went[PLACES][PLACES], int from, bool late) {
    for (int to = PLACES - 1; to >= 0; to--)
        if (!went[from][to] && (!late || to % NTIER)) {
            went[from][to] = true;
            return to;
        }
    return -1;
}

static void expect_step(const struct TinyStep *want, const struct Leg *leg, int i) {
    const struct TinyStep *got = &leg->step[0];
    bool norm = got->grad_norm == want->grad_norm || (got->skipped && want->skipped);
    if (got->loss != want->loss || !norm)
        fail_msg("%s: loss %.9g and norm %.9g, not %.9g and %.9g, at step %d",
                 name_of(&leg->settings), got->loss, (double)got->grad_norm, want->loss,
                 (double)want->grad_norm, i + 1);
}

static void expect_close(const struct TinyStep *want, const struct Leg *leg, int i) {
    double got = leg->step[0].loss;
    double near = leg->settings.model.dtype == F32 ? 2e-6 : 5e-3; // of gradients in bf16
    if (!(fabs(got - want->loss) <= near * want->loss))
        fail_msg("%s: loss %.9g, not %.9g, at step %d", name_of(&leg->settings), got, want->loss,
                 i + 1);
}

static void run_chain(const struct Continued *c) {
    bool went[PLACES][PLACES] = {{false}};
    struct Leg never = {.settings = settings_of(c), .steps = MOST_STEPS};
    char *own = disk_folder;
    int place = c->late ? 1 : 0, legs = 0, tiers = c->late ? NTIER - 1 : NTIER;
    struct Whole saved = {0};
    go_well(&never); // its checkpoint is of a later step: the chain has another folder
    leg_free(&never);
    disk_folder = scratch_make_in("build");
    for (; place >= 0; place = next_place(went, place, c->late), legs++) {
        struct Leg leg = {.settings = settings_of(c), .steps = 1, .loads = legs > 0};
        place_leg(&leg.settings, c, place, legs);
        leg.settings.nvme.folder = disk_folder;
        go_well(&leg);
        if (legs)
            expect_state(&saved, &leg);
        (c->ranks ? expect_step : expect_close)(&never.step[legs], &leg, legs);
        assert_true(leg.saved.late == (c->late && (uint64_t)legs >= c->after));
        free(saved.x);
        free(leg.loaded.x);
        saved = leg.saved;
    }
    assert_int_equal(legs, tiers * NTIER * tiers * NTIER + 1);
    free(saved.x);
    scratch_remove(disk_folder);
    disk_folder = own;
}

// ---- tests ----

TEST(fault_14_every_tier_resumes_every_other_bitwise) {
    static const struct Continued chains[] = {
        {F32, F32, .ranks = 2, .nmicro = 1},
        {BF16, BF16, .ranks = 2, .nmicro = 1},
        {F16, F32, .ranks = 3, .nmicro = 2},
        {BF16, F32, .ranks = 2, .nmicro = 1, .master = MASTER_SPLIT},
        {BF16, BF16, .ranks = 3, .nmicro = 2, .master = MASTER_BF16},
    };
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++)
        run_chain(&chains[i]);
}

TEST(fault_14_a_late_update_is_resumed_bitwise) {
    static const struct Continued chains[] = {
        {BF16, F32, .late = true, .ranks = 2, .nmicro = 1},
        {F32, F32, .late = true, .after = 3, .ranks = 1, .nmicro = 1},
        {F16, BF16, .late = true, .after = 1, .ranks = 3, .nmicro = 2},
        {BF16, BF16, .late = true, .after = 2, .ranks = 3, .nmicro = 1, .master = MASTER_SPLIT},
        {BF16, F32, .late = true, .ranks = 2, .nmicro = 1, .master = MASTER_BF16},
    };
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++)
        run_chain(&chains[i]);
}

TEST(fault_15_other_ranks_in_other_tiers_go_on) {
    static const struct Continued chains[] = {{F32, F32, .nmicro = 1},
                                              {F32, F32, .late = true, .after = 1, .nmicro = 1},
                                              {BF16, BF16, .nmicro = 1, .master = MASTER_SPLIT},
                                              {BF16, F32, .nmicro = 1, .master = MASTER_BF16}};
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++)
        run_chain(&chains[i]);
}

// Saving finishes the host's update in the middle of its time; the run that goes on is the same.
TEST(a_save_changes_nothing) {
    for (int i = 0; i < 2 * PLACES; i++) {
        struct Continued c = {BF16, F32, i < PLACES, 1, 2, 1, (enum MasterFormat)(i % NMASTER)};
        struct Leg leg = {.settings = settings_of(&c), .steps = 6}, saves;
        if (c.late && i % NTIER == TIER_DEVICE)
            continue;
        place_leg(&leg.settings, &c, i % PLACES, i);
        saves = leg;
        saves.saves_each = true;
        go_well(&leg);
        go_well(&saves);
        assert_true(leg.hash == saves.hash);
        for (int s = 0; s < leg.steps; s++)
            assert_true(leg.step[s].loss == saves.step[s].loss);
        leg_free(&leg);
        leg_free(&saves);
    }
}

// Loading into a run that is under way, whose host has updates to make: nothing of it is left.
TEST(a_run_may_go_back) {
    char *own = disk_folder;
    for (int i = 0; i < 2 * PLACES; i++) {
        struct Continued c = {BF16, F32, i < PLACES, 1, 2, 1, (enum MasterFormat)(i % NMASTER)};
        if (c.late && i % NTIER == TIER_DEVICE)
            continue;
        disk_folder = scratch_make_in("build");
        struct Leg first = {.settings = settings_of(&c), .steps = 3}, fresh, back;
        place_leg(&first.settings, &c, i % PLACES, i);
        go_well(&first);
        fresh = back = first;
        fresh.loads = back.loads = true;
        fresh.steps = back.steps = 0;
        back.before = 5;
        go_well(&fresh);
        go_well(&back);
        expect_state(&first.saved, &fresh);
        expect_state(&first.saved, &back);
        leg_free(&first);
        leg_free(&fresh);
        leg_free(&back);
        scratch_remove(disk_folder);
    }
    disk_folder = own;
}

// ---- what cannot be resumed ----

static void expect_refusal(struct Leg leg, int err, const char *said) {
    leg.loads = true;
    leg.steps = 0;
    go(&leg);
    leg_free(&leg);
    assert_error(leg.err, err, &leg.error, said);
}

TEST(late_and_not_late_are_told_apart) {
    char *own = disk_folder;
    disk_folder = scratch_make_in("build");
    struct Continued late = {BF16, F32, true, 1, 1, 1, MASTER_FP32}, plain = late;
    plain.late = false;
    const char *of_late = "--lr 0.001\n--delay-after 1\n";
    struct Leg leg = {.settings = settings_of(&late), .steps = 3, .text = of_late};
    go_well(&leg);
    leg_free(&leg);
    log_level = LOG_QUIET;
    struct Leg other = {.settings = settings_of(&plain)};
    expect_refusal(other, -EINVAL, "E_CHECKPOINT_IDENTITY \"--delay-after 1\"");
    other.text = of_late; // a run that lies about itself
    expect_refusal(other, -EBADMSG, "E_CHECKPOINT_DAMAGED");
    scratch_remove(disk_folder);
    disk_folder = scratch_make_in("build");
    struct Leg usual = {.settings = settings_of(&plain), .steps = 3};
    usual.settings.nvme.folder = disk_folder;
    go_well(&usual);
    leg_free(&usual);
    struct Leg again = leg;
    again.settings.nvme.folder = disk_folder;
    expect_refusal(again, -EINVAL, "E_CHECKPOINT_IDENTITY \"--delay-after 1\"");
    again.text = identity;
    expect_refusal(again, -EBADMSG, "E_CHECKPOINT_DAMAGED");
    log_level = LOG_NORMAL;
    scratch_remove(disk_folder);
    disk_folder = own;
}

AROUND_ALL(disk_open, disk_close);
