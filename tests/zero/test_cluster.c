// A step on a cluster that is not here (zero/plan/cluster.h): small cases by hand, and what must be
// so on every grid, of which many are drawn. The command and its files are test_cluster.sh's.
#include "tests/zero/test_cluster_grid.h"

#include "data/json.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <stdlib.h>

// ---- collectives ----

// Nodes of 4 GPUs; 100 B/s inside, 50 B/s between them, latencies of 0.01 s and 1 s.
static const struct Cluster plain = {
    .nodes = 64, .node_gpus = 4, .near = {100, 0.01}, .far = {50, 1}};

TEST(collectives_by_hand) {
    const struct {
        struct ClusterGroup group; // ranks of the job, of the group, apart
        enum Collective kind;
        bool direct;
        double seconds; // of 10 bytes to each other rank
    } cases[] = {
        {{4, 1, 1}, COMM_ALL_GATHER, false, 0},
        {{4, 4, 1}, COMM_ALL_GATHER, false, 0.3 + 0.03},
        {{4, 4, 1}, COMM_ALL_REDUCE, false, 0.6 + 0.06},
        {{4, 4, 1}, COMM_REDUCE_SCATTER, true, 0.3 + 0.01},
        {{4, 4, 1}, COMM_ALL_REDUCE, true, 0.6 + 0.03 + 0.01},
        // Two nodes, one ring: 7 shards of 10 bytes leave each of them.
        {{8, 8, 1}, COMM_ALL_GATHER, false, 70 / 50.0 + 6 * 0.01 + 1},
        // Each of a node's four ranks sends to four far ones.
        {{8, 8, 1}, COMM_REDUCE_SCATTER, true, 4 * 40 / 50.0 + 1},
        // Four groups of two, one of each on every node: four rings leave it.
        {{8, 2, 4}, COMM_ALL_GATHER, false, 40 / 50.0 + 1},
        // Two on each of four nodes, so two rings of 7 shards.
        {{16, 8, 2}, COMM_ALL_GATHER, false, 140 / 50.0 + 4 * 0.01 + 3},
        {{2, 2, 1}, COMM_ALL_GATHER, false, 0.1 + 0.01}, // a part of a node
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double seconds =
            cluster_seconds(&plain, &cases[i].group, cases[i].kind, 10, cases[i].direct);
        if (!near_to(seconds, cases[i].seconds) && fabs(seconds - cases[i].seconds) > 1e-12)
            fail_msg("case %zu: %g s, not %g", i, seconds, cases[i].seconds);
    }
}

TEST(attention_by_hand) {
    struct Cluster c = {.matmul = 100, .memory = 10, .attention_forward = 7};
    c.attention_backward = 5;
    struct KernelRates r = cluster_rates(&c, 64);
    assert_true(near_to(r.of[KERNEL_attention_forward], 7));
    assert_true(near_to(r.of[KERNEL_attention_backward], 5));
    assert_true(near_to(r.of[KERNEL_matmul], 100) && near_to(r.of[KERNEL_adamw], 10));
    // A score: 2 x 64 and 5 x 64 FLOP are counted; 4 x 64 and 8 x 64 made, 13 and 19 bytes moved.
    c.scores_kept = true;
    r = cluster_rates(&c, 64);
    assert_true(near_to(r.of[KERNEL_attention_forward], 128 / (2.56 + 1.3)));
    assert_true(near_to(r.of[KERNEL_attention_backward], 320 / (5.12 + 1.9)));
}

// ---- whole steps ----

// 1F1B of equal stages: p - 1 of m + p - 1 turns are waited for.
TEST(bubble_is_that_of_the_schedule) {
    struct Cluster c = usual();
    for (size_t p = 1; p <= 8; p *= 2)
        for (size_t m = 1; m <= 64; m *= 8) {
            struct RankSettings s = small(64); // beside which the ends are little
            s.ranks = (int)p;
            s.pp = p;
            s.nmicro = m;
            struct ClusterForecast f = forecast(&c, &s);
            double busy = f.kernels + f.sums + f.handed;
            double share = f.bubble / (busy + f.bubble);
            double want = (double)(p - 1) / (double)(m + p - 1);
            if (fabs(share - want) > 0.02)
                fail_msg("p %zu, m %zu: a bubble of %.3f, not %.3f", p, m, share, want);
        }
}

