// What test_cluster.c is made with: a cluster, a run and its forecast; and its tests of where the
// ranks of a grid lie, who hands on to whom, and how far that is.
#ifndef TESTS_ZERO_TEST_CLUSTER_GRID_H
#define TESTS_ZERO_TEST_CLUSTER_GRID_H
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"
#include "zero/plan/cluster.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static bool near_to(double a, double b) {
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

static struct Cluster usual(void) {
    return (struct Cluster){.name = "of a test",
                            .nodes = 1024,
                            .node_gpus = 8,
                            .device_bytes = SIZE_MAX,
                            .host_bytes = SIZE_MAX,
                            .disk_bytes = SIZE_MAX,
                            .matmul = 1e12,
                            .attention_forward = 5e11,
                            .attention_backward = 4e11,
                            .memory = 1e12,
                            .call = 1e-7,
                            .near = {1e11, 1e-6},
                            .far = {1e11, 1e-5},
                            .in = 2e10,
                            .out = 1e10,
                            .host_update = 5e10,
                            .read = 1e10,
                            .written = 5e9};
}

static struct RankSettings small(size_t layers) {
    struct RankSettings s = tiny_settings(BF16);
    struct Error e;
    s.model = (struct ModelConfig){.layers = layers,
                                   .heads = 4,
                                   .channels = 64,
                                   .seq_len = 32,
                                   .vocab = 61,
                                   .dtype = BF16,
                                   .kind = FAMILY_GPT2};
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    s.cluster = "a test";
    s.batch = 2;
    s.nmicro = 1;
    s.grad_auto = true;
    s.group = NULL;
    return s;
}

static struct ClusterForecast forecast(const struct Cluster *c, const struct RankSettings *s) {
    struct ClusterForecast f;
    struct Error e = {0};
    if (cluster_forecast(c, s, &f, &e))
        fail_msg("%s", e.text);
    return f;
}

// ---- where ranks lie ----

// The slowest hop counts, far where neighbouring stages are on two nodes; how many ranks of a node
// then hand on to other ones is counted by hand.
TEST(hops_by_hand) {
    struct Cluster c = usual(); // nodes of 8
    c.far.rate = 1e9;
    const struct {
        int ranks;
        size_t pp, tp, shard; // 0: all data ranks
        size_t leave;         // ranks of a node; 0: all stages are on one
    } cases[] = {
        {8, 4, 1, 0, 0},  {16, 2, 1, 0, 8},
        {10, 2, 1, 0, 2}, // of 0 to 4, whose next are 5 to 9: two, to 8 and 9
        {64, 8, 1, 4, 4}, // two stages on a node, whose second hands on to the next node
        {16, 2, 1, 4, 0}, // replicas of 8 ranks, each on a node
        {16, 2, 2, 2, 0}, {24, 3, 1, 2, 2}, // replicas of 6 ranks
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct RankSettings s = small(8);
        s.ranks = cases[i].ranks;
        s.pp = cases[i].pp;
        s.tp = cases[i].tp;
        s.shard_size = cases[i].shard;
        s.stage = 1;
        double bytes = 2 * 32 * 64 * 2, leave = (double)cases[i].leave;
        double want = leave > 0 ? leave * bytes / c.far.rate + c.far.latency
                                : bytes / c.near.rate + c.near.latency;
        double handed = forecast(&c, &s).handed / 2;
        if (!near_to(handed, want))
            fail_msg("case %zu: %g s, not %g", i, handed, want);
    }
}

// What a stage hands on is what a run counts: its own rows, where places have parts of them.
TEST(handed_is_the_traffics) {
    struct Cluster c = usual();
    c.near.latency = 0;
    for (int parts = 0; parts < 2; parts++) {
        struct RankSettings s = small(4);
        struct PipelineForecast stages;
        struct Error e;
        s.ranks = 4;
        s.tp = s.pp = 2;
        s.nmicro = 3;
        s.sequence_parallel = parts;
        double handed = forecast(&c, &s).handed;
        s.cluster = NULL;
        assert_int_equal(pipeline_predict(&s, &stages, &e), 0);
        double bytes = (double)stages.stage[0].is.traffic.bytes[COMM_SWAP]; // forward alone
        pipeline_free(&stages);
        assert_true(bytes > 0 && near_to(handed, 2 * bytes / c.near.rate));
    }
}

// A cluster on which only hops between nodes take time, one second each.
static struct Cluster only_far_hops(size_t node_gpus) {
    struct Cluster c = usual();
    c.node_gpus = node_gpus;
    c.near = (struct ClusterLink){1e30, 0};
    c.far = (struct ClusterLink){1e30, 1};
    return c;
}

static int groups_of(const struct RankSettings *s, size_t layers) {
    struct RankSettings one = *s;
    struct Rank dry;
    struct Error e;
    one.model.layers = layers;
    one.ranks = 1;
    one.pp = one.shard_size = 0;
    assert_int_equal(rank_open(&dry, &one, true, &e), 0);
    int groups = dry.params.ngroup;
    rank_close(&dry);
    return groups;
}

// Stages lie between replicas: of 8 stages with shards over 4 ranks they are 32 ranks apart.
TEST(replicas_lie_behind_all_stages) {
    struct Cluster c = only_far_hops(8);
    struct RankSettings s = small(8);
    struct Error e;
    s.stage = 1;
    s.ranks = 64;
    s.pp = 8;
    s.shard_size = 4;
    s.model.untied = true;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    double twice = 2 * groups_of(&s, 1); // a scattering and a gathering of each
    assert_true(near_to(forecast(&c, &s).sent[SEND_LAST], twice));
    s.pp = 0; // then they are on one node
    s.ranks = 8;
    assert_true(fabs(forecast(&c, &s).sent[SEND_LAST]) < 1e-9);
}

struct Ends {
    const struct Rank *dry;
    uint64_t bytes;
};

static void note_ends(void *context, const struct Rehearsed *one) {
    struct Ends *ends = context;
    if (!one->over || one->over != ends->dry->pipe.tied)
        return;
    assert_int_equal(one->collective, COMM_ALL_REDUCE);
    assert_int_equal(one->when, SEND_LAST);
    ends->bytes += one->bytes;
}

// The ends of a pipeline add up a tied head's gradient, as much as a run counts.
TEST(ends_add_up_the_embedding) {
    for (int stage = 0; stage <= 3; stage++) {
        struct Cluster c = only_far_hops(2);
        struct RankSettings s = small(6);
        struct Rank dry;
        struct Error e;
        c.far = (struct ClusterLink){1e6, 0.5};
        s.stage = stage;
        s.ranks = 6; // three stages on three nodes
        s.pp = 3;
        s.grad_auto = false;
        s.cluster = NULL;
        assert_int_equal(rank_open(&dry, &s, true, &e), 0);
        struct Ends ends = {&dry, 0};
        struct Rehearsal step;
        rehearse(&dry, note_ends, &ends, &step);
        double bytes = (double)ends.bytes;
        rank_close(&dry);
        s.cluster = "a test";
        struct ClusterGroup pair = {6, 2, 4};
        double want = cluster_seconds(&c, &pair, COMM_ALL_REDUCE, bytes, true);
        assert_true(bytes > 0 && want > 1);
        assert_true(near_to(forecast(&c, &s).sent[SEND_LAST], want));
        s.model.untied = true;
        assert_int_equal(model_config_finish(&s.model, &e), 0);
        assert_true(fabs(forecast(&c, &s).sent[SEND_LAST]) < 1e-9);
    }
}

#endif
