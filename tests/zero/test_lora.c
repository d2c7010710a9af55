// Adapters (--lora-rank): a second group of a block, which is trained where the block is not.
//
// One hash for all stages, tiers, grids and levels of recomputation, with and without dropout. The
// plan is what happens; what is kept and sent is what a formula says that knows the shapes of A and
// B and no visits. A run begins as its base does. Gradients do not depend on tensor parallelism,
// and what is dropped depends on the tokens alone.
#include "tests/lib/gradients.h"
#include "tests/lib/planned.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "zero/state.h"

#include <errno.h>
#include <math.h>

enum { STEPS = 3, RANK = 5, LAYERS = 4 };

// In the words of GPT-2, and of all others.
struct Pattern {
    const char *targets[2], *freeze;
    double dropout;
};
enum { PATTERNS = 5 };
static const struct Pattern patterns[PATTERNS] = {
    {{"all", "all"}, "none", 0},
    {{"attention", "attention"}, "layers:1", 0.25},
    {{"mlp.c_proj", "down_proj"}, "layers:0-1", 0.5},
    {{"c_attn", "v_proj"}, "layers:3", 0},
    {{"all", "all"}, "layers:2", 0.1},
};

static struct RankSettings adapt(struct RankSettings s, const struct Pattern *p) {
    struct ModelConfig *m = &s.model;
    bool gpt2 = m->kind == FAMILY_GPT2;
    struct Error e;
    m->lora = (struct Lora){.rank = RANK, .alpha = 2 * RANK, .dropout = p->dropout};
    if (lora_read_targets(&m->lora.targets, p->targets[!gpt2], gpt2, &e) ||
        freeze_read(&m->freeze, p->freeze, m->layers, m->untied, &e))
        fail_msg("%s", e.text);
    return s;
}

static struct RankSettings adapted(int family, enum Dtype dtype, const struct Pattern *p) {
    struct RankSettings s = tiny_family(family, dtype);
    s.threads = 1;
    s.nmicro = 1;
    s.grad_dtype = dtype;
    return adapt(s, p);
}

static struct RankSettings on_disk(struct RankSettings s) {
    s.nvme.folder = disk_folder;
    return s;
}

// ---- one hash ----

static void expect_as(const struct Outcome *want, struct RankSettings s, const char *what) {
    struct Outcome is = outcome_of(&s, STEPS, STEPS - 1);
    outcome_expect_same(want, &is, &s, what);
}

TEST(one_hash) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (int p = 0; p < PATTERNS; p++) {
            struct RankSettings reference = adapted(i, (i + p) % 2 ? BF16 : F32, &patterns[p]);
            reference.ranks = 1 + (i + p) % 3;
            struct Outcome want = outcome_of(&reference, STEPS, STEPS - 1);
            assert_true(isfinite(want.loss[STEPS - 1]) && want.loss[0] != want.loss[1]);
            for (int k = 0; k < 8; k++)
                expect_as(&want, tiny_changed(reference, i + p + k), tiny_family_name(i));
        }
}

// Optimizer state, parameters and activations on NVMe; half of the optimizer state elsewhere;
// master weights in another format.
TEST(one_hash_of_tiers) {
    for (int stage = 0; stage < 4; stage++)
        for (int p = 0; p < PATTERNS; p++) {
            struct RankSettings s = adapted(p + 1, p % 2 ? F32 : BF16, &patterns[p]);
            s.ranks = 2;
            struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
            s.stage = stage;
            s.opt_tier = TIER_CPU;
            s.offload_ratio = 0.5;
            expect_as(&want, s, ", a half");
            s.opt_tier = TIER_DEVICE;
            s.offload_ratio = 0;
            if (!(p % 2)) {
                s.master_format = MASTER_SPLIT;
                expect_as(&want, s, ", split master weights");
                s.master_format = MASTER_FP32;
            }
            if (!tiny_has_disk())
                continue;
            s = on_disk(s);
            s.opt_tier = TIER_NVME;
            s.param_tier = stage == 3 ? TIER_NVME : TIER_DEVICE;
            s.act_tier = p % 2 ? TIER_NVME : TIER_DEVICE;
            expect_as(&want, s, ", on the disk");
        }
}