// The slowest stage tells how long each micro-batch takes; the others how long the first is on its
// way: 5 layers in two stages are 3 and 2.
TEST(stages_that_are_not_equal) {
    struct Cluster c = usual();
    struct RankSettings s = small(5), three = small(3), two = small(2), four = small(4);
    c.call = 0;
    s.ranks = 2;
    s.pp = 2;
    s.nmicro = 4;
    double t3 = forecast(&c, &three).kernels, t2 = forecast(&c, &two).kernels;
    double block = (forecast(&c, &four).kernels - t2) / 2;
    struct ClusterForecast f = forecast(&c, &s);
    // s adds up micro-batches, which moves more bytes: compare the two stages, not absolute times.
    double slow = f.kernels / 4, hand = f.handed / 4;
    assert_true(f.bubble > 2 * block && f.bubble < slow + hand + 2 * block);
    assert_true(t3 > t2 && near_to(t3 - t2, block));
    double bytes = 2 * 32 * 64 * 2; // one tensor of a micro-batch, handed on and back
    assert_true(near_to(hand, 2 * (bytes / c.near.rate + c.near.latency)));
    s.ranks = 16; // now a stage is a node, all of whose ranks hand on at once
    hand = forecast(&c, &s).handed / 4;
    assert_true(near_to(hand, 2 * (8 * bytes / c.far.rate + c.far.latency)));
}

// Of the same stage, with one micro-batch under way.
static struct ClusterForecast once(const struct Cluster *c, const struct RankSettings *s) {
    struct RankSettings one = *s;
    one.nmicro = 1;
    return forecast(c, &one);
}

// A rank's memory is that of every plan; of a pipeline's first stage, with as many micro-batches
// under way as there are stages.
TEST(memory_is_the_plans) {
    struct Cluster c = usual();
    struct RankSettings s = small(8), half = small(4);
    struct Error e;
    struct Forecast plan;
    half.ranks = 4;
    half.stage = 1;
    half.grad_dtype = F32;
    half.nmicro = 16;
    assert_int_equal(footprint_predict(&half, 0, 1, &plan, &e), 0);
    size_t staged = half.comm_chunk ? half.comm_chunk : 0; // processes have a buffer between them
    s.ranks = 8;
    s.pp = 2;
    s.stage = 1;
    s.nmicro = 1;
    s.grad_auto = false;
    s.grad_dtype = F32;
    struct ClusterForecast one = forecast(&c, &s);
    s.nmicro = 16;
    struct ClusterForecast many = forecast(&c, &s);
    assert_int_equal(one.device, one.rank.is.tier[TIER_DEVICE].peak);
    size_t kept = many.device - one.device, tokens = 2 * 2 * 32 * sizeof(int32_t);
    assert_true(one.device - staged <= plan.is.tier[TIER_DEVICE].peak + 4096);
    assert_true(kept > tokens && kept < one.rank.is.tier[TIER_DEVICE].most[TAG_ACTIVATION]);
    s.recompute = RECOMPUTE_BLOCK; // keeps a block's input alone
    kept = forecast(&c, &s).device - once(&c, &s).device;
    assert_int_equal(kept, tokens + 4 * (2 * 32 * 64 * 2)); // of four layers
    s.pp = 4;
    kept = forecast(&c, &s).device - once(&c, &s).device;
    assert_int_equal(kept, 3 * (tokens + 2 * (2 * 32 * 64 * 2))); // three more, of two layers
    s.act_tier = TIER_CPU; // then none of them stays, where else the two of one did
    kept = forecast(&c, &s).device - once(&c, &s).device;
    assert_int_equal(kept, 3 * tokens);
    kept = forecast(&c, &s).rank.is.tier[TIER_CPU].most[TAG_ACTIVATION];
    assert_int_equal(kept, 4 * 2 * (2 * 32 * 64 * 2));
}

