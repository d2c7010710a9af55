// Frozen units (--freeze): what is not trained has no gradient, no optimizer state and no backward
// pass of its own; and nothing else of a run changes.
//
// The gradient of a unit that is trained is, bit for bit, that of a run that trains all; no weight
// of a frozen one changes. The plan is what happens, and what is sent is what a formula says that
// knows nothing of visits. One hash for all stages, tiers and levels of recomputation.
#include "model/work.h"
#include "tests/lib/planned.h"
#include "tests/lib/test.h"
#include "zero/plan/count.h"

#include <errno.h>
#include <math.h>

enum { STEPS = 3, PATTERNS = 4 };

// Of 2 layers; a head of its own or not.
static const char *const patterns[PATTERNS] = {"embeddings", "layers:0", "embeddings,layers:0",
                                               "layers:1"};

static struct RankSettings frozen(int family, enum Dtype dtype, const char *freeze) {
    struct RankSettings s = tiny_family(family, dtype);
    struct Error e;
    s.threads = 1;
    s.nmicro = 1;
    s.grad_dtype = dtype;
    if (freeze_read(&s.model.freeze, freeze, s.model.layers, s.model.untied, &e))
        fail_msg("%s", e.text);
    return s;
}

// ---- gradients and weights ----

struct Seen {
    float *grad, *master;
    size_t n;
};

// Of one rank that makes a step without a clip: gradients in fp32, master weights before and after.
static void one_step(void *context, struct Rank *r) {
    struct Seen *out = context;
    struct Zero *z = &r->zero;
    for (int pass = 0; pass < 2; pass++) {
        if (pass)
            tiny_step(r);
        zero_finish(z);
        for (int g = 0; g < r->params.ngroup; g++) {
            size_t n = r->params.group[g].padded;
            struct Seen *s = &out[2 * g + pass];
            s->n = n;
            s->master = base_alloc(n * sizeof *s->master);
            zero_read_state(z, g, STATE_MASTER, 0, n, s->master);
            s->grad = z->state[g].grad.bytes ? base_alloc(n * sizeof *s->grad) : NULL;
            if (s->grad)
                memcpy(s->grad, z->state[g].grad.mem, n * sizeof *s->grad);
        }
    }
}

TEST(gradients_are_those_of_a_whole_run) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (int p = 0; p < PATTERNS; p++) {
            struct RankSettings all = frozen(i, F32, "none"), some = frozen(i, F32, patterns[p]);
            struct Seen whole[16] = {{0}}, part[16] = {{0}};
            tiny_ranks(&all, one_step, whole);
            tiny_ranks(&some, one_step, part);
            int trained = 0, groups = 0;
            for (; whole[2 * groups].n; groups++) {
                const struct Seen *w = &whole[2 * groups + 1], *s = &part[2 * groups];
                size_t bytes = w->n * sizeof(float);
                assert_memory_equal(s[0].master, whole[2 * groups].master, bytes); // initial values
                if (s[1].grad) {
                    assert_memory_equal(s[1].grad, w->grad, bytes);
                    assert_memory_not_equal(s[1].master, s[0].master, bytes);
                    trained++;
                } else {
                    assert_memory_equal(s[1].master, s[0].master, bytes);
                }
            }
            assert_true(trained > 0 && trained < groups);
            for (int k = 0; k < 16; k++) {
                free(whole[k].master);
                free(whole[k].grad);
                free(part[k].master);
                free(part[k].grad);
            }
        }
}

// ---- what is kept and sent ----