// A sum of micro-batches is rounded in one way by stages 0 and 1, in another by 2 and 3.
TEST(one_hash_of_micro_batches_and_pipelines) {
    for (int pair = 0; pair < 2; pair++)
        for (int p = 0; p < PATTERNS; p++) {
            int family = p % 2 ? 3 : 1; // untied
            struct RankSettings s = adapted(family, p % 2 ? BF16 : F32, &patterns[p]);
            s.nmicro = 3;
            s.grad_dtype = F32;
            s.ranks = 2;
            s.stage = 2 * pair;
            struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
            s.stage++;
            expect_as(&want, s, ", the other stage");
            s.opt_tier = s.act_tier = TIER_CPU;
            s.recompute = RECOMPUTE_BLOCK;
            expect_as(&want, s, ", offloaded");
            s.ranks = 4;
            s.pp = 2;
            s.pp_split = "1,3";
            expect_as(&want, s, ", in a pipeline");
            s.opt_tier = s.act_tier = TIER_DEVICE;
            s.stage = 2 * pair;
            s.pp_split = "2,2";
            expect_as(&want, s, ", in another pipeline");
        }
}

TEST(one_hash_of_partitions) {
    for (int p = 0; p < PATTERNS; p++) {
        struct RankSettings s = adapted(p, p % 2 ? BF16 : F32, &patterns[p]);
        s.ranks = 4;
        struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
        s.stage = 3;
        for (s.prefetch = 0; s.prefetch < 3; s.prefetch++) {
            s.hpz_size = 2;
            expect_as(&want, s, ", with a second partition");
            s.hpz_size = 0;
            expect_as(&want, s, ", with none");
        }
        s.stage = s.prefetch = 1;
        s.shard_size = 2;
        want = outcome_of(&s, STEPS, STEPS - 1);
        while (++s.stage < 4)
            expect_as(&want, s, ", of replicas");
    }
}

// An update that comes a step late, and weights in 8 bits, have results of their own.
TEST(one_hash_of_late_updates_and_wires) {
    for (int p = 0; p < PATTERNS; p++) {
        struct RankSettings s = adapted(p + 1, BF16, &patterns[p]);
        s.ranks = 2;
        s.quantized_weights = true;
        s.stage = 1;
        struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
        while (++s.stage < 4)
            expect_as(&want, s, ", in 8 bits");
        s.quantized_weights = 0;
        s.delayed = true;
        s.opt_tier = TIER_CPU;
        s.stage = 0;
        want = outcome_of(&s, STEPS, STEPS - 1);
        for (s.stage = 1; s.stage < 4; s.stage++)
            expect_as(&want, s, ", late");
    }
}

// ---- what is kept and sent ----

// Elements of the A and the B of each target: rank (in + out), in one layer.
static uint64_t adapter_elements(const struct ModelConfig *c) {
    uint64_t C = c->channels, q = c->heads * c->head_size, kv = c->kv_heads * c->head_size;
    uint64_t sides[NLORA] = {C + q, C + kv, C + kv, q + C, C + c->ffn, C + c->ffn, c->ffn + C};
    uint64_t n = 0;
    if (c->kind == FAMILY_GPT2) // queries, keys and values have one adapter
        sides[LORA_Q] = C + 3 * C;
    for (int t = 0; t < NLORA; t++)
        n += c->lora.targets >> t & 1 ? c->lora.rank * sides[t] : 0;
    return n;
}

static bool has_adapter(const struct ModelConfig *c, size_t layer) {
    return !freeze_has_layer(&c->freeze, layer);
}

// As the ranks pad them.
struct Counts {
    uint64_t base, block, end;  // elements of all, of a block, of the largest end
    uint64_t adapter, adapters; // of one, of all
    uint64_t gathered;          // at stage 3 for one micro-batch
    uint64_t groups;
};