// The ranks of a node share its memory, its host's rate and its disks.
TEST(ranks_share_a_node) {
    struct Cluster c = usual();
    struct RankSettings s = small(4);
    s.stage = 3;
    s.opt_tier = TIER_NVME;
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        s.ranks = ranks;
        struct ClusterForecast f = forecast(&c, &s);
        size_t node = size_min((size_t)ranks, 8);
        const struct StepWork *w = &f.rank.work;
        double read =
            (double)(w->moves.forward.read + w->moves.backward.read + w->moves.update.read);
        double written = (double)(w->moves.forward.written + w->moves.backward.written +
                                  w->moves.update.written);
        assert_int_equal(f.host, node * footprint_host_bytes(&f.rank.is));
        assert_int_equal(f.disk, node * f.rank.is.tier[TIER_NVME].peak);
        assert_true(f.host > 0 && f.disk > 0 && w->host_update > 0);
        assert_true(near_to(f.bound.host, w->host_update * (double)node / c.host_update));
        assert_true(near_to(f.bound.disk, (double)node * (read / c.read + written / c.written)));
    }
}

// For gradients in parts no kernel waits.
static void add_partial(void *sum, const struct Rehearsed *one) {
    if (one->hop && one->over && !strcmp(one->hop->name, "tp_all_reduce"))
        *(double *)sum += 2 * (double)((uint64_t)(one->over->size - 1) * one->bytes);
}

// What kernels are counted to send to other places is what the traffic says of a step.
TEST(sums_are_the_traffics) {
    for (int i = 0; i < 2 * NRECOMPUTE; i++) {
        struct RankSettings s = small(3);
        struct PassCount count;
        struct Rehearsal step;
        double gradients = 0;
        struct Rank dry;
        struct Error e;
        s.recompute = (enum Recompute)(i / 2);
        s.ranks = 4;
        s.tp = 4;
        s.sequence_parallel = i % 2;
        assert_int_equal(rank_open(&dry, &s, true, &e), 0);
        count_passes(&dry, false, &count);
        rehearse(&dry, add_partial, &gradients, &step);
        rank_close(&dry);
        double bytes = step.sums[0] + step.sums[1] - gradients;
        assert_int_equal(gradients > 0, s.sequence_parallel);
        assert_true(near_to(count.forward.sent + count.backward.sent, bytes));
    }
}

// ---- many grids ----

struct Draw {
    uint64_t seed, n;
};

static size_t draw(struct Draw *d, size_t below) {
    return rng_bits(d->seed, d->n++) % below;
}

static struct RankSettings draw_run(struct Draw *d) {
    struct RankSettings s = small(1 + draw(d, 9));
    s.tp = (size_t)1 << draw(d, 3);
    s.pp = 1 + draw(d, size_min(s.model.layers, 4));
    size_t data = (size_t)1 << draw(d, 7);
    s.ranks = (int)(s.tp * s.pp * data);
    s.stage = (int)draw(d, 4);
    s.recompute = (enum Recompute)draw(d, NRECOMPUTE);
    s.batch = 1 + draw(d, 4);
    s.nmicro = 1 + draw(d, 9);
    s.one_queue = draw(d, 4) == 0;
    s.reduce_native = (int)draw(d, 2);
    s.opt_tier = (enum TierKind)draw(d, NTIER);
    s.param_tier = s.opt_tier == TIER_DEVICE ? TIER_DEVICE : (enum TierKind)draw(d, NTIER);
    s.act_tier = (enum TierKind)draw(d, NTIER);
    if (s.stage && data > 1 && draw(d, 2))
        s.shard_size = data / 2;
    return s;
}

