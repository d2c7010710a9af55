// Offload with the model on CUDA, in the simulator or on a GPU: the same code as
// ./train --device cuda --offload-optimizer nvme runs.
//
// Against the run in which all lies on the device: tiers of optimizer state and parameters, stages,
// ranks, prefetch, accumulation, the offloaded share and, for Llama's and Qwen3's shapes, split
// master weights change no bit. The race detector looks at
// every run: at the GPU's queues, the host's kernels that update state in pinned memory, and the
// disk. Then, in the simulator, each record, wait and synchronisation of a step is left out, one at
// a time, on the GPU's side and on the host's: each must be missed.
//
//   test_gpu_offload           a covering part
//   test_gpu_offload --waits   each kind in the setups that had not shown that it is needed: some
//                              minutes, and so not among the tests of scripts/test.sh
//   test_gpu_offload --whole   every combination; each kind in every setup
#include "tests/lib/gpu_runs.h"
#include "tests/lib/left_out.h"
#include "tests/lib/test.h"
#include "tests/lib/zero_trace.h"

enum { STEPS = 3 };

static const double ratios[] = {1, 0.3, 0.7};

static void offload(struct RankSettings *s, enum TierKind optimizer, enum TierKind param,
                    int ratio) {
    s->threads = 1;
    s->nvme.folder = disk_folder;
    s->opt_tier = optimizer;
    s->param_tier = param;
    s->offload_ratio = ratios[ratio];
}

// ---- the same bits ----

// Of all combinations a part in which every tier of optimizer and parameters meets every stage.
static bool is_chosen(const struct RankSettings *s, int ratio) {
    int sum = (int)s->opt_tier + 2 * (int)s->param_tier + s->stage;
    return whole || (s->ranks == 1 + (sum / 2) % 2 && s->nmicro == (size_t)(1 + sum % 2) &&
                     (int)s->prefetch == (sum + s->stage) % 3 &&
                     ratio == (s->opt_tier ? (sum + (int)s->param_tier) % 3 : 0));
}

// One reference where a step has one micro-batch. Where it has more, stages that keep a shard add
// them up in another order than those that keep it all.
static struct Outcome reference_of(const struct RankSettings *s) {
    struct RankSettings all_on_device = *s;
    all_on_device.stage = s->nmicro > 1 && s->stage >= 2 ? 2 : 0;
    all_on_device.opt_tier = all_on_device.param_tier = all_on_device.act_tier = TIER_DEVICE;
    all_on_device.prefetch = 1;
    struct Outcome out = run_steps(&all_on_device, STEPS);
    assert_true(isfinite(out.loss[STEPS - 1]));
    expect_no_race("all on the device");
    return out;
}

static void compare_placements(struct RankSettings s) {
    struct Outcome reference = {0};
    for (s.stage = 0; s.stage < 4; s.stage++) {
        if (s.stage % 2 == 0)
            reference = reference_of(&s);
        for (int i = 1; i < NTIER * NTIER; i++)
            for (int ratio = 0; ratio < (i >= NTIER ? 3 : 1); ratio++)
                for (s.prefetch = 0; s.prefetch < 3; s.prefetch++) {
                    offload(&s, (enum TierKind)(i / NTIER), (enum TierKind)(i % NTIER), ratio);
                    s.act_tier = (enum TierKind)((i + s.stage) % NTIER);
                    if (!is_chosen(&s, ratio))
                        continue;
                    struct Outcome other = run_steps(&s, STEPS);
                    expect_same(&reference, &other, &s, "offloaded");
                }
    }
}

// The GPU's queues, the host's, and the host's thread, which waits for them where no queue can.
TEST(a_trace_of_memory_is_exact) {
    for (int i = 0; i < 4; i++) {
        struct RankSettings s = minute_settings(i, 4);
        offload(&s, (enum TierKind)(i % NTIER), (enum TierKind)(i * 2 % NTIER), 0);
        s.nmicro = (size_t)(1 + i % 2);
        zero_trace_check_run(&s, disk_folder);
    }
}

