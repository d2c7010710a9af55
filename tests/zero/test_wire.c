// Weights in 8 bits, and gradients in 4, on their way between ranks (zero/wire).
//
// They are other weights than without, and the same ones at stages 1, 2 and 3, for any number of
// ranks, wherever state lies, and where later gatherings are made of a second partition: whole runs
// are compared, bit for bit. All ranks compute with the weights that their shards' blocks say, the
// own one's too, while what is updated is not rounded. What is sent and what memory it takes is
// what a formula says, and the plan. Gradients are compared with sums that are made by hand from
// all ranks' values, in the same two hops.
#include "tests/lib/planned.h"
#include "tests/lib/test.h"
#include "zero/state.h"

enum { STEPS = 8 };

static struct RankSettings settings_of(enum Dtype dtype, int ranks) {
    struct RankSettings s = tiny_settings(dtype);
    s.threads = 1;
    s.ranks = ranks;
    s.stage = 3;
    s.nmicro = 1;
    s.grad_dtype = dtype;
    s.quantized_weights = true;
    s.loss_scale = (struct LossScaleSettings){0x1p20f, 1, 5, 2}; // fp16 skips steps
    return s;
}

static struct Outcome run(const struct RankSettings *s) {
    return outcome_of(s, STEPS, STEPS - 2);
}

static void expect_as(const struct Outcome *want, struct RankSettings s, const char *what) {
    struct Outcome other = run(&s);
    outcome_expect_same(want, &other, &s, what);
}

// ---- one result ----

TEST(stages_agree_bitwise) {
    for (enum Dtype d = F32; d < NDTYPE; d++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            struct RankSettings s = settings_of(d, ranks), plain = s;
            struct Outcome want = run(&s);
            plain.quantized_weights = false;
            struct Outcome without = run(&plain);
            assert_true(want.hash != without.hash);
            assert_true(fabs(want.loss[STEPS - 1] - without.loss[STEPS - 1]) < 0.02);
            for (s.stage = 1; s.stage <= 3; s.stage++) {
                s.prefetch = (size_t)(s.stage + ranks) % 3;
                s.recompute = (s.stage + ranks) % 2 ? RECOMPUTE_BLOCK : RECOMPUTE_NONE;
                expect_as(&want, s, "stages");
            }
        }
}

TEST(masters_agree_bitwise) {
    for (enum MasterFormat f = MASTER_SPLIT; f < NMASTER; f++) {
        struct RankSettings s = settings_of(BF16, 3);
        struct Outcome fp32 = run(&s);
        s.master_format = f;
        struct Outcome want = run(&s);
        assert_true((want.hash == fp32.hash) == (f == MASTER_SPLIT)); // as without a wire
        for (s.stage = 1; s.stage <= 3; s.stage++)
            expect_as(&want, s, master_name(f));
    }
}

TEST(tiers_agree_bitwise) {
    for (enum Dtype d = F32; d < NDTYPE; d++)
        for (int late = 0; late < 2; late++) {
            struct RankSettings s = settings_of(d, 2);
            s.opt_tier = TIER_CPU;
            s.delayed = late;
            struct Outcome want = run(&s);
            if (!late) {
                struct RankSettings here = settings_of(d, 2);
                expect_as(&want, here, "all on the device");
            }
            for (s.stage = 1; s.stage <= 3; s.stage++) {
                expect_as(&want, s, "the optimizer on the CPU");
                if (late)
                    continue;
                s.offload_ratio = 0.5;
                expect_as(&want, s, "half of it");
                s.offload_ratio = 0;
            }
            s.stage = 3;
            s.param_tier = s.act_tier = TIER_CPU;
            expect_as(&want, s, "all on the CPU");
            s.opt_tier = TIER_DEVICE;
            if (!late)
                expect_as(&want, s, "parameters on the CPU");
        }
}