// The parts of a step are the step, and none is less than nothing. Of the collectives no more is
// waited for than they take, with what is moved besides.
TEST(parts_are_the_step) {
    struct Draw d = {11, 0};
    struct Cluster c = usual();
    for (int i = 0; i < 300; i++) {
        struct RankSettings s = draw_run(&d);
        struct ClusterForecast f = forecast(&c, &s);
        double sum = f.kernels + f.sums + f.handed + f.bubble + f.update + f.waits;
        double most = f.bound.sent + f.bound.bus + f.bound.disk + f.bound.host;
        if (!near_to(sum, f.step) || f.waits < -1e-9 * f.step || f.waits > 2 * most + 1e-12)
            fail_msg("grid %d: parts %g, step %g, waits %g of %g", i, sum, f.step, f.waits, most);
        if (f.kernels <= 0 || f.bubble < 0 || (f.sums > 0) != (s.tp > 1) ||
            (f.handed > 0) != (s.pp > 1))
            fail_msg("grid %d: a part is not what it can be", i);
        assert_int_equal(f.tp_size * f.stages * f.data, s.ranks);
    }
}

// Nothing that is faster makes a step slower, and no rate changes what is held.
TEST(faster_is_never_slower) {
    struct Draw d = {12, 0};
    static const size_t rates[] = {
        offsetof(struct Cluster, matmul),      offsetof(struct Cluster, attention_forward),
        offsetof(struct Cluster, memory),      offsetof(struct Cluster, attention_backward),
        offsetof(struct Cluster, near.rate),   offsetof(struct Cluster, far.rate),
        offsetof(struct Cluster, in),          offsetof(struct Cluster, out),
        offsetof(struct Cluster, host_update), offsetof(struct Cluster, read),
        offsetof(struct Cluster, written)};
    enum { NRATE = sizeof rates / sizeof rates[0] };
    int quicker[NRATE] = {0};
    for (int i = 0; i < 60; i++) {
        struct RankSettings s = draw_run(&d);
        struct Cluster c = usual();
        struct ClusterForecast before = forecast(&c, &s);
        for (int k = 0; k < NRATE; k++) {
            struct Cluster faster = c;
            *(double *)((char *)&faster + rates[k]) *= 2;
            struct ClusterForecast f = forecast(&faster, &s);
            if (f.step > before.step * (1 + 1e-9) || f.device != before.device)
                fail_msg("grid %d: rate %d twice as high: %g s, not at most %g", i, k, f.step,
                         before.step);
            quicker[k] += f.step < before.step * (1 - 1e-9);
        }
        c.near.latency *= 2;
        c.far.latency *= 2;
        assert_true(forecast(&c, &s).step >= before.step * (1 - 1e-9));
    }
    for (int k = 0; k < NRATE; k++)
        if (!quicker[k])
            fail_msg("rate %d matters on no grid", k);
}

TEST(what_is_no_grid_is_refused) {
    struct Cluster c = usual();
    struct ClusterForecast f;
    struct Error e;
    struct RankSettings s = small(4);
    s.ranks = 8200;
    assert_int_equal(cluster_forecast(&c, &s, &f, &e), -EINVAL);
    assert_true(error_is(&e, "E_CLUSTER_RANKS 8192"));
    s.ranks = 8;
    s.pp = 8;
    s.cluster = "a cluster";
    assert_int_equal(settings_check_split(&s, &e), -EINVAL);
    assert_true(error_is(&e, "E_PP_STAGES --layers 4"));
    s.pp = 2;
    s.pp_split = "2,2";
    assert_int_equal(settings_check_shards(&s, &e), -EINVAL);
    assert_true(error_is(&e, "E_CLUSTER_FLAG --pp-split 2,2"));
    s.pp_split = NULL;
    f = forecast(&c, &s);
    assert_int_equal(cluster_check_room(&c, &f, &e), 0);
    c.device_bytes = f.device - 1;
    assert_int_equal(cluster_check_room(&c, &f, &e), -ENOMEM);
    assert_true(error_is(&e, "E_CLUSTER_MEMORY"));
    assert_true(error_is(&e, "E_CLUSTER_MEMORY --fit auto"));
    s.node_size = 4;
    assert_int_equal(cluster_forecast(&c, &s, &f, &e), -EINVAL);
    assert_true(error_is(&e, "E_CLUSTER_NODE_SIZE --node-size 4"));
    s.node_size = 8;
    forecast(&c, &s);
}