TEST(placements_agree_bitwise) {
    for (int ranks = 1; ranks <= 2; ranks++)
        for (size_t nmicro = 1; nmicro <= 2; nmicro++) {
            struct RankSettings s = minute_settings(0, 3);
            struct Error e;
            s.model.channels = 20; // shards of odd sizes
            s.model.vocab = 23;
            assert_int_equal(model_config_finish(&s.model, &e), 0);
            s.ranks = ranks;
            s.nmicro = nmicro;
            s.grad_dtype = nmicro > 1 ? F32 : BF16;
            compare_placements(s);
        }
}

// ---- other models, and other master weights ----

// Where states are, and how much is recomputed: each stage, tier and level once.
static const struct {
    int stage, ranks;
    enum TierKind optimizer, param, act;
    int ratio;
    enum Recompute recompute;
} places[] = {
    {1, 1, TIER_DEVICE, TIER_CPU, TIER_DEVICE, 0, RECOMPUTE_GELU},
    {1, 2, TIER_CPU, TIER_DEVICE, TIER_DEVICE, 0, RECOMPUTE_MLP},
    {2, 2, TIER_NVME, TIER_CPU, TIER_CPU, 0, RECOMPUTE_ATTENTION},
    {3, 2, TIER_CPU, TIER_CPU, TIER_DEVICE, 1, RECOMPUTE_BLOCK},
    {3, 2, TIER_NVME, TIER_NVME, TIER_NVME, 2, RECOMPUTE_MLP},
};

// Split masters are the numbers of fp32 masters; those in bf16 are others, and one result.
static void compare_masters(struct RankSettings s, const char *name) {
    size_t n = whole ? sizeof places / sizeof places[0] : 3;
    struct RankSettings plain = s;
    for (enum MasterFormat f = MASTER_SPLIT; f < NMASTER; f++) {
        plain.master_format = f == MASTER_SPLIT ? MASTER_FP32 : f;
        struct Outcome want[2];
        for (plain.ranks = 1; plain.ranks <= 2; plain.ranks++)
            want[plain.ranks - 1] = run_steps(&plain, STEPS);
        for (size_t i = 0; i < n; i++) {
            size_t p = whole ? i : (i * 2 + f + s.model.kind) % (sizeof places / sizeof places[0]);
            struct RankSettings at = s;
            offload(&at, places[p].optimizer, places[p].param, places[p].ratio);
            at.master_format = f;
            at.stage = places[p].stage;
            at.ranks = places[p].ranks;
            at.act_tier = places[p].act;
            at.recompute = places[p].recompute;
            struct Outcome is = run_steps(&at, STEPS);
            expect_same(&want[at.ranks - 1], &is, &at, name);
        }
    }
}

TEST(masters_agree_bitwise) {
    for (int i = 0; i < TINY_FAMILIES; i++) {
        struct RankSettings s = tiny_family(i, BF16);
        struct Error e;
        bool few = s.model.untied && (s.model.kind == FAMILY_LLAMA || s.model.kind == FAMILY_QWEN3);
        if (!whole && !few)
            continue;
        s.model.layers = 2;
        assert_int_equal(model_config_finish(&s.model, &e), 0);
        s.device = DEVICE_CUDA;
        s.nmicro = 1;
        s.grad_dtype = BF16;
        s.threads = 1;
        s.offload_ratio = 1;
        compare_masters(s, tiny_family_name(i));
    }
}

// ---- the same bits, in whatever order things happen ----

struct Setup {
    enum TierKind optimizer, param;
    int stage, ratio;
    size_t nmicro, prefetch;
    bool delayed;
    size_t layers;
    enum TierKind act; // two layers' activations leave, where there are four
};