// Gathered are forward every group once, backward those of units that a gradient goes through.
static struct Elements count(const struct RankSettings *s) {
    struct Elements n = {.groups = s->model.layers + (s->model.untied ? 2 : 1)};
    struct Params p;
    int head = (int)s->model.layers + 1;
    params_layout(&s->model, (size_t)s->ranks, 0, 1, &p);
    for (int g = 0; g < p.ngroup; g++) {
        n.all += p.group[g].padded;
        n.trained += p.group[g].frozen ? 0 : p.group[g].padded;
        int last = p.group[g].last_unit; // an embedding alone has no weights to read backward
        bool backward = last > 0 && last >= p.first_trained;
        bool once = last == head && s->model.untied;   // the head's passes follow one another
        bool twice = last == head && !s->model.untied; // and the embedding was long before
        n.gathered += p.group[g].padded * (1 + (backward && !once && !twice) + twice);
    }
    params_free(&p);
    return n;
}

TEST(plan_is_what_happens) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (int stage = 0; stage < 4; stage++)
            for (int p = 0; p < PATTERNS; p++) {
                enum Dtype dtype = (i + p) % 2 ? F32 : BF16;
                struct RankSettings s = frozen(i, dtype, patterns[p]);
                s.ranks = 2 + p % 2;
                s.nmicro = (size_t)(1 + (stage + p) % 2);
                s.grad_dtype = s.nmicro > 1 ? F32 : dtype;
                s.stage = stage;
                s.recompute = (enum Recompute)((i + stage + p) % NRECOMPUTE);
                struct Elements n = count(&s);
                planned_by_formula(&s, &n, patterns[p]);
            }
}

// Of four layers: state and activations elsewhere, also where layers that have no backward pass
// would stay on the device; tensor parallelism; a pipeline, of which one stage may train nothing,
// or receive no gradient.
TEST(plan_of_tiers_and_grids_is_what_happens) {
    static const char *const freezes[] = {"embeddings,layers:0-2", "embeddings,layers:0-3",
                                          "head,layers:3", "embeddings,layers:1"};
    static const struct {
        int stage;
        enum TierKind opt, param, act;
        double ratio;
        size_t tp, pp;
        bool delayed;
    } of[] = {{3, TIER_CPU, TIER_CPU, TIER_CPU, 0, 0, 0, false},
              {0, TIER_DEVICE, TIER_DEVICE, TIER_CPU, 0, 0, 0, false},
              {1, TIER_CPU, TIER_DEVICE, TIER_DEVICE, 0.5, 0, 0, false},
              {2, TIER_CPU, TIER_DEVICE, TIER_CPU, 0, 2, 0, false},
              {3, TIER_DEVICE, TIER_DEVICE, TIER_DEVICE, 0, 2, 0, false},
              {1, TIER_CPU, TIER_DEVICE, TIER_CPU, 0, 0, 2, false},
              {2, TIER_CPU, TIER_CPU, TIER_DEVICE, 0, 0, 2, true}};
    for (size_t f = 0; f < sizeof freezes / sizeof freezes[0]; f++)
        for (size_t n = 0; n < sizeof of / sizeof of[0]; n++) {
            struct RankSettings s = tiny_family(1, BF16);
            struct Error e;
            s.model.layers = 4;
            s.model.untied = true;
            s.threads = 1;
            s.nmicro = of[n].pp ? 3 : 1;
            s.grad_dtype = of[n].pp ? F32 : BF16;
            s.ranks = of[n].tp || of[n].pp ? 4 : 2;
            s.stage = of[n].stage;
            s.opt_tier = of[n].opt;
            s.param_tier = of[n].param;
            s.act_tier = of[n].act;
            s.offload_ratio = of[n].ratio;
            s.delayed = of[n].delayed;
            s.tp = of[n].tp;
            s.pp = of[n].pp;
            s.pp_split = of[n].pp ? "2,2" : NULL;
            s.prefetch = 1;
            assert_int_equal(freeze_read(&s.model.freeze, freezes[f], 4, true, &e), 0);
            planned_is_measured(&s, freezes[f]);
        }
}

