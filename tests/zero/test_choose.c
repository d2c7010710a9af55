// --fit auto's search (zero/plan/choose.h): on machines, models and lines that are drawn at random
// it is as good as trying every batch of every candidate, keeps to all limits and to what was said,
// and says the same again. What it counts of a step is what formulas say (zero/rank/rank_step.c); a
// small model's real steps give each kernel a rate.
#include "zero/plan/choose.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include "tests/lib/outcome.h"
#include "tests/lib/refused.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { MACHINES = 40 };

// ---- what is counted ----

static double sum(const double n[NKERNEL]) {
    double all = 0;
    for (int k = 0; k < NKERNEL; k++)
        all += n[k];
    return all;
}

TEST(counts_are_what_the_formulas_say) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (enum Recompute level = 0; level < NRECOMPUTE; level++) {
            struct RankSettings s = tiny_family(i, BF16);
            struct PassCount count;
            struct Rank dry;
            struct Error e;
            s.recompute = level;
            s.nmicro = 1;
            assert_int_equal(rank_open(&dry, &s, true, &e), 0);
            count_passes(&dry, false, &count);
            struct StepFlops want = rank_step_flops(&dry, &s);
            double forward = sum(count.forward.flops), backward = sum(count.backward.flops);
            if (fabs(forward / want.forward - 1) > 1e-12 ||
                fabs(backward / want.backward - 1) > 1e-12)
                fail_msg("%s, %s: %.0f and %.0f FLOP, not %.0f and %.0f", tiny_family_name(i),
                         recompute_name(level), forward, backward, want.forward, want.backward);
            rank_close(&dry);
        }
}

static double measure_now(const char *where, const char *name, double (*measure)(void *),
                          void *context) {
    (void)where;
    (void)name;
    return measure(context);
}

// Every kernel that a step calls has a rate, and so the step a time.
TEST(each_kernel_is_timed) {
    for (int i = 0; i < TINY_FAMILIES; i++) {
        struct RankSettings s = tiny_family(i, BF16);
        struct PassCount count;
        struct Rates rates;
        struct Rank dry;
        struct Error e;
        s.recompute = RECOMPUTE_BLOCK;
        rates_find(&s, 2, measure_now, ".", &rates);
        assert_true(rates.sent > 0 && rates.kernels.of[KERNEL_adamw] > 0);
        assert_int_equal(rank_open(&dry, &s, true, &e), 0);
        count_passes(&dry, true, &count);
        rank_close(&dry);
        double forward = count_seconds(&count.forward, &rates.kernels);
        double backward = count_seconds(&count.backward, &rates.kernels);
        if (!(forward > 0) || !(backward > forward))
            fail_msg("%s: %g s forward, %g s backward", tiny_family_name(i), forward, backward);
        rates.kernels.of[KERNEL_matmul] = 0; // not known
        assert_true(count_seconds(&count.forward, &rates.kernels) == 0);
    }
}

// ---- machines ----

struct Draw {
    uint64_t seed, at;
};

static size_t draw(struct Draw *d, size_t below) {
    return (size_t)(rng_bits(d->seed, d->at++) % below);
}

// Between low and high, each order of magnitude as likely.
static double draw_speed(struct Draw *d, double low, double high) {
    return low * pow(high / low, (double)rng_uniform(d->seed, d->at++));
}

static void draw_model(struct Draw *d, struct RankSettings *s) {
    struct Error e;
    size_t heads = 1 + draw(d, 8);
    s->model = (struct ModelConfig){.layers = 2 + draw(d, 10),
                                    .heads = heads,
                                    .channels = heads * 8 * (1 + draw(d, 8)),
                                    .seq_len = 16 << draw(d, 5),
                                    .vocab = 64 + draw(d, 4000),
                                    .kind = draw(d, 2) ? FAMILY_LLAMA : FAMILY_GPT2,
                                    .untied = draw(d, 2),
                                    .dtype = draw(d, 4) ? BF16 : F32};
    assert_int_equal(model_config_finish(&s->model, &e), 0);
}