TEST(partitions_agree_bitwise) {
    for (size_t nmicro = 1; nmicro <= 2; nmicro++) {
        struct RankSettings s = settings_of(BF16, 4);
        s.nmicro = nmicro;
        s.grad_dtype = F32;
        struct Outcome want = run(&s);
        for (s.hpz_size = 1; s.hpz_size <= 4; s.hpz_size *= 2)
            expect_as(&want, s, "a second partition");
        s.hpz_size = 0;
        s.stage = 2;
        expect_as(&want, s, "accumulation"); // 2 and 3 are a pair
    }
}

TEST(replicas_agree_bitwise) {
    struct RankSettings s = settings_of(F32, 4);
    s.shard_size = 2;
    struct Outcome want = run(&s);
    for (s.stage = 1; s.stage <= 3; s.stage++)
        expect_as(&want, s, "shards over two");
}

TEST(gradients_agree_bitwise) {
    for (enum Dtype d = F32; d < NDTYPE; d++)
        for (size_t node = 1; node <= 4; node *= 2) {
            struct RankSettings s = settings_of(d, 4), plain = s;
            s.quantized_gradients = true;
            s.node_size = node;
            struct Outcome want = run(&s), without = run(&plain);
            assert_true(want.hash != without.hash);
            assert_true(fabs(want.loss[STEPS - 1] - without.loss[STEPS - 1]) < 0.05);
            for (s.stage = 1; s.stage <= 3; s.stage++) {
                expect_as(&want, s, "gradients");
                s.opt_tier = TIER_CPU;
                expect_as(&want, s, "gradients that leave");
                s.opt_tier = TIER_DEVICE;
            }
            s.stage = 3;
            s.grad_dtype = F32;
            s.nmicro = 3;
            want = run(&s);
            s.stage = 2;
            expect_as(&want, s, "gradients of three micro-batches");
            if (node > 1)
                continue;
            s.node_size = 2;
            struct Outcome other = run(&s);
            assert_true(other.hash != want.hash); // sums of sums are rounded otherwise
        }
}

// ---- what ranks compute with ----

// The weights in use of group g, and what the blocks of `exact` say that they are.
static void expect_weights(struct Rank *r, int g, float *exact) {
    struct Zero *z = &r->zero;
    size_t n = z->params->group[g].padded, bytes = n * sizeof *exact;
    float *used = device_alloc_host(r->device, bytes);
    device_copy(r->device, QUEUE_OUT, used, z->state[g].param.mem, bytes);
    device_sync_queue(r->device, QUEUE_OUT);
    size_t off = 0;
    for (size_t begin = 0; begin < n; begin += QUANTIZE_BLOCK) {
        int32_t most = 0;
        for (size_t i = begin; i < begin + QUANTIZE_BLOCK; i++)
            most = quantize_magnitude(exact[i]) > most ? quantize_magnitude(exact[i]) : most;
        float scale = quantize_scale(most, 8);
        for (size_t i = begin; i < begin + QUANTIZE_BLOCK; i++) {
            float want = (float)quantize_one(exact[i], quantize_divisor(scale)) * scale;
            if (f32_bits(used[i]) != f32_bits(want))
                fail_msg("group %d, element %zu: %g is in use, not %g of %g", g, i, used[i], want,
                         exact[i]);
            off += want != exact[i];
        }
    }
    assert_true(off > n / 4); // it does round
    device_free_host(r->device, used);
}

// Rank 0 keeps all shards where the others put them.
struct Shards {
    float **group;
};

static void train_and_look(void *context, struct Rank *r) {
    struct Shards *all = context;
    struct Zero *z = &r->zero;
    for (int i = 0; i < 3; i++)
        tiny_step(r);
    zero_sync(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t n = zero_owned_numel(z, g), begin = zero_owned_begin(z, g);
        float *chunk = device_alloc_host(r->device, n * sizeof *chunk);
        zero_read_state(z, g, STATE_MASTER, 0, n, chunk);
        memcpy(all->group[g] + begin, chunk, n * sizeof *chunk);
        device_free_host(r->device, chunk);
    }
    zero_agree(z, 0); // all have
    for (int g = 0; g < z->params->ngroup && tiny_is_first(r); g++)
        expect_weights(r, g, all->group[g]);
    zero_agree(z, 0);
}

