// The base of adapters in fewer bits (--base-dtype): what is kept is what the kernels make of each
// run of initial values, whatever the stage, the tier and the ranks; norms and biases stay as they
// are; one hash; the plan is what happens, and what is kept is what a formula says.
#include "tests/lib/planned.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "zero/state.h"

#include <math.h>

enum { STEPS = 3, RANK = 4 };

// A block of some runs, of which the last one or two have norms and biases; the ranks' shards end
// before the group does.
static struct RankSettings based(int family, enum Dtype dtype, enum BaseFormat base) {
    struct RankSettings s = tiny_family(family, dtype);
    struct Error e;
    s.threads = 1;
    s.nmicro = 1;
    s.grad_dtype = dtype;
    s.model.channels = 96;
    s.model.heads = 6;
    s.model.kv_heads = s.model.kind == FAMILY_GPT2 ? 6 : 3;
    s.model.head_size = 16;
    s.model.ffn = 272;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    s.model.lora = (struct Lora){.rank = RANK, .alpha = 2 * RANK, .base = base};
    s.model.lora.targets = lora_targets_all(s.model.kind == FAMILY_GPT2);
    return s;
}

static const char *format_name(enum BaseFormat f) {
    return f == BASE_NF4 ? "nf4" : f == BASE_INT8 ? "int8" : "none";
}

// ---- what is kept ----

// The values of a run as its format has them; values: fp32, replaced.
static void pack_and_unpack(struct Rank *r, enum BaseFormat base, float *values) {
    struct Stream *queue = r->device->queue[QUEUE_COMPUTE];
    char *packed = base_alloc(BASE_RUN * sizeof(float));
    if (base == BASE_NF4) {
        r->device->kernels->nf4_quantize(queue,
                                         &(struct Nf4Quantize){BASE_RUN, F32, values, packed});
        r->device->kernels->nf4_dequantize(queue,
                                           &(struct Nf4Dequantize){BASE_RUN, F32, packed, values});
    } else {
        r->device->kernels->quantize(queue,
                                     &(struct Quantize){BASE_RUN, 1, 1, 8, F32, values, packed});
        r->device->kernels->dequantize(
            queue, &(struct Dequantize){BASE_RUN, 1, 1, 8, F32, packed, values, false});
    }
    device_sync_queue(r->device, QUEUE_COMPUTE);
    free(packed);
}

// Reads this rank's part in ranges that begin and end anywhere.
static void read_all(struct Zero *z, int g, float *out) {
    size_t n = zero_owned_numel(z, g), step = 7001;
    for (size_t some, i = 0; i < n; i += some, step += 1000) {
        some = size_min(step, n - i);
        zero_read_state(z, g, STATE_MASTER, i, some, out + i);
    }
}

static void check_group(struct Rank *r, int g) {
    struct Zero *z = &r->zero;
    const struct Group *group = &r->params.group[g];
    enum Dtype dtype = z->plan.param.dtype;
    enum BaseFormat base = r->params.config.lora.base;
    size_t begin = zero_owned_begin(z, g), n = zero_owned_numel(z, g);
    float *is = base_alloc(n * sizeof *is), *want = base_alloc(BASE_RUN * sizeof *want);
    read_all(z, g, is);
    for (size_t at = begin; at < begin + n; at += BASE_RUN) {
        bool raw = at + BASE_RUN > group->decay_end && at < group->numel;
        params_init(&r->params, g, at, at + BASE_RUN, z->seed, r->device, want);
        device_sync_queue(r->device, QUEUE_COMPUTE);
        if (!raw)
            pack_and_unpack(r, base, want);
        for (size_t i = 0; i < BASE_RUN; i++) {
            float rounded;
            dtype_store(&rounded, dtype, 0, want[i]);
            if (raw)
                want[i] = dtype_load(&rounded, dtype, 0);
            if (f32_bits(is[at - begin + i]) != f32_bits(want[i]))
                fail_msg("%s, %s: element %zu is %.9g, not %.9g", group->name, format_name(base),
                         at + i, (double)is[at - begin + i], (double)want[i]);
        }
    }
    free(is);
    free(want);
}

static void check_base(void *context, struct Rank *r) {
    (void)context;
    for (int g = 0; g < r->params.ngroup; g++)
        if (r->params.group[g].kind == GROUP_BLOCK)
            check_group(r, g);
}

TEST(runs_are_what_the_kernels_make) {
    for (int i = 0; i < TINY_FAMILIES; i += 3)
        for (int stage = 0; stage < 4; stage++)
            for (enum BaseFormat f = BASE_INT8; f < NBASE; f++) {
                struct RankSettings s = based(i, stage % 2 ? BF16 : F32, f);
                s.stage = stage;
                s.ranks = 1 + (i + stage) % 3;
                s.param_tier = stage == 2 ? TIER_CPU : TIER_DEVICE;
                tiny_ranks(&s, check_base, NULL);
            }
}

// ---- one hash ----

static void expect_as(const struct Outcome *want, struct RankSettings s, const char *what) {
    struct Outcome is = outcome_of(&s, STEPS, STEPS - 1);
    outcome_expect_same(want, &is, &s, what);
}