static struct Counts count(const struct RankSettings *s) {
    struct ModelConfig base = s->model;
    size_t first = 0, n = 0, ranks = (size_t)s->ranks;
    struct Counts c = {.adapter = round_up(adapter_elements(&s->model), ranks * SHARD_MULTIPLE)};
    struct Params p;
    while (!has_adapter(&s->model, first))
        first++;
    for (size_t l = 0; l < base.layers; l++)
        n += has_adapter(&s->model, l);
    base.lora = (struct Lora){0};
    params_layout(&base, ranks, 0, 1, &p);
    c.groups = (uint64_t)p.ngroup + n;
    c.adapters = n * c.adapter;
    c.gathered = 2 * c.adapters; // forward, and backward
    for (int g = 0; g < p.ngroup; g++) {
        uint64_t size = p.group[g].padded;
        bool block = p.group[g].kind == GROUP_BLOCK;
        bool tied = p.group[g].first_unit != p.group[g].last_unit; // the embedding, and the head
        bool again = block ? (size_t)params_layer(&p, g) >= first : tied;
        c.base += size;
        c.gathered += size * (1 + again);
        c.block = block ? size : c.block;
        c.end = block || size < c.end ? c.end : size;
    }
    params_free(&p);
    return c;
}

static void check_plan(const struct RankSettings *s, const char *name) {
    struct Counts n = count(s);
    struct Elements formula = {n.base + n.adapters, n.adapters, n.gathered, n.groups};
    struct Forecast f = planned_by_formula(s, &formula, name);
    const size_t *kept = f.is.tier[TIER_DEVICE].most;
    uint64_t weight = dtype_size(s->model.dtype), grad = dtype_size(s->grad_dtype);
    // Of blocks and adapters two each are whole at a time, and of gradients two.
    assert_int_equal(kept[TAG_COMM],
                     (s->stage > 2 ? (n.end + 2 * n.block + 2 * n.adapter) * weight : 0) +
                         (s->stage > 1 ? 2 * n.adapter * grad : 0));
}

TEST(plan_is_what_happens) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (int stage = 0; stage < 4; stage++)
            for (int p = 0; p < PATTERNS; p++) {
                enum Dtype dtype = (i + p) % 2 ? F32 : BF16;
                struct RankSettings s = adapted(i, dtype, &patterns[p]);
                s.ranks = 2 + p % 2;
                s.nmicro = (size_t)(1 + (stage + p) % 2);
                s.grad_dtype = s.nmicro > 1 ? F32 : dtype;
                s.stage = stage;
                s.recompute = (enum Recompute)((i + stage + p) % NRECOMPUTE);
                check_plan(&s, patterns[p].targets[1]);
            }
}

TEST(plan_of_tiers_and_grids_is_what_happens) {
    static const struct {
        int stage;
        enum TierKind opt, param, act;
        double ratio;
        size_t tp, pp, hpz, shard;
        bool quantized;
        bool delayed;
    } of[] = {
        {3, .opt = TIER_CPU, .param = TIER_CPU, .act = TIER_CPU},
        {3, .opt = TIER_NVME, .param = TIER_NVME, .act = TIER_NVME},
        {0, .opt = TIER_NVME, .act = TIER_CPU},
        {1, .opt = TIER_CPU, .ratio = 0.5},
        {2, .opt = TIER_CPU, .act = TIER_CPU, .tp = 2},
        {3, .tp = 2},
        {1, .opt = TIER_CPU, .act = TIER_CPU, .pp = 2},
        {2, .opt = TIER_CPU, .param = TIER_CPU, .pp = 2, .delayed = true},
        {3, .hpz = 2, .quantized = true},
        {2, .shard = 2, .quantized = true},
        {3, .act = TIER_CPU, .shard = 2},
    };
    for (int p = 0; p < PATTERNS; p++)
        for (size_t n = 0; n < sizeof of / sizeof of[0]; n++) {
            struct RankSettings s = adapted(p % 2 ? 3 : 1, BF16, &patterns[p]);
            bool two = of[n].tp || of[n].pp || of[n].hpz || of[n].shard;
            if (of[n].opt == TIER_NVME && !tiny_has_disk())
                continue;
            s.nvme.folder = disk_folder;
            s.nmicro = of[n].pp ? 3 : 1;
            s.grad_dtype = of[n].pp ? F32 : BF16;
            s.ranks = two ? 4 : 2;
            s.stage = of[n].stage;
            s.opt_tier = of[n].opt;
            s.param_tier = of[n].param;
            s.act_tier = of[n].act;
            s.offload_ratio = of[n].ratio;
            s.delayed = of[n].delayed;
            s.tp = of[n].tp;
            s.pp = of[n].pp;
            s.pp_split = of[n].pp ? "2,2" : NULL;
            s.hpz_size = of[n].hpz;
            s.shard_size = of[n].shard;
            s.quantized_weights = of[n].quantized;
            planned_is_measured(&s, patterns[p].targets[1]);
        }
}