// Nothing that no backward pass reads leaves the device, or has memory elsewhere.
TEST(layers_without_a_backward_pass_do_not_leave) {
    struct RankSettings s = tiny_settings(F32);
    struct Error e;
    s.model.layers = 6;
    s.act_tier = TIER_CPU;
    s.prefetch = 1;
    for (int all = 1; all >= 0; all--) {
        s.model.untied = true;
        assert_int_equal(
            freeze_read(&s.model.freeze, all ? "none" : "embeddings,layers:0-2", 6, true, &e), 0);
        struct Forecast f = planned(&s);
        size_t stored = f.is.tier[TIER_CPU].most[TAG_ACTIVATION];
        size_t layers = all ? 4 : 1; // of 6, or of the last 3, two stay
        assert_true(stored > 0 && stored % layers == 0);
        assert_int_equal(f.is.moved.out, stored * s.nmicro);
        assert_int_equal(f.is.moved.in, stored * s.nmicro);
    }
}

// ---- one hash ----

TEST(one_hash) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (int p = 0; p < PATTERNS; p++) {
            struct RankSettings reference = frozen(i, (i + p) % 2 ? BF16 : F32, patterns[p]);
            reference.ranks = 1 + (i + p) % 3;
            struct Outcome want = outcome_of(&reference, STEPS, STEPS - 1);
            for (int k = 0; k < 8; k++) {
                struct RankSettings s = tiny_changed(reference, i + k);
                struct Outcome is = outcome_of(&s, STEPS, STEPS - 1);
                outcome_expect_same(&want, &is, &s, patterns[p]);
            }
        }
}

// ---- activations ----

// The layers below the first one that is trained share a slot; each other one has its own.
TEST(layers_without_a_backward_pass_share_a_slot) {
    static const struct {
        const char *freeze;
        size_t layers, nmicro, pp, slots;
    } of[] = {{"none", 6, 1, 0, 6},
              {"embeddings,layers:0", 6, 1, 0, 6},
              {"embeddings,layers:0-3", 6, 1, 0, 3},
              {"embeddings,layers:0-5", 6, 1, 0, 1},
              {"layers:0-3", 6, 1, 0, 6},
              {"embeddings,layers:0-1", 6, 4, 2, 1 + 2 * 1}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        struct RankSettings s = tiny_settings(F32);
        struct Rank dry;
        struct Error e;
        s.model.layers = of[i].layers;
        s.model.untied = true;
        s.nmicro = of[i].nmicro;
        s.pp = of[i].pp;
        s.pp_split = of[i].pp ? "3,3" : NULL;
        s.ranks = of[i].pp ? 2 : 1;
        assert_int_equal(freeze_read(&s.model.freeze, of[i].freeze, s.model.layers, true, &e), 0);
        assert_int_equal(rank_open(&dry, &s, true, &e), 0);
        if (dry.acts.slots != of[i].slots)
            fail_msg("--freeze %s: %zu slots", of[i].freeze, dry.acts.slots);
        rank_close(&dry);
    }
}

// And no number depends on it: beside activations that are all kept, in host memory, and in a
// pipeline.
TEST(shared_slots_change_no_bit) {
    struct RankSettings s = tiny_settings(F32);
    struct Error e;
    s.model.layers = 6;
    s.model.untied = true;
    s.threads = 1;
    s.nmicro = 4;
    assert_int_equal(freeze_read(&s.model.freeze, "embeddings,layers:0-3", 6, true, &e), 0);
    s.act_tier = TIER_CPU;
    struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
    s.act_tier = TIER_DEVICE;
    for (size_t pp = 1; pp <= 3; pp++)
        for (enum Recompute level = 0; level < NRECOMPUTE; level++) {
            s.pp = pp > 1 ? pp : 0;
            s.ranks = (int)pp;
            s.recompute = level;
            struct Outcome is = outcome_of(&s, STEPS, STEPS - 1);
            outcome_expect_same(&want, &is, &s, ": shared slots");
        }
}

// ---- work ----