TEST(ranks_compute_with_what_came) {
    enum { MOST = 1 << 20, GROUPS = 8 };
    float *group[GROUPS];
    for (int g = 0; g < GROUPS; g++)
        group[g] = base_alloc_zeroed(MOST * sizeof *group[g]);
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int stage = 1; stage <= 2; stage++) {
            struct RankSettings s = settings_of(F32, ranks);
            s.stage = stage;
            tiny_ranks(&s, train_and_look, &(struct Shards){group});
        }
    for (int g = 0; g < GROUPS; g++)
        free(group[g]);
}

// ---- sums by hand ----

enum { NUMEL = 3 * QUANTIZE_BLOCK, MOST_RANKS = 6 };

static float gradient(int rank, size_t i) {
    return rng_normal(3, (uint64_t)rank * 100003 + i) * (float)(1 + i / QUANTIZE_BLOCK);
}

// x (NUMEL), as it comes from a message of 4 bits.
static void through_wire(float *x) {
    for (size_t begin = 0; begin < NUMEL; begin += QUANTIZE_BLOCK) {
        int32_t most = 0;
        for (size_t i = begin; i < begin + QUANTIZE_BLOCK; i++)
            most = quantize_magnitude(x[i]) > most ? quantize_magnitude(x[i]) : most;
        float scale = quantize_scale(most, 4);
        for (size_t i = begin; i < begin + QUANTIZE_BLOCK; i++)
            x[i] = (float)quantize_one(x[i], quantize_divisor(scale)) * scale;
    }
}

static void add(float *sum, const float *x, bool first) {
    for (size_t i = 0; i < NUMEL; i++)
        sum[i] = first ? x[i] : sum[i] + x[i];
}

// Rank `rank`'s shard of the sum of all ranks' gradients, by way of nodes of `near` ranks.
static void sum_by_hand(int ranks, int near, int rank, float *sum) {
    float node[NUMEL], x[NUMEL];
    for (int first = 0; first < ranks; first += near) {
        for (int r = first; r < first + near; r++) {
            for (size_t i = 0; i < NUMEL; i++)
                x[i] = gradient(r, (size_t)rank * NUMEL + i);
            through_wire(x);
            add(node, x, r == first);
        }
        if (near > 1 && near < ranks)
            through_wire(node);
        add(sum, node, first == 0);
    }
}

struct Sums {
    int near;
    bool right[MOST_RANKS];
};

// Also onto a shard of ones, which may round otherwise than a sum by hand that begins with 0.
static bool reduces_right(struct Zero *z, int near, int rank) {
    size_t n = NUMEL * (size_t)z->shard_group->size;
    float *whole = base_alloc(n * sizeof *whole), shard[NUMEL], want[NUMEL];
    bool right = true;
    sum_by_hand(z->shard_group->size, near, rank, want);
    for (size_t i = 0; i < n; i++)
        whole[i] = gradient(rank, i);
    for (int adds = 0; adds < 2; adds++) {
        for (size_t i = 0; i < NUMEL; i++)
            shard[i] = 1;
        struct HopArgs a = {.mem = {whole, shard}};
        z->backwards_done = (size_t)adds;
        chain_run(z, REDUCE, 0, false, &a);
        device_sync_queue(z->device, QUEUE_COMM);
        for (size_t i = 0; i < NUMEL; i++)
            right &= fabsf(shard[i] - want[i] - (float)adds) <= (adds ? 1e-4f : 0);
    }
    free(whole);
    return right;
}

