// The table of units: who uses which group of parameters, and that ZeRO goes by it.
//
// One model is run with its head tied to the embedding, as every run is, and untied, where the head
// has a group of its own at the other end of the list. Nothing but the table differs, so all that
// ZeRO does around a unit must follow from it: when a gradient is complete, which weights are
// fetched and stay, what a step moves, and which slot a group takes.
#include "zero/state.h"
#include "tests/lib/outcome.h"
#include "tests/lib/test.h"
#include "zero/plan/footprint.h"

enum { L = 3, STEPS = 6 };

static struct RankSettings settings_of(bool tie, int ranks, int stage) {
    struct RankSettings s = tiny_settings(F32);
    s.model.layers = L;
    s.model.untied = !tie;
    s.ranks = ranks;
    s.stage = stage;
    s.nmicro = 1;
    s.threads = 1;
    return s;
}

// ---- the table ----

static bool uses(const struct Unit *unit, int g) {
    return unit->group == g || unit->adapter == g;
}

// Every group has a first and a last unit, every unit's parameters are in its group, and the global
// indices count each weight once, in the order of groups.
static void check_table(const struct Params *p) {
    uint64_t index = 0;
    for (int g = 0; g < p->ngroup; g++) {
        const struct Group *group = &p->group[g];
        size_t offset = 0;
        assert_true(uses(&p->unit[group->first_unit], g));
        assert_true(uses(&p->unit[group->last_unit], g));
        for (int u = 0; u < p->nunit; u++)
            if (uses(&p->unit[u], g))
                assert_in_range(u, group->first_unit, group->last_unit);
        for (int i = 0; i < group->nparam; i++) {
            const struct Param *param = &group->param[i];
            assert_int_equal(param->offset, offset);
            assert_int_equal(param->index, index);
            bool adapter = group->kind == GROUP_ADAPTER;
            assert_true(i == 0 || adapter || param->cols == 1 ||
                        param[-1].cols > 1); // matrices first
            offset += param->rows * param->cols;
            index += param->real;
        }
        assert_int_equal(group->numel, offset);
        assert_true(group->padded >= group->numel);
        assert_true(group->padded <= params_largest(p, group->kind));
    }
    assert_int_equal(index, p->real);
}

static bool is_of(const struct Group *g, const struct Param *p) {
    return p >= g->param && p < g->param + g->nparam;
}

TEST(one_group_for_both_ends) {
    struct RankSettings s = settings_of(true, 2, 0);
    struct Params p;
    params_layout(&s.model, 2, 0, 1, &p);
    check_table(&p);
    assert_int_equal(p.nunit, L + 2);
    assert_int_equal(p.ngroup, L + 1);
    assert_int_equal(p.group[0].first_unit, 0);
    assert_int_equal(p.group[0].last_unit, L + 1);
    assert_ptr_equal(p.end[END_HEAD_W], p.end[END_WTE]);
    for (int i = 0; i < NEND; i++)
        assert_true(is_of(&p.group[0], p.end[i]));
    params_free(&p);
}

TEST(a_group_for_each_end) {
    struct RankSettings s = settings_of(false, 2, 0), tied = settings_of(true, 2, 0);
    struct Params p, q;
    params_layout(&s.model, 2, 0, 1, &p);
    params_layout(&tied.model, 2, 0, 1, &q);
    check_table(&p);
    assert_int_equal(p.ngroup, L + 2);
    for (int u = 0; u < p.nunit; u++) {
        assert_int_equal(p.group[p.unit[u].group].first_unit, u);
        assert_int_equal(p.group[p.unit[u].group].last_unit, u);
    }
    const struct Group *head = &p.group[p.unit[L + 1].group];
    for (int i = 0; i < NEND; i++)
        assert_true(is_of(i < END_HEAD_W ? &p.group[0] : head, p.end[i]));
    assert_int_equal(p.real, q.real + s.model.vocab * s.model.channels);
    params_free(&p);
    params_free(&q);
}