// --device-mem and --host-mem-per-rank are limits of each rank, --host-mem of a node, beside the
// file's.
TEST(what_a_flag_allows) {
    struct Cluster c = usual();
    struct RankSettings s = small(4);
    struct Error e;
    s.ranks = 8;
    s.opt_tier = TIER_CPU;
    struct ClusterForecast f = forecast(&c, &s);
    size_t device = f.device, host = f.rank.is.tier[TIER_CPU].peak;
    assert_int_equal(f.host, 8 * host);
    s.device_bytes = device;
    s.rank_host_bytes = host;
    s.host_bytes = 8 * host;
    f = forecast(&c, &s);
    assert_int_equal(f.device, device);
    assert_int_equal(cluster_check_room(&c, &f, &e), 0);
    s.device_bytes = device - 1;
    f = forecast(&c, &s);
    assert_int_equal(cluster_check_room(&c, &f, &e), -ENOMEM);
    assert_true(error_is(&e, "E_CLUSTER_MEMORY --device-mem allows"));
    s.device_bytes = 0;
    s.host_bytes = 8 * host - 1;
    f = forecast(&c, &s);
    assert_int_equal(cluster_check_room(&c, &f, &e), -ENOMEM);
    assert_true(error_is(&e, "E_CLUSTER_MEMORY --host-mem allows"));
    s.host_bytes = 0;
    s.rank_host_bytes = host - 1;
    f = forecast(&c, &s);
    assert_int_equal(cluster_check_room(&c, &f, &e), -ENOMEM);
    assert_true(error_is(&e, "E_CLUSTER_MEMORY --host-mem-per-rank allows"));
}

// The smallest card that has the memory, as its file has it; of several the slowest.
TEST(a_card_for_some_memory) {
    const struct {
        size_t bytes;
        const char *file;
    } card[] = {{1, "a4000"},           {16000000000, "a4000"},
                {16000000001, "a10g"},  {24000000000, "a10g"},
                {48000000000, "a6000"}, {80000000000, "a100"},
                {90000000000, "a100"},  {0, "a100"}};
    for (size_t i = 0; i < sizeof card / sizeof card[0]; i++) {
        struct Cluster chosen, read;
        struct Error e;
        char *path = base_format("docs/clusters/%s.json", card[i].file);
        assert_string_equal(card_choose(card[i].bytes, &chosen), path);
        assert_int_equal(cluster_read(path, json_read(path, &e), &read, &e), 0);
        assert_memory_equal(&chosen, &read, sizeof read);
        free(path);
    }
}

// What was measured of a disk stays; fp32 is slower than the files' 16 bits.
TEST(rates_of_a_card) {
    struct RankSettings s = small(4);
    struct Cluster c;
    struct Rates rates, slow;
    struct Speeds speeds = {.read = 7}, of_fp32 = {0};
    s.device_bytes = 24000000000;
    s.ranks = 4;
    s.model.dtype = BF16;
    card_choose(s.device_bytes, &c);
    card_assume(&s, &rates, &speeds);
    assert_true(speeds.read == 7 && speeds.written == c.written && speeds.flops == c.matmul);
    assert_true(speeds.host_update == c.host_update / 4 && speeds.sent == c.near.rate);
    assert_true(rates.kernels.of[KERNEL_matmul] == c.matmul && rates.sent == c.near.rate);
    assert_non_null(strstr(speeds.whose, "A10G 24 GB (docs/clusters/a10g.json)"));
    s.ranks = 64; // on eight nodes
    s.model.dtype = F32;
    card_assume(&s, &slow, &of_fp32);
    assert_true(of_fp32.sent == c.far.rate / 8 && of_fp32.host_update == c.host_update / 8);
    assert_true(slow.kernels.of[KERNEL_matmul] < c.matmul && of_fp32.flops < c.matmul);
    assert_true(slow.kernels.of[KERNEL_adamw] == c.memory);
}