static void draw_speeds(struct Draw *d, struct ChooseRequest *r) {
    struct Speeds *s = &r->speeds;
    double *const speed[] = {&s->in,          &s->out,  &s->read,  &s->written,
                             &s->host_update, &s->sent, &s->update};
    for (size_t i = 0; i < sizeof speed / sizeof speed[0]; i++)
        *speed[i] = draw_speed(d, 1e8, 1e12);
    s->flops = draw_speed(d, 1e10, 1e15);
    r->rates.kernels.call = draw_speed(d, 1e-7, 1e-4);
    for (int k = 0; k < NKERNEL; k++)
        r->rates.kernels.of[k] = draw_speed(d, 1e9, 1e12);
    r->rates.kernels.of[KERNEL_matmul] = s->flops;
}

// A share of what the run takes as it was said.
static size_t draw_limit(struct Draw *d, size_t of) {
    return draw(d, 4) ? (size_t)((double)of * (0.4 + 1.2 * rng_uniform(d->seed, d->at++)))
                      : SIZE_MAX;
}

static struct RankSettings draw_settings(struct Draw *d) {
    struct RankSettings s = tiny_settings(F32);
    draw_model(d, &s);
    static const size_t steps[] = {1, 4, 6, 12};
    size_t each = steps[draw(d, 4)];
    s.ranks = 1 + (int)draw(d, 6);
    s.global_batch = each * (size_t)s.ranks;
    s.grad_auto = true;
    settings_set_batch(&s, each);
    s.stage = (int)draw(d, 4);
    s.recompute = (enum Recompute)draw(d, NRECOMPUTE);
    s.opt_tier = (enum TierKind)draw(d, 2);
    s.one_queue = !draw(d, 3); // so that times add up, or not
    s.nvme.folder = draw(d, 3) ? NULL : ".";
    return s;
}

static struct ChooseRequest draw_request(struct Draw *d, struct RankSettings *s) {
    struct ChooseRequest r = {.settings = s, .ranks_here = s->ranks};
    bool bf16 = s->model.dtype == BF16;
    draw_speeds(d, &r);
    r.open = (struct FitOpen){.stage = draw(d, 4),
                              .recompute = draw(d, 4),
                              .opt = draw(d, 4),
                              .param = draw(d, 2),
                              .act = draw(d, 2),
                              .batch = draw(d, 4),
                              .split = bf16 && draw(d, 2),
                              .master = bf16 && !draw(d, 4),
                              .moments = !draw(d, 4)};
    struct Forecast f;
    struct Error e;
    assert_int_equal(footprint_predict(s, 0, s->ranks, &f, &e), 0);
    size_t device = f.is.tier[TIER_DEVICE].peak;
    r.room = (struct Capacity){{[SHORT_DEVICE] = draw_limit(d, device),
                                [SHORT_HOST] = draw_limit(d, device),
                                [SHORT_NODE] = draw_limit(d, device * (size_t)s->ranks),
                                [SHORT_PLACE] = draw_limit(d, 2 * device),
                                [SHORT_MEMORY] = draw_limit(d, 2 * device)}};
    return r;
}

// What was said of one of them holds.
static void expect_said(const struct ChooseRequest *r, const struct Candidate *c) {
    const struct RankSettings *s = r->settings;
    const struct FitOpen *o = &r->open;
    assert_true(o->stage || c->stage == s->stage);
    assert_true(o->recompute || c->recompute == s->recompute);
    assert_true(o->opt || c->opt == s->opt_tier);
    assert_true(o->param || c->param == s->param_tier);
    assert_true(o->act || c->act == s->act_tier);
    assert_true(o->batch || c->batch == s->batch);
    assert_true(o->split || o->master || c->master == s->master_format);
    assert_true(o->master || c->master != MASTER_BF16);
    assert_true(o->moments || c->moments == s->moments_dtype);
    assert_true(s->nvme.folder || (c->opt != TIER_NVME && c->param != TIER_NVME));
    assert_true(s->global_batch % (c->batch * (size_t)s->ranks) == 0);
}

