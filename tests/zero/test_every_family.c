// Every family, with its head tied and untied, through stages, tiers and recomputation.
//
// The plan is what happens: each tag's bytes, each collective's, and what crosses the bus, at every
// stage, with and without accumulation and offload. What is sent is also what a formula says that
// knows nothing of visits: at stage 3 each weight is gathered for each pass that reads it. An
// embedding that is the head's matrix, too, is read by two; one that is not has a forward pass
// alone, and the head's two passes follow one another with one gathering (docs/ranks.md). And one
// hash for each family, whatever is recomputed, sharded or elsewhere.
//
// The figures themselves are tests/model/test_families.c's; GPT-2 alone, in more settings, has
// test_plan.c and test_stages.c.
#include "tests/lib/planned.h"
#include "tests/lib/test.h"

enum { STEPS = 3 };

// ---- what is sent ----

static uint64_t groups_of(const struct RankSettings *s) {
    return s->model.layers + (s->model.untied ? 2 : 1);
}

static uint64_t report_bytes(const struct RankSettings *s) {
    return (16 + 8 * groups_of(s) + 63) / 64 * 64; // loss, word, a norm of each group
}

static void check_plan(const struct RankSettings *s, const char *name) {
    struct Elements n = {.groups = groups_of(s)};
    struct Params p;
    params_layout(&s->model, (size_t)s->ranks, 0, 1, &p);
    for (int g = 0; g < p.ngroup; g++) {
        bool once = s->model.untied && p.group[g].kind == GROUP_END;
        n.gathered += (once ? 1 : 2) * p.group[g].padded;
    }
    n.all = n.trained = p.padded;
    params_free(&p);
    planned_by_formula(s, &n, name);
}

static struct RankSettings settings_of(int family, enum Dtype dtype, int ranks, size_t nmicro) {
    struct RankSettings s = tiny_family(family, dtype);
    s.threads = 1;
    s.ranks = ranks;
    s.nmicro = nmicro;
    s.grad_dtype = nmicro > 1 ? F32 : dtype;
    return s;
}

TEST(plan_is_what_happens) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (int stage = 0; stage < 4; stage++)
            for (int n = 0; n < 4; n++) {
                struct RankSettings s = settings_of(i, n % 2 ? F32 : BF16, 2 + n / 2, 1 + n % 3);
                s.stage = stage;
                s.recompute = (enum Recompute)((i + stage + n) % NRECOMPUTE);
                check_plan(&s, tiny_family_name(i));
            }
}

// Optimizer, parameters and activations in host memory, one after the other.
TEST(plan_of_offload_is_what_happens) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (int stage = 0; stage < 4; stage++)
            for (int more = 0; more < 3; more++) {
                struct RankSettings s = settings_of(i, BF16, 1 + (stage + more) % 3, 1 + more % 2);
                s.stage = stage;
                s.opt_tier = TIER_CPU;
                s.param_tier = more > 0 ? TIER_CPU : TIER_DEVICE;
                s.act_tier = more > 1 ? TIER_CPU : TIER_DEVICE;
                s.recompute = (enum Recompute)((i + stage + more) % NRECOMPUTE);
                planned_is_measured(&s, tiny_family_name(i));
            }
}

// An embedding apart from the head adds to what is reduced, not to what is gathered: but for
// padding as much as the one matrix, which is gathered twice.
TEST(an_untied_head_is_gathered_once) {
    for (int i = 0; i < TINY_FAMILIES; i++) {
        struct RankSettings s = settings_of(i, BF16, 4, 2);
        struct Forecast f[2];
        s.stage = 3;
        for (int untied = 0; untied < 2; untied++) {
            s.model.untied = untied;
            f[untied] = planned(&s);
        }
        const uint64_t *tied = f[0].is.traffic.bytes, *apart = f[1].is.traffic.bytes;
        uint64_t matrix = s.model.vocab_padded * s.model.channels, slack = 2048;
        assert_true(apart[COMM_REDUCE_SCATTER] >= tied[COMM_REDUCE_SCATTER] + 3 * matrix / 4 * 8);
        assert_true(apart[COMM_ALL_GATHER] <= tied[COMM_ALL_GATHER] + slack);
        assert_true(apart[COMM_ALL_GATHER] + slack >= tied[COMM_ALL_GATHER]);
        assert_true(slack < 3 * matrix / 4 * 4);
    }
}

