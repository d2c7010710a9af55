// Grids of ranks on CUDA, in the simulator: tensor parallelism, pipelines, replicas, a second
// partition of weights, and few bits on the way.
//
// In these a rank has several communicators, and some of them take their turns in the compute queue
// while the shards' are in the comm queue. Each grid is run with ranks that share a GPU and with
// one each, over NCCL, while queues are starved, idle as long as they may, or take turns at random,
// and at ZeRO stages whose results are the same. No bit may change, and the race detector, which
// looks at every run, may find nothing.
//
//   test_gpu_grids           each grid in some of the schedules
//   test_gpu_grids --whole   in all of them
#include "zero/state.h"
#include "tests/lib/child.h"
#include "tests/lib/grids.h"
#include "tests/lib/left_out.h"
#include "tests/lib/test.h"

enum { STEPS = 2, RANKS = 4 };

static void tied_stages(struct RankSettings *s) {
    s->pp = 2;
}
static void stages_in_parts(struct RankSettings *s) {
    grid_stages(s);
    grid_parts(s);
}
// Three layers and two of two micro-batches take turns in two slots.
static void stages_keep_elsewhere(struct RankSettings *s) {
    grid_stages(s);
    s->pp_split = "3,1";
    s->act_tier = TIER_CPU;
}
// One layer of three.
static void many_stages_keep_elsewhere(struct RankSettings *s) {
    grid_stages(s);
    s->pp = 4;
    s->nmicro = 3;
    s->act_tier = TIER_CPU;
}
static void stages_keep_parts(struct RankSettings *s) {
    grid_stages(s);
    grid_kept_in_parts(s);
}
static void few_bits(struct RankSettings *s) {
    s->quantized_weights = s->quantized_gradients = true;
    s->node_size = 2;
}
static void few_bits_kept(struct RankSettings *s) {
    few_bits(s);
    s->hpz_size = 2;
}

// from, to: ZeRO stages with the same results.
static const struct Case {
    const char *name;
    void (*set)(struct RankSettings *s);
    int from, to;
} cases[] = {
    {"places", grid_parts, 2, 3},
    {"places, whole", grid_parts, 0, 1},
    {"rows in parts", grid_rows_in_parts, 3, 3},
    {"kept in parts", grid_kept_in_parts, 3, 3},
    {"stages", grid_stages, 2, 3},
    {"tied stages", tied_stages, 2, 3},
    {"stages in parts", stages_in_parts, 0, 1},
    {"stages keep elsewhere", stages_keep_elsewhere, 2, 3},
    {"four stages keep elsewhere", many_stages_keep_elsewhere, 0, 1},
    {"stages keep parts", stages_keep_parts, 0, 1},
    {"replicas", grid_replicas, 2, 3},
    {"second partition", grid_second_partition, 3, 3},
    {"few bits", few_bits, 2, 3},
    {"few bits, kept", few_bits_kept, 3, 3},
};
enum { NCASE = sizeof cases / sizeof cases[0] };

static struct RankSettings settings_of(const struct Case *c) {
    struct RankSettings s = gpu_settings(BF16, RANKS, c->from);
    struct Error e;
    s.model = (struct ModelConfig){
        .layers = 4, .heads = 2, .channels = 16, .seq_len = 8, .vocab = 29, .dtype = BF16};
    s.batch = 1;
    s.nmicro = 2;
    s.grad_dtype = F32;
    c->set(&s);
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    return s;
}

// As many of the simulator's as there are queues, and three more.
enum { SCHEDULES = NQUEUE + 3 };

static void set_schedule(int i, struct RankSettings *s) {
    if (i < NQUEUE)
        sim_set_schedule(SIM_STARVE, (uint64_t)i);
    else
        sim_set_schedule((enum SimSchedule[]){SIM_LAZY, SIM_RANDOM, SIM_EAGER}[i - NQUEUE], 1);
    sim_set_order(i == NQUEUE + 1 ? SIM_REVERSE : SIM_FORWARD, 1);
    s->one_queue = i == NQUEUE + 2;
}

static void any_schedule(int number, struct RankSettings s) {
    const struct Case *c = &cases[number];
    struct Outcome want = run_steps(&s, STEPS);
    expect_no_race(c->name);
    s.stage = c->to;
    s.prefetch = 2;
    for (int i = 0; i < SCHEDULES; i++) {
        if (!whole && (i + number) % 3)
            continue;
        set_schedule(i, &s);
        struct Outcome other = run_steps(&s, STEPS);
        expect_same(&want, &other, &s, c->name);
    }
    set_schedule(SCHEDULES - 1, &s); // eager
}

static void compare_all(int gpus) {
    if (sim_is_real())
        skip();
    sim_set_gpus(gpus);
    for (int i = 0; i < NCASE; i++)
        any_schedule(i, settings_of(&cases[i]));
    sim_set_gpus(1);
}

TEST(fault_03_grids_on_one_gpu) {
    compare_all(1);
}

TEST(fault_03_grids_with_a_gpu_each) {
    compare_all(RANKS);
}

// ---- kernels that are loaded late ----

static void run_late(const void *settings) {
    sim_load_late(true);
    run_steps(settings, 1);
}

// Each launch waits until the GPU is idle, and holds up the other ranks meanwhile.
TEST(ranks_that_share_a_gpu_may_load_kernels_late) {
    if (sim_is_real())
        skip();
    for (int i = 0; i < NCASE; i += whole ? 1 : 2) {
        struct RankSettings s = settings_of(&cases[i]);
        struct Outcome want = run_steps(&s, 1);
        s.opt_tier = s.stage >= 2 ? TIER_CPU : s.opt_tier;
        sim_load_late(true);
        set_schedule(i % SCHEDULES, &s);
        struct Outcome late = run_steps(&s, 1);
        sim_load_late(false);
        set_schedule(SCHEDULES - 1, &s);
        expect_same(&want, &late, &s, cases[i].name);
    }
}

// NCCL's kernels wait for each other, so ranks with a GPU each must not: zero/rank/rank_device.c.
TEST(ranks_with_a_gpu_each_may_not) {
    struct RankSettings s = minute_settings(3, 1);
    int status;
    if (sim_is_real())
        skip();
    sim_set_gpus(s.ranks);
    char *said = child_said(run_late, &s, &status);
    sim_set_gpus(1);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 99 || !strstr(said, "deadlock: ") ||
        !strstr(said, "since it loads a kernel"))
        fail_msg("status %#x, said: %s", (unsigned)status, said);
    free(said);
}

// What only stages wait for: others have it for other reasons.
TEST(a_stage_waits_for_what_is_still_read) {
    // Events left out by test_gpu_grids:
    static const char *const kinds[] = {
        "wait by in: layer made",
    };
    if (sim_is_real())
        skip();
    for (int i = 0; i < NCASE; i++) {
        struct RankSettings s = settings_of(&cases[i]);
        if (cases[i].set == stages_keep_elsewhere)
            assert_int_equal(left_out_one(&s, kinds[0]), MISSED_RACE);
    }
}