static void expect_limits(const struct ChooseRequest *r, const struct Choices *c) {
    for (size_t i = 0; i < c->n; i++) {
        struct RankSettings s = c->best[i].forecast.settings;
        struct Forecast f;
        struct Error e;
        assert_int_equal(footprint_predict(&s, 0, s.ranks, &f, &e), 0); // with its own devices
        if (capacity_excess(&f, &r->room))
            fail_msg("choice %zu needs %zu bytes too many", i, capacity_excess(&f, &r->room));
        expect_said(r, &c->best[i].is);
        assert_true(c->best[i].bound.step > 0);
        assert_true(i == 0 || c->best[i].bound.step >= 0.99 * c->best[0].bound.step);
    }
}

// Field by field: a Candidate ends in padding, which no assignment owes anything.
static void expect_same(const struct Candidate *a, const struct Candidate *b) {
    assert_int_equal(a->stage, b->stage);
    assert_int_equal(a->recompute, b->recompute);
    assert_int_equal(a->opt, b->opt);
    assert_int_equal(a->param, b->param);
    assert_int_equal(a->act, b->act);
    assert_int_equal(a->master, b->master);
    assert_int_equal(a->moments, b->moments);
    assert_int_equal(a->batch, b->batch);
}

// The best of all batches, of each of which choose tells the best.
static int choose_by_all(const struct ChooseRequest *r, struct Choices *best, struct Error *e) {
    struct RankSettings s = *r->settings;
    struct ChooseRequest one = *r;
    int err = -ENOMEM;
    if (!r->open.batch)
        return choose(r, best, e);
    one.settings = &s;
    one.open.batch = false;
    for (size_t batch = 1; batch <= r->settings->batch; batch++) {
        struct Choices c;
        if (settings_set_batch(&s, batch) || choose(&one, &c, e))
            continue;
        if (err || c.best[0].bound.step < best->best[0].bound.step)
            *best = c;
        err = 0;
    }
    return err;
}

// Returns how much longer its step takes than the best of all.
static double compare(const struct ChooseRequest *r, uint64_t seed, int *refused) {
    struct Choices some, again, all;
    struct Error e = {0};
    int err = choose(r, &some, &e);
    assert_int_equal(choose_by_all(r, &all, &e), err);
    assert_int_equal(choose(r, &again, &e), err);
    if (err) {
        assert_int_equal(err, -ENOMEM);
        assert_true(error_is(&e, "E_FIT_NOTHING --fit auto"));
        *refused += 1;
        return 1;
    }
    expect_limits(r, &some);
    expect_same(&some.best[0].is, &again.best[0].is);
    double ratio = some.best[0].bound.step / all.best[0].bound.step;
    if (ratio > 1.05)
        fail_msg("machine %llu: %g s, and %g s by trying all", (unsigned long long)seed,
                 some.best[0].bound.step, all.best[0].bound.step);
    return ratio;
}

TEST(choices_are_as_good_as_trying_all) {
    double worst = 1;
    int refused = 0;
    for (uint64_t seed = 1; seed <= MACHINES; seed++) {
        struct Draw d = {seed, 0};
        struct RankSettings s = draw_settings(&d);
        struct ChooseRequest r = draw_request(&d, &s);
        worst = fmax(worst, compare(&r, seed, &refused));
    }
    printf("# %d machines, on %d of which nothing fits: at worst %.4f of the best\n", MACHINES,
           refused, worst);
    assert_true(refused > 0 && refused < MACHINES / 2);
}