static struct RankSettings settings_of(const struct Setup *p) {
    struct RankSettings s = minute_settings(p->stage, p->layers);
    offload(&s, p->optimizer, p->param, p->ratio);
    s.nmicro = p->nmicro;
    s.grad_dtype = p->nmicro > 1 ? F32 : BF16;
    s.prefetch = p->prefetch;
    s.delayed = p->delayed;
    s.act_tier = p->act;
    return s;
}

TEST(any_schedule) {
    static const struct Setup setups[] = {
        {TIER_CPU, TIER_DEVICE, 2, 2, 2, 1, false, 4, TIER_DEVICE},
        {TIER_NVME, TIER_NVME, 3, 0, 1, 2, false, 4, TIER_DEVICE},
        {TIER_NVME, TIER_CPU, 1, 0, 1, 1, true, 4, TIER_DEVICE},
        {TIER_DEVICE, TIER_DEVICE, 0, 0, 2, 1, false, 4, TIER_CPU},
        {TIER_NVME, TIER_NVME, 3, 0, 2, 1, false, 4, TIER_NVME},
    };
    if (sim_is_real())
        skip();
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        struct RankSettings s = settings_of(&setups[i]);
        struct Outcome reference = run_steps(&s, STEPS);
        for (uint64_t queue = 0; queue < 2 * NQUEUE; queue++) {
            sim_set_schedule(SIM_STARVE, queue);
            struct Outcome starved = run_steps(&s, STEPS);
            expect_same(&reference, &starved, &s, "a starved queue");
        }
        sim_set_schedule(SIM_LAZY, 0);
        struct Outcome lazy = run_steps(&s, STEPS);
        expect_same(&reference, &lazy, &s, "lazy");
        for (uint64_t seed = 1; seed <= 4; seed++) {
            sim_set_schedule(SIM_RANDOM, seed);
            struct Outcome random = run_steps(&s, STEPS);
            expect_same(&reference, &random, &s, "random");
        }
        sim_set_schedule(SIM_EAGER, 0);
    }
}

// ---- who sees what ----

// What the host's kernels and the disk do in memory that the GPU copies from and to, and what the
// disk does to its files.
TEST(host_and_disk_are_watched) {
    // Events left out by test_gpu_offload:
    static const struct {
        struct Setup setup;
        const char *left_out;
        // ENDED: nobody has written there at all yet, or, where the disk is about to, a race.
        enum Missed how;
    } cases[] = {
        {{TIER_CPU, TIER_DEVICE, 2, 0, 1, 1, false, 4, TIER_DEVICE},
         "sync by the CPU's compute: results received",
         MISSED_RACE},
        {{TIER_CPU, TIER_DEVICE, 2, 0, 1, 1, false, 4, TIER_DEVICE},
         "sync by host: new weights made",
         MISSED_RACE},
        {{TIER_DEVICE, TIER_NVME, 1, 0, 1, 1, false, 4, TIER_DEVICE},
         "sync by host: staging arrived",
         MISSED_RACE},
        {{TIER_DEVICE, TIER_NVME, 1, 0, 1, 1, false, 4, TIER_DEVICE},
         "sync by the CPU's out: staging copied",
         MISSED_RACE},
        {{TIER_NVME, TIER_DEVICE, 2, 0, 1, 1, false, 4, TIER_DEVICE},
         "wait by the CPU's compute: piece arrived",
         MISSED_ENDED},
        {{TIER_NVME, TIER_NVME, 0, 0, 1, 1, false, 4, TIER_DEVICE},
         "wait by the CPU's in: group updated",
         MISSED_RACE},
    };
    if (sim_is_real())
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct RankSettings s = settings_of(&cases[i].setup);
        enum Missed missed = left_out_one(&s, cases[i].left_out);
        if (missed != cases[i].how && (cases[i].how != MISSED_ENDED || missed != MISSED_RACE))
            fail_msg("without a %s: missed as %d, expected %d", cases[i].left_out, (int)missed,
                     (int)cases[i].how);
    }
}