// Of a middle layer, one of three parts of its products is left out; below the first unit that is
// trained there is no backward pass.
TEST(work_is_what_is_left) {
    struct RankSettings s = frozen(1, F32, "embeddings,layers:0");
    const struct ModelConfig *c = &s.model;
    assert_int_equal(model_first_trained(c), 2);
    assert_int_equal(model_unit_backward(c, 0), BACKWARD_NONE);
    assert_int_equal(model_unit_backward(c, 1), BACKWARD_NONE);
    assert_int_equal(model_unit_backward(c, 2), BACKWARD_ALL);
    s = frozen(1, F32, "layers:1");
    assert_int_equal(model_unit_backward(c, 2), BACKWARD_INPUT);
    struct UnitWork all = model_unit_work(c, UNIT_BLOCK, RECOMPUTE_NONE, BACKWARD_ALL);
    struct UnitWork input = model_unit_work(c, UNIT_BLOCK, RECOMPUTE_NONE, BACKWARD_INPUT);
    double attention = 2 * model_attention_work(c);
    assert_true(all.backward - input.backward == all.forward - attention);
    assert_true(model_unit_work(c, UNIT_BLOCK, RECOMPUTE_NONE, BACKWARD_NONE).backward == 0);
}

// The plan's kernels do what a run's formulas say: products and attention.
TEST(a_plan_counts_the_kernels_that_are_left) {
    for (int p = -1; p < PATTERNS; p++) {
        struct RankSettings s = frozen(1, F32, p < 0 ? "none" : patterns[p]);
        struct Rank dry;
        struct Error e;
        struct PassCount of;
        assert_int_equal(rank_open(&dry, &s, true, &e), 0);
        count_passes(&dry, false, &of);
        struct StepFlops want = rank_step_flops(&dry, &s);
        double forward = 0, backward = 0;
        for (int k = 0; k < NKERNEL; k++) {
            forward += of.forward.flops[k];
            backward += of.backward.flops[k];
        }
        if (fabs(forward / want.forward - 1) > 0.05 || fabs(backward / want.backward - 1) > 0.05)
            fail_msg("%s: %g and %g FLOP, by formula %g and %g", p < 0 ? "none" : patterns[p],
                     forward, backward, want.forward, want.backward);
        rank_close(&dry);
    }
}

// ---- the flag ----

TEST(texts) {
    struct Freeze f;
    struct Error e;
    assert_int_equal(freeze_read(&f, "head,layers:2-3,layers:0", 5, true, &e), 0);
    assert_true(f.head && !f.embeddings && f.layers[0] == 0xd);
    assert_int_equal(freeze_read(&f, "layers:64", 65, true, &e), 0);
    assert_true(!f.layers[0] && f.layers[1] == 1 && freeze_has_layer(&f, 64));
    assert_int_equal(freeze_read(&f, "none", 5, true, &e), 0);
    assert_true(!f.head && !f.embeddings && !f.layers[1]);
    const char *const wrong[] = {"",
                                 "layers:5",
                                 "layers:3-2",
                                 "layers:",
                                 "layers:1-",
                                 "layers:-1",
                                 "layers:1-2-3",
                                 "layers: 1",
                                 "layers:1,",
                                 ",layers:1",
                                 "wte",
                                 "Head",
                                 "embeddings,head,layers:0-4"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct Freeze kept = {.head = true};
        if (freeze_read(&kept, wrong[i], 5, true, &e) != -EINVAL || !kept.head)
            fail_msg("--freeze %s: %s", wrong[i], e.text);
        assert_non_null(strstr(e.text, "--freeze"));
    }
    assert_int_equal(freeze_read(&f, "head", 5, false, &e), -EINVAL);
    assert_int_equal(freeze_read(&f, "embeddings,layers:0-4", 5, false, &e), -EINVAL);
    assert_int_equal(freeze_read(&f, "embeddings,layers:0-4", 5, true, &e), 0);
}
