// --master-dtype: how AdamW's master weights are kept, in whole runs.
//
// Split masters are the same numbers as fp32 masters, so every run with them must have every bit of
// one with fp32 masters; those in bf16 are rounded with random numbers that depend on the element
// and the update alone, so every run with them has the bits of the plain one: whatever the stage,
// the ranks, the tiers, the share that is offloaded, or how late updates come. And each takes the
// bytes that it should.
//
// Read next: test_offload_resume.c, where they are saved and resumed.
#include "tests/lib/outcome.h"
#include "tests/lib/test.h"

enum { STEPS = 12 };

static struct RankSettings settings_of(enum MasterFormat master, enum Dtype moments, int ranks) {
    struct RankSettings s = tiny_settings(BF16);
    s.grad_dtype = BF16;
    s.nmicro = 1;
    s.threads = 1;
    s.ranks = ranks;
    s.master_format = master;
    s.moments_dtype = moments;
    s.nvme.folder = disk_folder;
    s.offload_ratio = 1;
    return s;
}

static void expect(const struct Outcome *want, const struct RankSettings *s) {
    struct Outcome got = outcome_of(s, STEPS, STEPS - 1);
    outcome_expect_same(want, &got, s, master_name(s->master_format));
}

// Every stage, with every kind of state in every tier; some of it with a part of the optimizer's
// state on the device.
static void expect_everywhere(const struct Outcome *want, struct RankSettings s) {
    for (s.stage = 0; s.stage < 4; s.stage++)
        for (s.opt_tier = 0; s.opt_tier < NTIER; s.opt_tier++)
            for (s.param_tier = 0; s.param_tier < NTIER; s.param_tier++) {
                bool part = s.opt_tier && (s.stage + (int)s.param_tier) % 3 == 0;
                s.offload_ratio = part ? 0.5 : 1;
                s.prefetch = (size_t)(s.stage + (int)s.opt_tier) % 3;
                expect(want, &s);
            }
}

TEST(one_result_in_all_stages_and_tiers) {
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        enum Dtype moments = ranks == 1 ? BF16 : F32;
        struct RankSettings fp32 = settings_of(MASTER_FP32, moments, ranks);
        struct RankSettings bf16 = settings_of(MASTER_BF16, moments, ranks);
        struct Outcome exact = outcome_of(&fp32, STEPS, STEPS - 1);
        struct Outcome rounded = outcome_of(&bf16, STEPS, STEPS - 1);
        assert_false(outcome_is_same(&exact, &rounded));
        expect_everywhere(&exact, settings_of(MASTER_SPLIT, moments, ranks));
        expect_everywhere(&rounded, bf16);
    }
}

// Weights that are in use are another update's than the newest.
TEST(late_updates_have_one_result) {
    for (enum MasterFormat f = MASTER_SPLIT; f < NMASTER; f++) {
        struct RankSettings plain = settings_of(f == MASTER_SPLIT ? MASTER_FP32 : f, F32, 2), s;
        plain.delayed = true;
        plain.delay_after = 2;
        plain.opt_tier = TIER_CPU;
        struct Outcome want = outcome_of(&plain, STEPS, STEPS - 1);
        s = plain;
        s.master_format = f;
        for (s.stage = 0; s.stage < 4; s.stage++)
            for (s.opt_tier = TIER_CPU; s.opt_tier < NTIER; s.opt_tier++)
                for (s.param_tier = 0; s.param_tier < NTIER; s.param_tier++)
                    expect(&want, &s);
    }
}

// Micro-batches, wide gradients, several threads, every table of kernels that has AdamW's bits.
TEST(other_settings_change_nothing) {
    for (enum MasterFormat f = MASTER_SPLIT; f < NMASTER; f++) {
        struct RankSettings s = settings_of(f == MASTER_SPLIT ? MASTER_FP32 : f, F32, 1);
        s.nmicro = 3;
        s.grad_dtype = F32;
        struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
        s.master_format = f;
        expect(&want, &s);
        s.opt_tier = TIER_CPU;
        expect(&want, &s);
        s.recompute = RECOMPUTE_BLOCK;
        expect(&want, &s);
    }
}

// ---- bytes ----

struct Bytes {
    size_t padded, device, host;
};

// Of the model's states: parameters, gradients and optimizer state, at the most.
static void count_bytes(void *context, struct Rank *r) {
    struct Bytes *b = context;
    tiny_step(r);
    for (int tag = 0; tag < NTAG; tag++) {
        bool states = tag == TAG_PARAM || tag == TAG_GRAD || tag == TAG_OPTIMIZER;
        b->device += states ? r->tier[TIER_DEVICE].most[tag] : 0;
        b->host += states ? r->tier[TIER_CPU].most[tag] : 0;
    }
    b->padded = r->params.padded;
}

// Bytes a parameter, of one rank. A block is rounded up to whole lines of a cache.
static void expect_bytes(struct RankSettings s, enum TierKind opt, enum TierKind param,
                         size_t device, size_t host) {
    struct Bytes b = {0};
    s.opt_tier = opt;
    s.param_tier = param;
    tiny_ranks(&s, count_bytes, &b);
    if (b.device / b.padded != device || b.host / b.padded != host)
        fail_msg("master %s, optimizer on %s, parameters on %s: %zu and %zu bytes of %zu "
                 "parameters, should be %zu and %zu each",
                 master_name(s.master_format), tier_name(opt), tier_name(param), b.device, b.host,
                 b.padded, device, host);
}

TEST(each_takes_its_bytes) {
    static const size_t bytes[NMASTER] = {4, 2, 0};
    for (enum MasterFormat f = 0; f < NMASTER; f++) {
        struct RankSettings s = settings_of(f, BF16, 1);
        expect_bytes(s, TIER_DEVICE, TIER_DEVICE, 8 + bytes[f], 0);
        // New weights wait in host memory, and are the halves of split masters, or those in bf16.
        expect_bytes(s, TIER_CPU, TIER_DEVICE, 2, 8 + bytes[f]);
        expect_bytes(s, TIER_CPU, TIER_CPU, 0, 8 + bytes[f]);
        // What the device updates without weights at hand is whole.
        expect_bytes(s, TIER_DEVICE, TIER_CPU, f == MASTER_BF16 ? 8 : 10, 2);
    }
}

AROUND_ALL(disk_open, disk_close);