// In the middle of a pipeline a pass begins with the unit that the last one ended with, where it
// goes the other way: of 2 blocks in 5 micro-batches each is gathered for 10 passes, but where the
// walk turns round, 4 times at the last block and 3 times at the first (1F1B, one pass ahead).
TEST(a_stage_turns_round_with_its_weights) {
    struct RankSettings s = settings_of(1, F32, 6, 5);
    struct Params p;
    struct Forecast middle;
    struct Error e;
    s.stage = 3;
    s.pp = 3;
    s.pp_split = "1,2,1";
    planned_is_measured(&s, "3 stages");
    assert_int_equal(footprint_of_rank(&s, 2, s.ranks, &middle, &e), 0);
    params_layout(&s.model, settings_layout_shards(&s), 0, 1, &p);
    uint64_t shard = params_largest(&p, true) / 2 * sizeof(float);
    uint64_t reports = (uint64_t)(s.ranks - 1) * report_bytes(&s);
    params_free(&p);
    assert_int_equal(middle.is.traffic.bytes[COMM_ALL_GATHER], reports + (2 * 10 - 4 - 3) * shard);
}

// ---- one hash ----

static struct RankSettings changed(struct RankSettings s, int stage, int level, int tier) {
    s.stage = stage;
    s.recompute = (enum Recompute)level;
    s.opt_tier = tier > 0 ? TIER_CPU : TIER_DEVICE;
    s.param_tier = tier > 1 ? TIER_CPU : TIER_DEVICE;
    s.act_tier = tier > 2 ? TIER_CPU : TIER_DEVICE;
    s.prefetch = (size_t)(stage + level + tier) % 3;
    return s;
}

static void compare_runs(int family, enum Dtype dtype, int ranks) {
    struct RankSettings reference = settings_of(family, dtype, ranks, 1);
    struct Outcome want = outcome_of(&reference, STEPS, STEPS - 1);
    char name[32];
    snprintf(name, sizeof name, ": %s", tiny_family_name(family));
    assert_true(isfinite(want.loss[STEPS - 1]) && want.loss[0] != want.loss[STEPS - 1]);
    for (int level = 0; level < NRECOMPUTE; level++)
        for (int stage = 0; stage < 4; stage++)
            for (int tier = 0; tier < 4; tier++) {
                struct RankSettings s = changed(reference, stage, level, tier);
                struct Outcome is = outcome_of(&s, STEPS, STEPS - 1);
                outcome_expect_same(&want, &is, &s, name);
            }
}

TEST(one_hash) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (enum Dtype d = F32; d <= BF16; d++)
            compare_runs(i, d, 1 + (i + (int)d) % 3);
}

// ---- what each level keeps ----

// Of a layer and a token: elements, beside the statistics, in the widths of the paper's tensors.
TEST(each_level_keeps_its_tensors) {
    for (int i = 0; i < TINY_FAMILIES; i++) {
        struct RankSettings s = settings_of(i, F32, 1, 1);
        const struct ModelConfig *c = &s.model;
        size_t stats = c->family->norm == NORM_LAYER ? 4 : 2, att = c->heads * c->head_size;
        size_t qkv = (c->heads + 2 * c->kv_heads) * c->head_size;
        size_t fc = c->family->mlp == MLP_SWIGLU ? 2 * c->ffn : c->ffn;
        size_t mlp = 2 * c->channels + qkv + stats, attention = mlp + fc;
        size_t gelu = attention + 2 * c->channels + att + c->heads;
        size_t none = gelu + c->ffn + (c->family->qk_norm ? qkv : 0);
        size_t want[NRECOMPUTE] = {none, gelu, attention, mlp, c->channels};
        for (enum Recompute level = 0; level < NRECOMPUTE; level++) {
            struct Rank dry;
            struct Error e;
            s.recompute = level;
            assert_int_equal(rank_open(&dry, &s, true, &e), 0);
            size_t bytes = want[level] * s.batch * c->seq_len * sizeof(float);
            if (dry.acts.slot_bytes < bytes || dry.acts.slot_bytes >= bytes + NACT * 64)
                fail_msg("%s, %s: a layer keeps %zu bytes, by its tensors %zu", tiny_family_name(i),
                         recompute_name(level), dry.acts.slot_bytes, bytes);
            rank_close(&dry);
        }
    }
}