static void reduce_and_look(void *context, int rank, struct ThreadGroup *group) {
    struct Sums *s = context;
    struct Wire w = {0};
    struct Device *d;
    struct Tier tier;
    struct Error e;
    CHECK(!device_open_cpu(&d, 1, NULL, &e), "%s", e.text);
    tier_init(&tier, TIER_DEVICE, d, SIZE_MAX);
    struct Comm *c = comm_open_thread(group, rank, d, 60);
    wire_join(&w, c, c->size, s->near, false);
    struct Group one = {.padded = NUMEL * (size_t)c->size};
    struct Params params = {.ngroup = 1, .group = &one};
    struct GroupState state = {.param_tier = &tier};
    struct Zero z = {.device = d, .shard_group = c, .params = &params, .state = &state};
    z.plan = (struct ZeroPlan){.grad = {c, &tier, F32}, .nmicro = 2};
    z.handed_over[1][QUEUE_COMPUTE] = device_open_event(d, "backward done");
    chain_add(&state.chain[REDUCE], &hop_reduce_scatter, NULL);
    CHECK(!wire_open(&w, &z, &tier, &e), "%s", e.text);
    s->right[rank] = reduces_right(&z, s->near, rank);
    c->ops->all_gather(c, &z, &z, 0); // the others may still read
    device_sync_queue(d, QUEUE_COMM);
    wire_close(&w);
    device_close_event(d, z.handed_over[1][QUEUE_COMPUTE]);
    c->ops->close(c);
    device_close(d);
}