// However far ahead weights are fetched, no more groups of a kind are whole than there are.
TEST(slots_are_no_more_than_groups) {
    struct RankSettings s = adapted(3, F32, &patterns[0]);
    s.ranks = 2;
    s.stage = 3;
    s.prefetch = 100;
    struct Forecast f = planned_is_measured(&s, "far ahead");
    struct Counts n = count(&s);
    size_t units = s.model.layers + 2, weight = sizeof(float);
    assert_int_equal(f.is.tier[TIER_DEVICE].most[TAG_COMM],
                     (n.end + units * n.block + s.model.layers * n.adapter) * weight +
                         2 * n.adapter * weight);
}

// ---- the first step ----

struct Seen {
    double loss;
    float *before[16], *after[16]; // of each group
    size_t numel[16];
};

static float *masters_of(struct Rank *r, int g, size_t *n) {
    float *all = device_alloc_host(r->device, STATE_CHUNK * sizeof *all);
    *n = r->params.group[g].padded;
    zero_finish(&r->zero);
    zero_read_state(&r->zero, g, STATE_MASTER, 0, *n, all);
    float *kept = base_alloc(*n * sizeof *kept);
    memcpy(kept, all, *n * sizeof *kept);
    device_free_host(r->device, all);
    return kept;
}

static void one_step(void *context, struct Rank *r) {
    struct Seen *s = context;
    for (int g = 0; g < r->params.ngroup; g++)
        s->before[g] = masters_of(r, g, &s->numel[g]);
    s->loss = tiny_step(r).loss;
    tiny_step(r);
    for (int g = 0; g < r->params.ngroup; g++)
        s->after[g] = masters_of(r, g, &s->numel[g]);
}

static void check_initial(const struct Param *p, bool a, const float *w) {
    float bound = 1 / sqrtf((float)p->cols), most = 0;
    for (size_t i = 0; i < p->real; i++)
        most = fmaxf(most, fabsf(w[p->offset + i]));
    if (a ? !(most <= bound && most > 0.9f * bound) : most != 0)
        fail_msg("%s begins with up to %g", p->name, (double)most);
}

// A's values are within 1 / sqrt in, B's are 0: the first step computes what the base does. Then A
// and B move, and the base does not.
TEST(a_run_begins_with_its_base) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (int p = 0; p < PATTERNS; p++) {
            struct RankSettings s = adapted(i, (i + p) % 2 ? BF16 : F32, &patterns[p]), base = s;
            struct Seen is = {0}, was = {0};
            struct Params params;
            base.model.lora = (struct Lora){0};
            tiny_ranks(&s, one_step, &is);
            tiny_ranks(&base, one_step, &was);
            if (is.loss != was.loss)
                fail_msg("%s, %s: the first loss is %.9g, of the base %.9g", tiny_family_name(i),
                         patterns[p].targets[1], is.loss, was.loss);
            params_layout(&s.model, 1, 0, 1, &params);
            for (int g = 0; g < params.ngroup; g++) {
                const struct Group *group = &params.group[g];
                size_t bytes = is.numel[g] * sizeof(float);
                if (group->kind != GROUP_ADAPTER) {
                    if (s.model.dtype == F32) // else the base's own master weights are finer
                        assert_memory_equal(is.before[g], was.before[g], bytes);
                    assert_memory_equal(is.after[g], is.before[g], bytes);
                }
                for (int k = 0; k < NADAPTER && group->kind == GROUP_ADAPTER; k++) {
                    const struct Param *param = &group->param[k];
                    if (!param->real)
                        continue;
                    check_initial(param, k < ADAPTER_B, is.before[g]);
                    assert_memory_not_equal(is.after[g] + param->offset,
                                            is.before[g] + param->offset,
                                            param->real * sizeof(float));
                }
            }
            params_free(&params);
            for (int g = 0; g < 16; g++) {
                free(is.before[g]);
                free(is.after[g]);
                free(was.before[g]);
                free(was.after[g]);
            }
        }
}

// ---- tensor parallelism ----

