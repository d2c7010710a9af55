// What is forecast of each stage of a pipeline (zero/plan/footprint.h) is what its ranks take and
// hand on, to the byte; its share of the work is what its kernels count; and the bubble is that of
// stages as unlike as they are. What all of them demand is what is refused where there is less.
// tests/zero/test_plan.sh looks at what is printed.
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"
#include "zero/plan/count.h"
#include "zero/plan/predict.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { MAX_RANKS = 8, STEPS = 2 };

struct Run {
    const struct RankSettings *settings;
    struct Footprint measured[MAX_RANKS];
    int stage[MAX_RANKS];
};

static void train(void *context, struct Rank *r) {
    struct Run *run = context;
    struct TinyStep step[STEPS];
    tiny_steps(r, STEPS, step);
    run->measured[r->all->rank] = footprint_measure(r, run->settings, 0);
    run->stage[r->all->rank] = r->zero.parallel->stage;
}

static struct PipelineForecast stages_of(const struct RankSettings *s) {
    struct PipelineForecast f;
    struct Error e = {0};
    if (pipeline_predict(s, &f, &e))
        fail_msg("%s", e.text);
    return f;
}

static struct Forecast forecast(const struct RankSettings *s, int ranks_here) {
    struct Forecast f;
    struct Error e;
    if (footprint_predict(s, 0, ranks_here, &f, &e))
        fail_msg("%s", e.text);
    return f;
}

// Of nodes of so many ranks, that whose ranks offloaded most; the last may have fewer.
static void compare_nodes(const struct RankSettings *s, const struct Footprint *measured,
                          int node) {
    struct RankSettings on_nodes = *s;
    size_t sum = 0, most = 0;
    on_nodes.node_size = (size_t)node;
    for (int rank = 0; rank < s->ranks; rank++) {
        sum = (rank % node ? sum : 0) + measured[rank].tier[TIER_CPU].peak;
        most = size_max(most, sum);
    }
    assert_int_equal(forecast(&on_nodes, s->ranks).demand.node_bytes, most);
    assert_int_equal(forecast(&on_nodes, 1).demand.node_bytes, most);
}

// Of each tier what all ranks took, or where each is a process the largest; and who took most.
static void compare_demand(const struct RankSettings *s, const struct Footprint *measured) {
    const struct Demand all = forecast(s, s->ranks).demand, one = forecast(s, 1).demand;
    for (int kind = 0; kind < NTIER; kind++) {
        size_t sum = 0, most = 0;
        int first = 0;
        for (int rank = 0; rank < s->ranks; rank++) {
            size_t bytes = measured[rank].tier[kind].peak;
            sum += bytes;
            first = bytes > most ? rank : first;
            most = size_max(most, bytes);
        }
        assert_int_equal(all.of[kind].here, sum);
        assert_int_equal(one.of[kind].here, most);
        assert_int_equal(all.of[kind].is.tier[kind].peak, most);
        assert_int_equal(all.of[kind].rank, first);
    }
    size_t largest = 0;
    for (int rank = 0; rank < s->ranks; rank++) {
        const struct Tier *tier = measured[rank].tier;
        largest = size_max(largest, tier[TIER_DEVICE].peak + tier[TIER_CPU].peak);
    }
    assert_int_equal(one.place_bytes, largest); // a process's, of its one rank
    for (int node = 1; node <= s->ranks; node++)
        compare_nodes(s, measured, node);
}