// Cores that make everything make one thing after the other; the disk alone works beside them. And
// what a unit waits for at the beginning of a step nothing hides.
TEST(times_add_where_cores_are_shared) {
    struct StepWork w = {.moves = {.update = {.in = 100, .read = 30}, .backward = {.out = 50}},
                         .forward = 1,
                         .backward = 2,
                         .update = 50,
                         .host_update = 40,
                         .sent = {[SEND_BACKWARD] = 15, [SEND_UPDATE] = 15},
                         .nmicro = 1,
                         .disk_ranks = 1,
                         .together = true};
    struct Speeds s = {.in = 100,
                       .out = 100,
                       .read = 10,
                       .written = 10,
                       .update = 100,
                       .host_update = 100,
                       .sent = 100};
    assert_true(fabs(bound_of(&w, &s).step - (2 + 0.5 + 0.15 + 0.5 + 3)) < 1e-9); // the disk: 3
    w.moves.update.read = 0;
    assert_true(fabs(bound_of(&w, &s).step - (3 + 0.5 + 0.3 + 1.5 + 0.4)) < 1e-9);
    w.together = false;
    assert_true(fabs(bound_of(&w, &s).step - (2 + 0.5 + 1)) < 1e-9);
    w.units = 4; // a quarter of the host's update and of what comes in
    assert_true(fabs(bound_of(&w, &s).step - (2 + 0.5 + 1 + (1.4 + 0.3) / 4)) < 1e-9);
}

// A collective is hidden by what it is made beside, and by nothing else: one that is made once only
// by one micro-batch, and a sum of tensor parallelism by nothing.
TEST(collectives_hide_behind_their_pass) {
    struct StepWork w = {.forward = 4, .backward = 8, .nmicro = 4, .disk_ranks = 1};
    struct Speeds s = {.sent = 10};
    const struct {
        enum SendPhase when;
        double bytes, step;
    } cases[] = {
        {SEND_FORWARD, 40, 12},                          // beside all four forward passes
        {SEND_FORWARD, 60, 14},                          // which take 4 s
        {SEND_BACKWARD, 80, 12},                         // beside 8 s
        {SEND_BACKWARD, 100, 14}, {SEND_LAST, 20, 12},   // beside the 2 s of the last backward pass
        {SEND_LAST, 80, 18},      {SEND_UPDATE, 10, 12}, // beside the 1 s of the first forward pass
        {SEND_UPDATE, 80, 19},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(w.sent, 0, sizeof w.sent);
        w.sent[cases[i].when] = cases[i].bytes;
        double step = bound_of(&w, &s).step;
        if (fabs(step - cases[i].step) > 1e-9)
            fail_msg("case %zu: %g s, not %g", i, step, cases[i].step);
    }
    memset(w.sent, 0, sizeof w.sent);
    w.sums[0] = 10;
    w.sums[1] = 20;
    assert_true(fabs(bound_of(&w, &s).step - (12 + 3)) < 1e-9);
    w.sent[SEND_LAST] = 20; // now hidden by 2.5 s
    assert_true(fabs(bound_of(&w, &s).step - (12 + 3)) < 1e-9);
}

// Behind a slow bus and a slow host nothing is offloaded where there is memory for it.
TEST(what_is_slow_is_not_chosen) {
    struct RankSettings s = tiny_settings(BF16);
    struct Choices c;
    struct Error e;
    struct Draw d = {7, 0};
    struct ChooseRequest r = {.settings = &s, .ranks_here = 1};
    draw_speeds(&d, &r);
    r.speeds.update = 1e12;
    r.speeds.in = r.speeds.out = r.speeds.host_update = 1e8;
    r.open = (struct FitOpen){.recompute = true, .opt = true, .param = true, .act = true};
    for (int i = 0; i < NSHORTAGE; i++)
        r.room.of[i] = SIZE_MAX;
    assert_int_equal(choose(&r, &c, &e), 0);
    const struct Candidate *is = &c.best[0].is;
    assert_true(is->opt == TIER_DEVICE && is->param == TIER_DEVICE && is->act == TIER_DEVICE);
    assert_int_equal(is->recompute, RECOMPUTE_NONE);
    r.room.of[SHORT_DEVICE] = c.best[0].forecast.is.tier[TIER_DEVICE].peak - 1;
    assert_int_equal(choose(&r, &c, &e), 0);
    assert_true(c.best[0].forecast.is.tier[TIER_DEVICE].peak <= r.room.of[SHORT_DEVICE]);
}