// Heads for 2 and 3 TP ranks; sequences of as many rows for each.
static struct RankSettings split(int family, const struct Pattern *p, int tp, int data) {
    struct RankSettings s = tiny_family(family, F32);
    bool old = s.model.kind == FAMILY_GPT2;
    struct Error e;
    s.model.layers = 2;
    s.model.heads = 12;
    s.model.kv_heads = old ? 12 : 6;
    s.model.head_size = 4;
    s.model.channels = old ? 48 : 36;
    s.model.ffn = 84;
    s.model.seq_len = s.model.positions = 18;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    s.threads = 1;
    s.ranks = tp * data;
    s.tp = (size_t)tp;
    s.nmicro = 2;
    s.batch = 4 / (size_t)data;
    struct Pattern all = *p;
    all.freeze = "none";
    return adapt(s, &all);
}

TEST(parts_are_the_whole) {
    static const int tried[] = {0, 3, 5, 6};
    for (size_t f = 0; f < sizeof tried / sizeof tried[0]; f++)
        for (int p = 0; p < PATTERNS; p++) {
            struct RankSettings alone = split(tried[f], &patterns[p], 1, 1);
            struct Gradients want = gradients_of(&alone);
            for (int tp = 2; tp <= 3; tp++)
                for (int rows = 0; rows < 2; rows++) {
                    int data = 1 + (tp + rows + p) % 2;
                    struct RankSettings s = split(tried[f], &patterns[p], tp, data);
                    s.sequence_parallel = rows;
                    s.stage = data == 1 ? 0 : 3;
                    struct Gradients is = gradients_of(&s);
                    gradients_expect_near(&want, &is, &s, 1e-5, tiny_family_name(tried[f]));
                    free(is.gradient);
                }
            free(want.gradient);
        }
}

// ---- dropout ----

// A step's masks are those of its tokens, however these fall to ranks, micro-batches and stages.
TEST(what_is_dropped_does_not_depend_on_the_grid) {
    static const struct {
        int ranks;
        size_t batch, nmicro, pp;
        int stage;
    } of[] = {{1, 1, 4, 0, 0}, {1, 2, 2, 0, 3}, {2, 2, 1, 0, 1}, {2, 1, 2, 0, 2},
              {4, 1, 1, 0, 3}, {2, 1, 4, 2, 1}, {4, 1, 2, 2, 0}};
    for (int i = 1; i < TINY_FAMILIES; i += 2)
        for (int p = 1; p < 3; p++) {
            struct RankSettings s = adapted(i, F32, &patterns[p]);
            s.batch = 4;
            struct Gradients want = gradients_of(&s);
            for (size_t k = 0; k < sizeof of / sizeof of[0]; k++) {
                if (of[k].pp && !s.model.untied)
                    continue;
                s.ranks = of[k].ranks;
                s.batch = of[k].batch;
                s.nmicro = of[k].nmicro;
                s.pp = of[k].pp;
                s.pp_split = of[k].pp ? "2,2" : NULL;
                s.stage = of[k].stage;
                struct Gradients is = gradients_of(&s);
                gradients_expect_near(&want, &is, &s, 1e-5, "dropout");
                free(is.gradient);
            }
            free(want.gradient);
        }
}

// A validation drops nothing; a share so small that it meets no element changes no bit (the
// products count twice, which rounds nothing); and what is left of the largest share is trained on.
TEST(dropout_is_for_training) {
    for (int i = 0; i < TINY_FAMILIES; i++) {
        struct Pattern p = patterns[0];
        struct RankSettings none = adapted(i, F32, &p), some = none, least = none, most = none;
        some.model.lora.dropout = 0.5;
        least.model.lora.dropout = 1e-12;
        most.model.lora.dropout = 0.99;
        struct Gradients want = gradients_of(&none), is = gradients_of(&some);
        assert_true(is.validation == want.validation);
        assert_true(fabs(is.loss - want.loss) > 1e-5 * want.loss);
        free(want.gradient);
        free(is.gradient);
        struct Outcome without = outcome_of(&none, STEPS, STEPS - 1);
        expect_as(&without, least, ", nothing dropped");
        struct Outcome hardly = outcome_of(&most, STEPS, STEPS - 1);
        assert_true(hardly.hash != without.hash);
        for (int k = 0; k < STEPS; k++)
            assert_true(isfinite(hardly.loss[k]) && hardly.norm[k] > 0);
    }
}

AROUND_ALL(disk_open, disk_close);