TEST(sums_are_those_of_two_hops) {
    static const int cases[][2] = {{2, 1}, {2, 2}, {4, 2}, {6, 1}, {6, 2}, {6, 3}, {6, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct Sums s = {.near = cases[i][1]};
        struct World w = world_of_threads(cases[i][0]);
        world_run(&w, reduce_and_look, &s);
        for (int r = 0; r < cases[i][0]; r++)
            if (!s.right[r])
                fail_msg("%d ranks, nodes of %d: wrong on rank %d", cases[i][0], s.near, r);
    }
}

// ---- bytes ----

// B8 of a shard of n elements.
static uint64_t b8(uint64_t n) {
    return n + 4 * ((n + 255) / 256);
}

// What each rank sends in a step by all_gather but for the reports, and of it to other nodes.
static uint64_t gathered(const struct RankSettings *s, uint64_t *far) {
    uint64_t sum = 0, nodes = s->node_size ? (uint64_t)s->ranks - s->node_size : 0;
    uint64_t ranks = (uint64_t)s->ranks, near = s->hpz_size;
    struct Params p;
    params_layout(&s->model, ranks * 4, 0, 1, &p);
    *far = 0;
    for (int g = 0; g < p.ngroup; g++) {
        uint64_t n = p.group[g].padded / ranks, times = s->stage == 3 ? 2 * s->nmicro : 1;
        assert_true(n % 256 == 0);
        uint64_t all = near ? 1 : times; // of all ranks
        sum += all * (ranks - 1) * b8(n);
        *far += all * nodes * b8(n);
        if (near)
            sum += (times - 1) * (near - 1) * (ranks / near) * b8(n);
    }
    params_free(&p);
    return sum;
}

static uint64_t b4(uint64_t n) {
    return (n + 1) / 2 + 4 * ((n + 255) / 256);
}

static uint64_t reports(const struct RankSettings *s) {
    return (16 + 8 * (s->model.layers + 1) + 63) / 64 * 64;
}

TEST(bytes_are_the_formulas) {
    for (int i = 0; i < 24; i++) {
        struct RankSettings s = settings_of(i % 2 ? F32 : BF16, i % 3 ? 4 : 2);
        s.stage = 1 + i % 3;
        s.nmicro = 1 + (size_t)i % 2;
        s.grad_dtype = F32;
        s.node_size = s.ranks == 4 ? 2 : 0;
        s.hpz_size = s.stage == 3 && i % 4 ? 2 : 0;
        s.opt_tier = i % 5 == 4 ? TIER_CPU : TIER_DEVICE;
        uint64_t far, sum = gathered(&s, &far);
        struct Forecast f = planned_is_measured(&s, "a wire");
        struct RankSettings plain = s;
        plain.quantized_weights = false;
        struct Forecast without = planned(&plain);
        assert_int_equal(f.is.traffic.bytes[COMM_ALL_GATHER],
                         sum + (uint64_t)(s.ranks - 1) * reports(&s));
        assert_true(f.is.traffic.bytes[COMM_ALL_GATHER] <
                    without.is.traffic.bytes[COMM_ALL_GATHER] * (i % 2 ? 5 : 7) / 10);
        uint64_t gradients = f.is.traffic.bytes[COMM_REDUCE_SCATTER] / (uint64_t)(s.ranks - 1);
        uint64_t others = s.node_size ? (uint64_t)s.ranks - s.node_size : 0;
        assert_int_equal(f.is.traffic.inter_node, far + others * (gradients + reports(&s)));
    }
}

// Near m (H - 1) (N / H) B4, far m (N / H - 1) B4; m is 1 at stage 1.
TEST(gradients_are_the_formulas) {
    for (int i = 0; i < 24; i++) {
        struct RankSettings s = settings_of(i % 2 ? F32 : BF16, i % 4 == 3 ? 2 : 4);
        s.stage = 1 + i % 3;
        s.nmicro = 1 + (size_t)i % 2;
        s.grad_dtype = F32;
        s.quantized_gradients = true;
        s.quantized_weights = i % 5 == 0;
        s.node_size = i % 4 == 2 ? 1 : i % 4 == 1 ? 4 : 2;
        s.opt_tier = i % 5 == 4 ? TIER_CPU : TIER_DEVICE;
        struct Forecast f = planned_is_measured(&s, "hops");
        uint64_t ranks = (uint64_t)s.ranks, near = s.node_size, far = ranks / near, sum = 0;
        uint64_t times = s.stage == 1 ? 1 : s.nmicro, leaves = 0;
        struct Params p;
        params_layout(&s.model, ranks * 4, 0, 1, &p);
        for (int g = 0; g < p.ngroup; g++) {
            uint64_t bytes = b4(p.group[g].padded / ranks);
            sum += times * ((near - 1) * far + far - 1) * bytes;
            leaves += times * (far - 1) * bytes;
        }
        params_free(&p);
        assert_int_equal(f.is.traffic.bytes[COMM_ALL_TO_ALL], sum);
        assert_int_equal(f.is.traffic.bytes[COMM_REDUCE_SCATTER], 0);
        leaves += f.is.traffic.bytes[COMM_ALL_GATHER] / (ranks - 1) * (ranks - near);
        assert_int_equal(f.is.traffic.inter_node, leaves);
    }
}

// The messages; and at stages 1 and 2 a shard of weights.
TEST(memory_is_the_formulas) {
    for (int stage = 1; stage <= 3; stage++) {
        struct RankSettings s = settings_of(BF16, 4), plain = s;
        s.stage = plain.stage = stage;
        plain.quantized_weights = false;
        struct Forecast with = planned(&s), without = planned(&plain);
        struct Params p;
        params_layout(&s.model, 16, 0, 1, &p);
        size_t most = params_largest_group(&p), shards = 0;
        for (int g = 0; g < p.ngroup; g++)
            shards += p.group[g].padded / 4 * 2;
        size_t slots = without.is.tier[TIER_DEVICE].most[TAG_COMM];
        assert_true(with.is.tier[TIER_DEVICE].most[TAG_COMM] >= slots + b8(most));
        size_t whole = stage == 3 ? 0 : p.padded * 2;
        assert_int_equal(with.is.tier[TIER_DEVICE].most[TAG_PARAM], whole + shards);
        params_free(&p);
    }
}
