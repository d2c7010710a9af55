// Offload with the model on CUDA, in the simulator or on a GPU: the same code as
// ./train --device cuda --offload-optimizer nvme runs.
//
// Against the run in which all lies on the device: tiers of optimizer state and parameters, stages,
// ranks, prefetch, accumulation and the offloaded share change no bit. The race detector looks at
// every run: at the GPU's queues, the host's kernels that update state in pinned memory, and the
// disk. Then, in the simulator, each record, wait and synchronisation of a step is left out, one at
// a time, on the GPU's side and on the host's: each must be missed.
//
//   test_gpu_offload           a covering part
//   test_gpu_offload --whole   every combination; each kind in every setup
#include "tests/gpu_runs.h"
#include "tests/left_out.h"
#include "tests/scratch.h"

enum { STEPS = 3 };

static bool whole;
static char *folder; // on a disk

static const double ratios[] = {1, 0.3, 0.7};

static void offload(struct RankSettings *s, enum TierKind optimizer, enum TierKind param,
                    int ratio) {
    s->threads = 1;
    s->nvme.folder = folder;
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

static void compare_placements(struct RankSettings s) {
    struct Outcome reference = run_steps(&s, STEPS); // at stage 0; the others agree (test_gpu_train)
    assert_true(isfinite(reference.loss[STEPS - 1]));
    expect_no_race("all on the device");
    for (int i = 1; i < NTIER * NTIER; i++)
        for (s.stage = 0; s.stage < 4; s.stage++)
            for (int ratio = 0; ratio < (i >= NTIER ? 3 : 1); ratio++)
                for (s.prefetch = 0; s.prefetch < 3; s.prefetch++) {
                    offload(&s, (enum TierKind)(i / NTIER), (enum TierKind)(i % NTIER), ratio);
                    if (!is_chosen(&s, ratio))
                        continue;
                    struct Outcome other = run_steps(&s, STEPS);
                    expect_same(&reference, &other, &s, "offloaded");
                }
}

static void placements_agree_bitwise(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++)
        for (size_t nmicro = 1; nmicro <= 2; nmicro++) {
            struct RankSettings s = gpu_settings(BF16, ranks, 0);
            s.nmicro = nmicro;
            s.grad_dtype = nmicro > 1 ? F32 : BF16;
            compare_placements(s);
        }
}

// ---- the same bits, in whatever order things happen ----

struct Setup {
    enum TierKind optimizer, param;
    int stage, ratio;
    size_t nmicro, prefetch;
    bool delayed;
};

static struct RankSettings settings_of(const struct Setup *p) {
    struct RankSettings s = minute_settings(p->stage, 4);
    offload(&s, p->optimizer, p->param, p->ratio);
    s.nmicro = p->nmicro;
    s.grad_dtype = p->nmicro > 1 ? F32 : BF16;
    s.prefetch = p->prefetch;
    s.delayed = p->delayed;
    return s;
}

static void any_schedule(void **state) {
    (void)state;
    static const struct Setup setups[] = {
        {TIER_CPU, TIER_DEVICE, 2, 2, 2, 1, false},
        {TIER_NVME, TIER_NVME, 3, 0, 1, 2, false},
        {TIER_NVME, TIER_CPU, 1, 2, 1, 1, true},
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

// ---- what a step cannot do without ----

static void every_wait_is_needed(void **state) {
    (void)state;
    static struct LeftOut all;
    static const struct Setup setups[] = {
        {TIER_CPU, TIER_DEVICE, 0, 0, 1, 1, false}, {TIER_CPU, TIER_DEVICE, 2, 2, 2, 1, false},
        {TIER_CPU, TIER_CPU, 1, 2, 1, 1, false},    {TIER_CPU, TIER_CPU, 3, 0, 2, 1, false},
        {TIER_NVME, TIER_NVME, 0, 0, 2, 1, false},  {TIER_NVME, TIER_NVME, 3, 2, 1, 1, false},
        {TIER_NVME, TIER_DEVICE, 1, 0, 1, 1, false}, {TIER_DEVICE, TIER_NVME, 1, 0, 1, 2, false},
        {TIER_DEVICE, TIER_CPU, 0, 0, 1, 1, false}, {TIER_CPU, TIER_NVME, 2, 0, 1, 1, false},
        {TIER_CPU, TIER_DEVICE, 0, 0, 1, 1, true},  {TIER_NVME, TIER_NVME, 3, 0, 1, 1, true},
        {TIER_CPU, TIER_CPU, 1, 0, 1, 1, true},     {TIER_NVME, TIER_CPU, 2, 0, 2, 1, true},
    };
    if (sim_is_real())
        skip();
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        struct RankSettings s = settings_of(&setups[i]);
        left_out_try(&all, &s, whole);
    }
    assert_true(all.count >= 40);
    assert_int_equal(left_out_unneeded(&all), 0);
}

int main(int argc, char **argv) {
    whole = argc > 1 && strcmp(argv[1], "--whole") == 0;
    folder = scratch_make_in("build");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placements_agree_bitwise),
        cmocka_unit_test(any_schedule),
        cmocka_unit_test(every_wait_is_needed),
    };
    int failed = cmocka_run_group_tests_name("gpu_offload", tests, NULL, NULL);
    scratch_remove(folder);
    return failed;
}
