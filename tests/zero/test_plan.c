// The plan is what happens: for every stage, format and number of ranks, what was predicted of a
// tiny model equals what its ranks took and sent, to the byte; and both follow the ZeRO paper's
// formulas. Sizes past 2^31 and 2^32 are counted right.
#include "tests/lib/planned.h"
#include "tests/lib/test.h"

enum { MAX_RANKS = 4 };

static struct RankSettings settings_of(enum Dtype dtype, int ranks, int stage, size_t nmicro) {
    struct RankSettings s = tiny_settings(dtype);
    s.ranks = ranks;
    s.stage = stage;
    s.nmicro = nmicro;
    s.grad_dtype = nmicro > 1 ? F32 : dtype;
    s.threads = 1;
    s.timeout_s = 60;
    return s;
}

// ---- the formulas, from the paper and not from the program ----

// Bytes that a rank sends in a step, with `report` bytes of a rank's report.
static struct Traffic traffic_of(const struct RankSettings *s, uint64_t padded, uint64_t report) {
    uint64_t others = (uint64_t)s->ranks - 1;
    uint64_t size = s->shard_size ? s->shard_size : (uint64_t)s->ranks;
    uint64_t shard = padded / size, shards = shard * (size - 1), replicas = s->ranks / size;
    uint64_t p = dtype_size(s->model.dtype), g = dtype_size(s->grad_dtype), micro = s->nmicro;
    struct Traffic t = {{0}, 0};
    t.bytes[COMM_ALL_REDUCE] = s->stage == 0 ? 2 * shards * g : 0;
    t.bytes[COMM_ALL_REDUCE] += 2 * shard / replicas * (replicas - 1) * g; // once a step
    t.bytes[COMM_REDUCE_SCATTER] = s->stage == 0 ? 0 : shards * g * (s->stage >= 2 ? micro : 1);
    t.bytes[COMM_ALL_GATHER] = s->stage == 0   ? 0
                               : s->stage == 3 ? 2 * shards * p * micro
                                               : shards * p;
    t.bytes[COMM_ALL_GATHER] += others * report;
    return t;
}

static uint64_t report_bytes(const struct RankSettings *s) {
    uint64_t bytes = 16 + 8 * (s->model.layers + 1); // loss, word, a norm of each group
    return (bytes + 63) / 64 * 64;
}

static void compare_run(const struct RankSettings *s) {
    struct Forecast f = planned_is_measured(s, "the tiny model");
    struct Traffic want = traffic_of(s, f.padded, report_bytes(s));
    for (int r = 0; r < s->ranks; r++) {
        struct Error e = {0};
        size_t sum = 0;
        assert_int_equal(footprint_of_rank(s, r, s->ranks, &f, &e), 0);
        for (int tag = 0; tag < NTAG; tag++)
            sum += f.is.tier[TIER_DEVICE].most[tag];
        assert_int_equal(sum, f.is.tier[TIER_DEVICE].peak); // all is held to the end
        for (int c = 0; c < NCOLLECTIVE; c++)
            if (f.is.traffic.bytes[c] != want.bytes[c])
                fail_msg("%s on rank %d, %s: %llu bytes, by formula %llu",
                         collective_name((enum Collective)c), r, settings_text(s),
                         (unsigned long long)f.is.traffic.bytes[c],
                         (unsigned long long)want.bytes[c]);
    }
}

static void check(enum Dtype dtype, int ranks, int stage, size_t nmicro, enum Recompute recompute) {
    struct RankSettings s = settings_of(dtype, ranks, stage, nmicro);
    s.recompute = recompute;
    compare_run(&s);
}

// ---- tests ----

TEST(plan_equals_measurement) {
    for (int stage = 0; stage <= 3; stage++)
        for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
            check(BF16, ranks, stage, 1, RECOMPUTE_NONE);
            check(F16, ranks, stage, 1, RECOMPUTE_NONE);
            check(F32, ranks, stage, 1, RECOMPUTE_BLOCK);
        }
}

TEST(plan_equals_measurement_with_accumulation) {
    for (int stage = 0; stage <= 3; stage++) {
        check(BF16, 3, stage, 2, RECOMPUTE_NONE);
        check(F32, 2, stage, 3, RECOMPUTE_GELU);
    }
}

TEST(replicas_sum_a_shard_once_a_step) {
    for (int stage = 1; stage <= 3; stage++) {
        struct RankSettings s = settings_of(BF16, 4, stage, 3);
        s.shard_size = 2;
        compare_run(&s);
    }
}

static struct RankSettings gpt2(int ranks, int stage) {
    struct RankSettings s = settings_of(BF16, ranks, stage, 1);
    struct Error e;
    s.model = (struct ModelConfig){12, 12, 768, 1024, 50257, .dtype = BF16};
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    return s;
}