// An adapter is a group of its block's unit, which is frozen; --freeze names blocks without one.
TEST(a_group_for_each_adapter) {
    for (int tie = 0; tie < 2; tie++) {
        struct RankSettings s = settings_of(tie, 2, 0);
        struct Params plain, p;
        params_layout(&s.model, 2, 0, 1, &plain);
        s.model.lora = (struct Lora){.rank = 5, .alpha = 1, .targets = lora_targets_all(true)};
        s.model.freeze.layers[0] = 1 << 1;
        params_layout(&s.model, 2, 0, 1, &p);
        check_table(&p);
        assert_int_equal(p.ngroup, plain.ngroup + L - 1);
        for (int u = 0; u < p.nunit; u++) {
            const struct Unit *unit = &p.unit[u];
            bool has = unit->kind == UNIT_BLOCK && unit->layer != 1;
            assert_int_equal(unit->group, plain.unit[u].group);
            assert_true(p.group[unit->group].frozen);
            assert_int_equal(unit->adapter >= 0, has);
            assert_int_equal(params_trained_of(&p, u), unit->adapter);
            if (!has)
                continue;
            const struct Group *g = &p.group[unit->adapter];
            assert_true(g->kind == GROUP_ADAPTER && !g->frozen && g->first_unit == u);
            assert_int_equal(g->decay_end, g->numel); // every A and B decays
            assert_int_equal(params_layer(&p, unit->adapter), unit->layer);
        }
        for (int g = 0; g < plain.ngroup; g++) // the base is where it was
            assert_int_equal(p.group[g].param[0].index, plain.group[g].param[0].index);
        assert_int_equal(params_first_backward(&p), 1);
        params_free(&plain);
        params_free(&p);
    }
}

// B is 0, and A uniform up to 1 / sqrt(in): PyTorch's kaiming_uniform_ with a = sqrt 5.
TEST(adapters_begin_as_peft_s_do) {
    struct RankSettings s = settings_of(true, 1, 0);
    struct Params p;
    s.model.lora = (struct Lora){.rank = 64, .alpha = 1, .targets = lora_targets_all(true)};
    params_layout(&s.model, 1, 0, 1, &p);
    struct Device *device;
    struct Error e;
    assert_int_equal(device_open_cpu(&device, 1, NULL, &e), 0);
    for (int g = 0; g < p.ngroup; g++)
        for (int i = 0; i < p.group[g].nparam && p.group[g].kind == GROUP_ADAPTER; i++) {
            const struct Param *param = &p.group[g].param[i];
            size_t n = param->rows * param->cols, begin = param->offset;
            float *w = base_alloc(size_max(n, 1) * sizeof *w);
            double most = 0, square = 0, bound = 1 / sqrt((double)param->cols);
            params_init(&p, g, begin, begin + n, 1, device, w);
            device_sync_queue(device, QUEUE_COMPUTE);
            for (size_t k = 0; k < n; k++) {
                most = fmax(most, fabs((double)w[k]));
                square += (double)w[k] * (double)w[k] / (double)n;
            }
            if (i >= ADAPTER_B)
                assert_true(most == 0);
            else if (n)
                assert_true(most <= bound && most > 0.99 * bound &&
                            fabs(square / (bound * bound) * 3 - 1) < 0.1);
            free(w);
        }
    device_close(device);
    params_free(&p);
}

// ---- the gradient ----

// Both models begin with the same weights, and the untied one's two matrices hold the same: so the
// first forward pass is that of the tied model, and the tied gradient is the sum of the two.
struct Gradients {
    double loss;
    size_t numel;
    float *wte, *head; // (numel); of a tied model they are the same
};

static float *gradient_of(struct Rank *r, enum EndParam which) {
    const struct Param *p = r->params.end[which];
    size_t n = p->rows * p->cols;
    float *out = base_alloc(n * sizeof *out);
    for (int g = 0; g < r->params.ngroup; g++)
        if (is_of(&r->params.group[g], p))
            memcpy(out, (const float *)r->zero.state[g].grad.mem + p->offset, n * sizeof *out);
    return out;
}

// Weights that depend on their unit's layer, their name and their place alone.
static void set_weights(struct Rank *r) {
    for (int g = 0; g < r->params.ngroup; g++) {
        const struct Group *group = &r->params.group[g];
        float *w = r->zero.state[g].param.mem;
        for (int i = 0; i < group->nparam; i++) {
            const struct Param *p = &group->param[i];
            const char *name = p == r->params.end[END_HEAD_W] ? "wte" : p->name;
            uint64_t key = (uint64_t)r->params.unit[group->first_unit].layer;
            key = group->kind == GROUP_BLOCK ? key + 1 : 0;
            for (; *name; name++)
                key = rng_mix(key * 256 + (uint64_t)*name);
            for (size_t k = 0; k < p->real; k++)
                w[p->offset + k] = p->mean + 0.02f * rng_normal(key, k);
        }
    }
}