static void compare(const struct RankSettings *s) {
    struct PipelineForecast f = stages_of(s);
    struct Run run = {.settings = s};
    uint64_t parameters = 0;
    int layers = 0;
    tiny_ranks(s, train, &run);
    assert_int_equal(f.n, s->pp);
    for (int i = 0; i < f.n; i++) {
        assert_int_equal(f.stage[i].stage.first_layer, layers);
        assert_true(f.stage[i].stage.embedding == (i == 0));
        assert_true(f.stage[i].stage.head == (i + 1 == f.n));
        parameters += f.stage[i].stage.parameters;
        layers += f.stage[i].stage.layers;
    }
    assert_int_equal(layers, s->model.layers);
    uint64_t tied = s->model.untied ? 0 : s->model.vocab * s->model.channels;
    assert_in_range(parameters - f.stage[0].parameters, tied, 2 * tied); // with positions and norm
    for (int rank = 0; rank < s->ranks; rank++) {
        const struct Footprint *is = &f.stage[run.stage[rank]].is, *m = &run.measured[rank];
        if (s->tp <= 1) { // an activation goes on, and its gradient comes back
            bool first = run.stage[rank] == 0, last = run.stage[rank] + 1 == f.n;
            uint64_t stream = s->batch * s->model.seq_len * s->model.channels;
            uint64_t times = (uint64_t)(!first + !last) * s->nmicro;
            assert_int_equal(is->traffic.bytes[COMM_SWAP],
                             times * stream * dtype_size(s->model.dtype));
        }
        for (int kind = 0; kind < NTIER; kind++)
            if (m->tier[kind].peak != is->tier[kind].peak)
                fail_msg("rank %d of stage %d: %zu bytes of %s, predicted %zu", rank,
                         run.stage[rank], m->tier[kind].peak, tier_name((enum TierKind)kind),
                         is->tier[kind].peak);
        if (m->traffic.bytes[COMM_SWAP] != is->traffic.bytes[COMM_SWAP])
            fail_msg("rank %d of stage %d handed on %zu bytes, predicted %zu", rank,
                     run.stage[rank], (size_t)m->traffic.bytes[COMM_SWAP],
                     (size_t)is->traffic.bytes[COMM_SWAP]);
    }
    compare_demand(s, run.measured);
    pipeline_free(&f);
}

static struct RankSettings settings_of(int stages, size_t nmicro) {
    struct RankSettings s = tiny_family(1, F32); // untied
    s.pp = (size_t)stages;
    s.ranks = stages;
    s.nmicro = nmicro;
    s.threads = 1;
    s.timeout_s = 60;
    return s;
}

TEST(stages_take_what_is_forecast) {
    for (int stages = 2; stages <= 5; stages++) {
        struct RankSettings s = settings_of(stages, 4);
        compare(&s);
        s.recompute = RECOMPUTE_BLOCK;
        s.opt_tier = TIER_CPU;
        compare(&s);
    }
    struct RankSettings s = settings_of(2, 3);
    s.model.untied = false;
    compare(&s);
    s.model.untied = true;
    s.ranks = 8;
    s.stage = 3;
    s.tp = 2;
    compare(&s);
    s.sequence_parallel = true;
    s.model.seq_len = s.model.positions = 18;
    compare(&s);
    s.pp_split = "1,3";
    compare(&s);
}

// The last stage has most on the device; only the one in the middle has anything elsewhere.
static struct RankSettings unlike_stages(enum TierKind activations) {
    struct RankSettings s = settings_of(3, 4);
    s.pp_split = "0,4,0";
    s.act_tier = activations;
    s.model.vocab = 4096;
    assert_int_equal(model_config_finish(&s.model, &(struct Error){0}), 0);
    return s;
}

TEST(stages_take_of_other_tiers) {
    struct RankSettings s = unlike_stages(TIER_CPU);
    struct Forecast f = forecast(&s, s.ranks);
    assert_true(f.unlike && f.settings.rank == 2 && f.demand.of[TIER_CPU].rank == 1);
    assert_int_equal(f.is.tier[TIER_CPU].peak, 0);
    compare(&s);
}

// 0, or the error of a run on a machine with so much free memory; its line in e.
static int fit(const struct RankSettings *s, size_t free_bytes, struct Error *e) {
    struct Forecast f;
    const struct World w = world_of_threads(s->ranks);
    const struct PredictRequest r = {.settings = s, .world = &w};
    *e = (struct Error){0};
    return fit_or_refuse(&r, (struct RankDeviceMemory){free_bytes, 0}, &(struct Speeds){0}, &f, e);
}

static void refused(const struct RankSettings *s, size_t free_bytes, const char *line) {
    struct Error e;
    int err = fit(s, free_bytes, &e);
    if (err != -ENOMEM || !error_is(&e, line))
        fail_msg("%d, \"%s\": expected %s", err, e.text, line);
}