// Where a GPU computes, its caller has waited for all of the host's last updates before it queues
// the next ones. Where a CPU does, nobody has, and only this keeps their files in order.
TEST(a_cpu_needs_to_know_what_is_kept) {
    static const struct Setup setup = {TIER_NVME, TIER_DEVICE, 2, 0, 1, 1, false, 2, TIER_DEVICE};
    // Events left out by test_gpu_offload:
    static const char *const kinds[] = {
        "wait by the CPU's in: state stored",
        "record by the CPU's out: state stored",
    };
    if (sim_is_real())
        skip();
    struct RankSettings s = settings_of(&setup);
    s.device = DEVICE_CPU;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        assert_int_equal(left_out_one(&s, kinds[i]), MISSED_RACE);
}

// ---- the GPU's work while its caller waits for the host ----

struct Idle {
    size_t waits, idle; // for the host in a step, and how many of them the GPU had no work in
};

static void count_idle(void *context, struct Rank *r) {
    struct Idle *idle = context;
    tiny_step(r);
    if (tiny_is_first(r))
        sim_drop(SIZE_MAX);
    tiny_step(r);
    if (!tiny_is_first(r))
        return;
    for (size_t i = 0; i < sim_syncs(); i++) {
        struct SimSync s = sim_sync(i);
        bool waits = s.kind == SIM_SYNC && s.first_host && s.queue < 0 && s.cpu_event;
        idle->waits += waits;
        idle->idle += waits && s.queued == 0;
    }
}

// A GPU that is slower than the host, LAZY's, has a unit to compute whenever the thread that queues
// its work waits for the host, but for the first group's weights: the host begins when the step
// before is over, and nothing can be computed before they are there.
TEST(gpu_has_work_while_the_host_is_waited_for) {
    static const struct Setup setups[] = {
        {TIER_CPU, TIER_DEVICE, 0, 0, 1, 1, false, 4, TIER_DEVICE},
        {TIER_CPU, TIER_CPU, 2, 0, 1, 1, false, 4, TIER_DEVICE},
        {TIER_NVME, TIER_NVME, 3, 0, 1, 1, false, 4, TIER_DEVICE},
        {TIER_DEVICE, TIER_NVME, 3, 0, 1, 2, false, 4, TIER_DEVICE},
        {TIER_NVME, TIER_CPU, 1, 1, 2, 1, false, 4, TIER_DEVICE},
        {TIER_NVME, TIER_NVME, 2, 0, 1, 1, true, 4, TIER_DEVICE},
    };
    if (sim_is_real())
        skip();
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        struct RankSettings s = settings_of(&setups[i]);
        struct Idle idle = {0};
        s.ranks = 1; // ranks that share a GPU meet in between, and drain its queues
        sim_set_schedule(SIM_LAZY, 0);
        tiny_ranks(&s, count_idle, &idle);
        sim_set_schedule(SIM_EAGER, 0);
        print_message(
            "optimizer on %s, parameters on %s: %zu waits for the host, %zu without work\n",
            tier_name(s.opt_tier), tier_name(s.param_tier), idle.waits, idle.idle);
        assert_true(idle.waits > 0);
        assert_true(idle.idle <= 1);
    }
}

// ---- what a step cannot do without ----

static void skip_others(struct LeftOut *all) {
    for (int stage = 0; stage < 4 && !whole; stage++) {
        struct RankSettings s = minute_settings(stage, 4);
        s.nmicro = stage ? 1 : 4;
        s.grad_dtype = stage ? BF16 : F32;
        left_out_elsewhere(all, &s);
    }
    left_out_kind_elsewhere(all, "wait by the CPU's in: state stored");
    left_out_kind_elsewhere(all, "record by the CPU's out: state stored");
    // With a GPU the caller has waited for every read of late weights before it sends new ones to
    // the disk; only where a CPU computes is it the queue that waits (test_delay.c).
    left_out_kind_elsewhere(all, "sync by the CPU's out: results received");
}