TEST(one_hash) {
    for (int i = 0; i < TINY_FAMILIES; i += 2)
        for (enum BaseFormat f = BASE_INT8; f < NBASE; f++) {
            struct RankSettings s = based(i, (i + f) % 2 ? BF16 : F32, f), plain = s;
            plain.model.lora.base = BASE_PLAIN;
            s.ranks = plain.ranks = 2;
            struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
            struct Outcome other = outcome_of(&plain, STEPS, STEPS - 1);
            assert_true(want.hash != other.hash && isfinite(want.loss[STEPS - 1]));
            assert_true(fabs(want.loss[0] - other.loss[0]) < 0.05 * other.loss[0]);
            for (s.stage = 0; s.stage < 4; s.stage++)
                expect_as(&want, s, format_name(f));
            s.stage = 3;
            s.recompute = RECOMPUTE_BLOCK;
            s.prefetch = 0;
            expect_as(&want, s, ", none ahead");
            s.prefetch = 1;
            s.param_tier = s.opt_tier = TIER_CPU;
            expect_as(&want, s, ", offloaded");
            s.stage = 1;
            expect_as(&want, s, ", offloaded, whole");
            s.nvme.folder = disk_folder;
            s.param_tier = s.opt_tier = TIER_NVME;
            if (tiny_has_disk())
                expect_as(&want, s, ", on the disk");
            s.stage = 3;
            if (tiny_has_disk())
                expect_as(&want, s, ", in shards on the disk");
        }
}

TEST(one_hash_of_grids) {
    for (enum BaseFormat f = BASE_INT8; f < NBASE; f++) {
        struct RankSettings s = based(3, F32, f);
        s.model.layers = 4;
        s.nmicro = 2;
        s.ranks = 4;
        s.stage = 2;
        struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
        s.stage = 3;
        s.hpz_size = 2;
        expect_as(&want, s, ", with a second partition");
        s.hpz_size = 0;
        s.shard_size = 2;
        s.stage = 1;
        want = outcome_of(&s, STEPS, STEPS - 1);
        s.stage = 0;
        s.shard_size = 0;
        s.ranks = 4;
        s.pp = 2;
        s.pp_split = "1,3";
        s.nmicro = 4;
        struct Outcome pipeline = outcome_of(&s, STEPS, STEPS - 1);
        s.stage = 1;
        expect_as(&pipeline, s, ", in a pipeline");
        assert_true(isfinite(want.loss[0]));
    }
}

// ---- what is kept, in bytes ----

// Of n elements of a block: runs of 16384, as they are from the first on that has a norm or a bias.
static uint64_t kept_bytes(const struct Group *g, size_t n, enum BaseFormat f, uint64_t size) {
    uint64_t run = f == BASE_NF4 ? 8192 + 256 + 8 : 16384 + 4 * 64,
             all = (g->numel + 16383) / 16384;
    uint64_t raw = g->numel > g->decay_end ? all - g->decay_end / 16384 : 0, runs = n / 16384;
    return runs * run + (raw < runs ? raw : runs) * 16384 * size;
}

TEST(plan_is_what_happens) {
    for (int i = 0; i < TINY_FAMILIES; i++)
        for (int stage = 0; stage < 4; stage++) {
            enum BaseFormat f = (i + stage) % 2 ? BASE_NF4 : BASE_INT8;
            struct RankSettings s = based(i, i % 2 ? BF16 : F32, f);
            s.ranks = 1 + (i + stage) % 3;
            s.stage = stage;
            s.recompute = (enum Recompute)((i + stage) % NRECOMPUTE);
            struct Forecast plan = planned_is_measured(&s, format_name(f));
            struct Params p;
            uint64_t want = 0, size = dtype_size(s.model.dtype);
            size_t parts = stage == 3 ? (size_t)s.ranks : 1;
            params_layout(&s.model, (size_t)s.ranks, 0, 1, &p);
            for (int g = 0; g < p.ngroup; g++) {
                size_t n = p.group[g].padded / parts;
                bool block = p.group[g].kind == GROUP_BLOCK;
                // in whole cache lines
                want += block ? round_up(kept_bytes(&p.group[g], n, f, size), 64) : n * size;
                if (block)
                    assert_int_equal(p.group[g].padded % ((size_t)s.ranks * 16384), 0);
            }
            params_free(&p);
            assert_int_equal(plan.is.tier[TIER_DEVICE].most[TAG_PARAM], want);
        }
}

TEST(plan_of_tiers_is_what_happens) {
    for (int stage = 0; stage < 4; stage++)
        for (enum BaseFormat f = BASE_INT8; f < NBASE; f++) {
            struct RankSettings s = based(1 + stage, BF16, f);
            s.ranks = 2;
            s.stage = stage;
            s.param_tier = s.opt_tier = TIER_CPU;
            planned_is_measured(&s, format_name(f));
            s.nvme.folder = disk_folder;
            s.param_tier = TIER_NVME;
            if (tiny_has_disk())
                planned_is_measured(&s, format_name(f));
        }
}

AROUND_ALL(disk_open, disk_close);