// At most 3% over the ZeRO paper, section 5: what padding and rounding cost.
TEST(model_states_follow_the_paper) {
    static const int ranks[] = {1, 2, 3, 4, 7, 8, 64};
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        for (int stage = 0; stage <= 3; stage++) {
            struct RankSettings s = gpt2(ranks[i], stage);
            struct Forecast f = planned(&s);
            double psi = (double)f.parameters, n = ranks[i];
            double want[] = {16 * psi, 4 * psi + 12 * psi / n, 2 * psi + 14 * psi / n,
                             16 * psi / n};
            double is = (double)footprint_model_states(&f.is);
            if (is < want[stage] || is > 1.03 * want[stage])
                fail_msg("stage %d on %d ranks: %.0f bytes, by the paper %.0f", stage, ranks[i], is,
                         want[stage]);
        }
}

TEST(parameter_counts_follow_the_paper) {
    static const uint64_t psi[] = {1, 7, 7500000000, 1000000000000};
    for (int i = 0; i < 4; i++)
        for (uint64_t n = 1; n <= 1024; n *= 2)
            for (int stage = 0; stage <= 3; stage++) {
                uint64_t want[] = {16 * n, 4 * n + 12, 2 * n + 14, 16}; // times psi over n
                struct ModelStates s;
                struct Error e;
                struct ZeroOptions o = {.stage = stage, .dtype = BF16, .grad_dtype = BF16};
                struct OffloadOptions off = {.ratio = 1};
                assert_int_equal(footprint_of_parameters(psi[i], &o, &off, (int)n, &s, &e), 0);
                assert_true(s.param + s.grad + s.optimizer == psi[i] * want[stage]);
                assert_true(s.ranks == n);
            }
}

static double flops_of(const struct RankSettings *s) {
    struct Rank r;
    struct Error e;
    assert_int_equal(rank_open(&r, s, true, &e), 0);
    double flops = rank_flops_per_token(&r);
    rank_close(&r);
    return flops;
}

// MFU's numerator, by hand. GPT-2: 6 * 124,439,808 of the weights, and 6 * 12 * 768 * 1024 of
// attention, which is half of PaLM's 12 L H Q T for the causal mask. Recomputation, stage, ranks
// and a padded vocabulary add nothing.
TEST(a_token_takes_what_palm_counts) {
    struct RankSettings s = gpt2(1, 0);
    struct Error e;
    assert_true(flops_of(&s) == 746638848.0 + 56623104.0);
    s.recompute = RECOMPUTE_BLOCK;
    s.stage = 3;
    s.ranks = 7;
    assert_true(flops_of(&s) == 803261952.0);
    // 2 layers of 4 heads of 8, 2 of keys and values, width 32, MLP 48, window 10 of 100 tokens, an
    // untied head of 61 rows: the embedding's rows are only looked up. A block: norms 2 * 32,
    // products 64 * 32 + 32 * 32 + 3 * 32 * 48 = 7680; a query sees 2 * 10 - 10^2 / 100 = 19 half
    // keys.
    s = settings_of(F32, 1, 0, 1);
    s.model = (struct ModelConfig){.layers = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .channels = 32,
                                   .head_size = 8,
                                   .ffn = 48,
                                   .seq_len = 100,
                                   .vocab = 61,
                                   .kind = FAMILY_LLAMA,
                                   .window = 10,
                                   .untied = true};
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    assert_true(flops_of(&s) == 6.0 * (2 * (64 + 7680) + 32 + 61 * 32) + 6.0 * 2 * 32 * 19);
}

// A block of 12 C^2 + 13 C elements: more than 2^31 in one group for C = 16384, 2^32 for 20480.
TEST(fault_22) {
    static const size_t channels[] = {16384, 20480};
    for (int i = 0; i < 2; i++) {
        struct RankSettings s = gpt2(1, 0);
        struct Error e;
        uint64_t C = channels[i], block = 12 * C * C + 13 * C, L = 3;
        uint64_t ends = (50304 + 1024 + 2) * C;
        assert_true(block > (i ? (uint64_t)UINT32_MAX : (uint64_t)INT32_MAX));
        s.model = (struct ModelConfig){L, C / 128, C, 1024, 50257, .dtype = BF16};
        assert_int_equal(model_config_finish(&s.model, &e), 0);
        s.ranks = 2;
        struct Forecast f = planned(&s);
        assert_true(f.padded == ends + L * block); // multiples of 128 as they are
        assert_true(f.is.tier[TIER_DEVICE].most[TAG_PARAM] == 2 * f.padded);
        assert_true(f.is.tier[TIER_DEVICE].most[TAG_GRAD] == 2 * f.padded);
        assert_true(f.is.tier[TIER_DEVICE].most[TAG_OPTIMIZER] == 12 * f.padded);
        assert_true(f.is.traffic.bytes[COMM_ALL_REDUCE] == 2 * f.padded);
        s.stage = 3;
        f = planned(&s);
        assert_true(f.is.tier[TIER_DEVICE].most[TAG_PARAM] == f.padded);
        // two slots of gathered blocks, two buckets, and the ends' slot and bucket
        assert_true(f.is.tier[TIER_DEVICE].most[TAG_COMM] == 2 * 2 * (2 * block + ends));
    }
}