// A machine needs room for the sum of what its ranks take, as does a node's limit; a rank's, for
// the most of any.
TEST(what_all_stages_take_is_what_must_fit) {
    enum { MANY = 1 << 30 };
    struct RankSettings s = unlike_stages(TIER_CPU);
    const struct Demand d = forecast(&s, s.ranks).demand;
    size_t device = d.of[TIER_DEVICE].is.tier[TIER_DEVICE].peak, sum = d.of[TIER_DEVICE].here;
    size_t host = d.of[TIER_CPU].is.tier[TIER_CPU].peak;
    struct Error e;
    assert_true(sum < 3 * device && host == d.of[TIER_CPU].here);
    assert_int_equal(fit(&s, sum + host, &e), 0);
    refused(&s, sum + host - 3, "E_MEMORY the machine");
    s.rank_host_bytes = s.host_bytes = host;
    assert_int_equal(fit(&s, MANY, &e), 0);
    s.host_bytes = host - 1;
    refused(&s, MANY, "E_MEMORY --host-mem allows");
    s.host_bytes = 0;
    s.rank_host_bytes = host - 1;
    refused(&s, MANY, "E_MEMORY --host-mem-per-rank allows");
    s.rank_host_bytes = 0;
    s.device_bytes = device;
    assert_int_equal(fit(&s, MANY, &e), 0);
    s.device_bytes = device - 1;
    refused(&s, MANY, "E_MEMORY --device-mem allows");
}

// Some 10^14 bytes of activations, for which no disk has room.
TEST(the_disk_of_any_stage_is_asked) {
    struct RankSettings s = unlike_stages(TIER_NVME);
    struct Error e;
    char *folder = scratch_make_in("build");
    s.nvme.folder = folder;
    bool disk = nvme_preflight(&s.nvme, 0, &e) == 0;
    s.pp_split = "0,256,0";
    s.batch = 64;
    s.model = (struct ModelConfig){256, 32, 2048, (size_t)1 << 14, (size_t)1 << 24, .dtype = F32};
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    struct Forecast f = forecast(&s, s.ranks);
    assert_int_equal(f.is.tier[TIER_NVME].peak, 0);
    assert_true(f.demand.of[TIER_NVME].here > (size_t)1 << 46);
    int err = disk ? fit(&s, SIZE_MAX / 4, &e) : -ENOSPC;
    scratch_remove(folder);
    if (err != -ENOSPC)
        fail_msg("%d: \"%s\"", err, e.text);
}

static double flops_counted(const struct RankSettings *settings, int rank) {
    struct RankSettings s = *settings;
    struct PassCount c;
    struct Rank r;
    struct Error e;
    double flops = 0;
    s.rank = rank;
    assert_int_equal(rank_open(&r, &s, true, &e), 0);
    count_passes(&r, false, &c);
    for (int k = 0; k < NKERNEL; k++)
        flops += c.forward.flops[k] + c.backward.flops[k];
    rank_close(&r);
    return flops;
}

TEST(work_is_what_kernels_count) {
    for (enum Recompute level = RECOMPUTE_NONE; level < NRECOMPUTE; level++) {
        struct RankSettings s = settings_of(3, 4);
        s.recompute = level;
        s.pp_split = "1,2,1";
        struct PipelineForecast f = stages_of(&s);
        double all = 0, shares = 0;
        for (int i = 0; i < f.n; i++)
            all += flops_counted(&s, i);
        for (int i = 0; i < f.n; i++) {
            double want = flops_counted(&s, i) / all, is = pipeline_share(&f, i);
            if (fabs(is - want) > 1e-9)
                fail_msg("stage %d, --recompute %s: a share of %.6f, counted %.6f", i,
                         recompute_name(level), is, want);
            shares += is;
        }
        assert_true(fabs(shares - 1) < 1e-12);
        pipeline_free(&f);
    }
}

// One micro-batch goes through all stages, one after another. Of many, a step takes as many of the
// slowest stage's passes, and those of the first and the last one through the others.
TEST(the_bubble_is_of_unlike_stages) {
    static const char *const splits[] = {"3,1,0", "0,4,0", "1,1,2", "2,2,0"};
    for (int i = 0; i < 4; i++) {
        struct RankSettings s = settings_of(3, 1);
        s.pp_split = splits[i];
        struct PipelineForecast f = stages_of(&s);
        assert_true(fabs(f.bubble - 2.0 / 3) < 1e-12);
        pipeline_free(&f);
        s.nmicro = 64;
        f = stages_of(&s);
        double most = 0;
        for (int k = 0; k < f.n; k++)
            most = fmax(most, pipeline_share(&f, k));
        double want = 1 - 1 / (3 * (most + (1 - most) / 64));
        if (fabs(f.bubble - want) > 0.01)
            fail_msg("--pp-split %s: a bubble of %.4f, expected %.4f", splits[i], f.bubble, want);
        pipeline_free(&f);
    }
}

TEST(one_stage_has_none) {
    struct RankSettings s = settings_of(1, 4);
    struct PipelineForecast f = stages_of(&s);
    assert_int_equal(f.n, 0);
    pipeline_free(&f);
}