// Events left out by test_gpu_offload --waits:
static const char *const shown[] = {
    "results received",
    "gradient reduced",
    "new weights made",
    "group updated",
    "weights part arrived",
    "weights made",
    "weights gathered",
    "weights arrived",
    "weights drained",
    "bucket arrived",
    "bucket drained",
    "shard arrived",
    "shard drained",
    "backward done",
    "clipped",
    "piece arrived",
    "piece updated",
    "piece stored",
    "staging arrived",
    "staging drained",
    "staging copied",
    "staging stored",
    "layer made",
    "layer drained",
    "layer arrived",
    "layer staging arrived",
    "layer staging drained",
    "layer staging copied",
    "layer staging stored",
};

// What a step has without offload is left out in test_gpu_train.c. With one layer there are more
// buffers than groups that use them: in other models, who waits for a buffer has also waited for
// the last use of the group that comes into it.
static void every_wait_is_needed(void **state) {
    (void)state;
    static struct LeftOut all;
    static const struct Setup setups[] = {
        {TIER_CPU, TIER_DEVICE, 0, 2, 2, 1, false, 1, TIER_DEVICE},
        {TIER_NVME, TIER_DEVICE, 1, 0, 1, 1, false, 4, TIER_DEVICE},
        {TIER_CPU, TIER_DEVICE, 0, 0, 2, 1, false, 4, TIER_DEVICE},
        {TIER_NVME, TIER_NVME, 3, 0, 1, 1, true, 4, TIER_DEVICE},
        {TIER_CPU, TIER_CPU, 3, 0, 2, 1, false, 4, TIER_DEVICE},
        {TIER_DEVICE, TIER_NVME, 1, 0, 1, 2, false, 4, TIER_DEVICE},
        {TIER_DEVICE, TIER_CPU, 0, 0, 1, 1, false, 1, TIER_DEVICE},
        {TIER_CPU, TIER_DEVICE, 0, 0, 1, 1, true, 4, TIER_DEVICE},
        {TIER_CPU, TIER_CPU, 1, 0, 1, 1, true, 4, TIER_DEVICE},
        {TIER_NVME, TIER_NVME, 3, 2, 1, 1, false, 4, TIER_DEVICE},
        {TIER_CPU, TIER_DEVICE, 2, 2, 2, 1, false, 1, TIER_DEVICE},
        {TIER_CPU, TIER_NVME, 2, 0, 1, 1, false, 4, TIER_DEVICE},
        {TIER_NVME, TIER_CPU, 2, 0, 2, 1, true, 4, TIER_DEVICE},
        {TIER_DEVICE, TIER_NVME, 0, 0, 1, 1, false, 4, TIER_DEVICE},
        {TIER_DEVICE, TIER_CPU, 0, 0, 1, 1, false, 4, TIER_DEVICE},
        {TIER_CPU, TIER_CPU, 1, 0, 1, 1, false, 4, TIER_DEVICE},
        {TIER_DEVICE, TIER_DEVICE, 0, 0, 2, 1, false, 5, TIER_CPU},
        {TIER_DEVICE, TIER_DEVICE, 0, 0, 2, 1, false, 5, TIER_NVME},
    };
    if (sim_is_real())
        skip();
    skip_others(&all);
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        struct RankSettings s = settings_of(&setups[i]);
        left_out_try(&all, &s, whole);
    }
    assert_true(all.count >= 40);
    assert_int_equal(left_out_unneeded(&all), 0);
    left_out_expect(&all, shown, sizeof shown / sizeof shown[0]);
}

int main(int argc, char **argv) {
    log_level = LOG_QUIET; // hundreds of runs
    whole = argc > 1 && strcmp(argv[1], "--whole") == 0;
    bool waits = argc > 1 && strcmp(argv[1], "--waits") == 0;
    const struct CMUnitTest left_out[] = {cmocka_unit_test(every_wait_is_needed)};
    around_all = (struct Around){disk_open, disk_close};
    int failed = waits ? 0 : run_all_tests();
    if (waits || whole)
        failed += cmocka_run_group_tests(left_out, disk_open, disk_close);
    return failed;
}