static void take_gradients(void *context, struct Rank *r) {
    struct Gradients *out = context;
    set_weights(r);
    out->loss = tiny_step(r).loss;
    out->numel = r->params.end[END_WTE]->rows * r->params.end[END_WTE]->cols;
    out->wte = gradient_of(r, END_WTE);
    out->head = gradient_of(r, END_HEAD_W);
}

static void check_gradients(size_t nmicro) {
    struct Gradients tied, untied;
    struct RankSettings s = settings_of(true, 1, 0);
    s.nmicro = nmicro;
    tiny_ranks(&s, take_gradients, &tied);
    s.model.untied = true;
    tiny_ranks(&s, take_gradients, &untied);
    assert_true(tied.loss == untied.loss);
    float largest = 0;
    for (size_t i = 0; i < tied.numel; i++)
        largest = fmaxf(largest, fabsf(tied.wte[i]));
    assert_true(largest > 0);
    for (size_t i = 0; i < tied.numel; i++) {
        float sum = untied.wte[i] + untied.head[i];
        if (!(fabsf(tied.wte[i] - sum) <= 1e-6f * largest))
            fail_msg("%zu micro-batches: element %zu is %.9g tied, %.9g + %.9g untied", nmicro, i,
                     (double)tied.wte[i], (double)untied.wte[i], (double)untied.head[i]);
    }
    float *all[] = {tied.wte, tied.head, untied.wte, untied.head};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

TEST(gradients_add_up) {
    check_gradients(1);
    check_gradients(2);
}

// ---- whole runs of the untied model ----

TEST(stages_agree_untied) {
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct RankSettings s = settings_of(false, ranks, 0);
        struct Outcome reference = outcome_of(&s, STEPS, STEPS - 1);
        for (s.stage = 1; s.stage <= 3; s.stage++)
            for (s.prefetch = 0; s.prefetch <= L; s.prefetch++) {
                struct Outcome o = outcome_of(&s, STEPS, STEPS - 1);
                outcome_expect_same(&reference, &o, &s, "untied");
            }
    }
}

// Gradients that are summed on the host between micro-batches, and slots for weights of any tier.
TEST(offload_agrees_untied) {
    for (int stage = 0; stage <= 3; stage++) {
        struct RankSettings s = settings_of(false, 2, stage);
        s.nmicro = 3;
        struct Outcome reference = outcome_of(&s, STEPS, STEPS - 1);
        s.opt_tier = TIER_CPU;
        struct Outcome o = outcome_of(&s, STEPS, STEPS - 1);
        outcome_expect_same(&reference, &o, &s, "untied");
        s.param_tier = TIER_CPU;
        o = outcome_of(&s, STEPS, STEPS - 1);
        outcome_expect_same(&reference, &o, &s, "untied");
    }
}

struct Plan {
    struct Forecast forecast;
    struct Footprint measured;
};

static void measure(void *context, struct Rank *r) {
    struct Plan *plan = context;
    tiny_step(r);
    tiny_step(r);
    if (tiny_is_first(r))
        plan->measured = footprint_measure(r, &plan->forecast.settings, 0);
}

// What each end's group adds: forward, and for the head backward in the same go.
TEST(plan_is_what_happens_untied) {
    for (int stage = 0; stage <= 3; stage++) {
        struct RankSettings s = settings_of(false, 2, stage);
        struct Plan plan;
        struct Error e;
        s.nmicro = 2;
        assert_int_equal(footprint_predict(&s, 0, s.ranks, &plan.forecast, &e), 0);
        tiny_ranks(&s, measure, &plan);
        const struct Footprint *is = &plan.forecast.is, *was = &plan.measured;
        assert_int_equal(is->tier[TIER_DEVICE].peak, was->tier[TIER_DEVICE].peak);
        assert_memory_equal(is->traffic.bytes, was->traffic.bytes, sizeof is->traffic.bytes);
        if (stage < 3)
            continue;
        struct Params p;
        params_layout(&s.model, 2, 0, 1, &p);
        uint64_t once = p.group[0].padded + p.group[L + 1].padded, twice = p.padded - once;
        uint64_t shards = (once + 2 * twice) / 2, report = 64;
        assert_int_equal(was->traffic.bytes[COMM_ALL_GATHER], 2 * shards * sizeof(float) + report);
        params_free(&p);
    }
}
