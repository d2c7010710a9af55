// Training on CUDA, in the simulator or on a GPU: the same code as ./train --device cuda runs.
//
// Against the CPU: the losses of ten steps. Against itself: stages, ranks that share a GPU,
// prefetch, overlap and recomputation change no bit; nor does, in the simulator, the order in which
// threads, streams and hosts take their turns. The race detector looks at every run. Then each
// record, wait and synchronisation of a step is left out, one at a time: each must be missed.
//
//   test_gpu_train           each kind in the setups that had not shown that it is needed
//   test_gpu_train --whole   each kind in every setup; and every combination of stage, ranks,
//                            format, prefetch, queues and recomputation
//
// Faults 1 to 4 of real trainers: a reduction on the wrong stream, a buffer used again too early,
// the race of a double buffer, a run that differs when it overlaps.
#include "tests/gpu_runs.h"
#include "tests/left_out.h"
#include "tests/scratch.h"
#include "zero/checkpoint.h"

enum { STEPS = 3 };

static bool whole; // everything, not a part

// ---- against the CPU ----

static void losses_are_the_cpus(void **state) {
    (void)state;
    struct RankSettings s = gpu_settings(F32, 1, 0);
    struct Outcome gpu = run_steps(&s, LONG_STEPS);
    expect_no_race("10 steps");
    s.device = DEVICE_CPU;
    struct Outcome cpu = run_steps(&s, LONG_STEPS);
    for (int i = 0; i < LONG_STEPS; i++)
        if (!(fabs(gpu.loss[i] - cpu.loss[i]) <= 1e-5 * cpu.loss[i]))
            fail_msg("loss %.9g at step %d, the CPU says %.9g", gpu.loss[i], i + 1, cpu.loss[i]);
    assert_true(cpu.loss[LONG_STEPS - 1] != cpu.loss[0]);
}

// ---- a checkpoint keeps the algorithms of matrix products ----

struct Stop {
    const char *folder;
    bool resumed;
    void *choices[2]; // of each rank, when it stopped
    size_t bytes[2];
    uint64_t hash;
};

static void stop_or_resume(void *context, struct Rank *r) {
    struct Stop *s = context;
    struct Error e = {{0}};
    int rank = r->dp->rank;
    if (!s->resumed) {
        tiny_step(r);
        if (checkpoint_save(&r->zero, s->folder, "a run\n", 1, &e))
            fail_msg("%s", e.text);
        s->bytes[rank] = device_get_choices(r->device, NULL, 0);
        s->choices[rank] = base_alloc(s->bytes[rank]);
        device_get_choices(r->device, s->choices[rank], s->bytes[rank]);
    } else {
        if (checkpoint_resume(&r->zero, s->folder, "auto", "a run\n", &e))
            fail_msg("%s", e.text);
        char *now = base_alloc(s->bytes[rank]);
        CHECK(device_get_choices(r->device, NULL, 0) == s->bytes[rank], "other choices");
        device_get_choices(r->device, now, s->bytes[rank]);
        CHECK(memcmp(now, s->choices[rank], s->bytes[rank]) == 0, "other choices on rank %d", rank);
        free(now);
    }
    tiny_step(r);
    uint64_t hash = zero_weights_hash(&r->zero);
    if (tiny_is_first(r))
        s->hash = hash;
}

static void tuned_runs_resume(void **state) {
    (void)state;
    struct RankSettings s = gpu_settings(BF16, 2, 3);
    s.autotune = true;
    struct Stop stop = {.folder = scratch_make()};
    tiny_ranks(&s, stop_or_resume, &stop);
    uint64_t never_stopped = stop.hash;
    assert_true(stop.bytes[0] > 64 && stop.bytes[1] > 64);
    stop.resumed = true;
    tiny_ranks(&s, stop_or_resume, &stop);
    assert_true(stop.hash == never_stopped);
    for (int r = 0; r < 2; r++)
        free(stop.choices[r]);
    scratch_remove((char *)stop.folder);
}

// ---- the same bits ----

// Of the matrix, a part in which each stage meets each prefetch, queue and recomputation.
static bool is_chosen(const struct RankSettings *s) {
    if (s->stage < 2 && s->prefetch != 1)
        return false; // nothing is fetched or reduced in turns there
    return s->one_queue == (s->prefetch == 2) && (int)s->recompute == s->stage % NRECOMPUTE;
}

static void compare_stages(enum Dtype dtype, int ranks) {
    struct RankSettings s = gpu_settings(dtype, ranks, 0);
    struct Outcome reference = run_steps(&s, STEPS);
    assert_true(isfinite(reference.loss[STEPS - 1]));
    expect_no_race("stage 0");
    for (s.stage = 0; s.stage < 4; s.stage++)
        for (s.prefetch = 0; s.prefetch < 3; s.prefetch++)
            for (int i = 0; i < 2 * NRECOMPUTE; i++) {
                s.one_queue = i % 2;
                s.recompute = (enum Recompute)(i / 2);
                if (!whole && !is_chosen(&s))
                    continue;
                struct Outcome other = run_steps(&s, STEPS);
                expect_same(&reference, &other, &s, s.one_queue ? "one queue" : "four queues");
            }
}

static void stages_agree_bitwise(void **state) {
    (void)state;
    for (enum Dtype d = F32; d < NDTYPE; d++)
        for (int ranks = 2; ranks <= 4; ranks += 2)
            if (whole || (d == F32) == (ranks == 2))
                compare_stages(d, ranks);
}

static void fault_04_overlap_changes_no_bit(void **state) {
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        struct RankSettings s = gpu_settings(BF16, 2, stage);
        s.nmicro = 2;
        s.grad_dtype = F32;
        struct Outcome four = run_steps(&s, STEPS), again = run_steps(&s, STEPS);
        expect_same(&four, &again, &s, "run again");
        s.one_queue = true;
        struct Outcome one = run_steps(&s, STEPS);
        expect_same(&four, &one, &s, "overlap off");
    }
}

// ---- the same bits, in whatever order things happen ----

static void fault_03_any_schedule(void **state) {
    (void)state;
    if (sim_is_real())
        skip();
    for (int stage = 0; stage < 4; stage += 3) {
        struct RankSettings s = gpu_settings(BF16, 2, stage);
        s.prefetch = 2;
        struct Outcome reference = run_steps(&s, STEPS);
        for (int queue = 0; queue < NQUEUE; queue++) {
            sim_set_schedule(SIM_STARVE, (uint64_t)queue);
            struct Outcome starved = run_steps(&s, STEPS);
            expect_same(&reference, &starved, &s, "a starved queue");
        }
        sim_set_schedule(SIM_LAZY, 0);
        struct Outcome lazy = run_steps(&s, STEPS);
        expect_same(&reference, &lazy, &s, "lazy");
        for (uint64_t seed = 1; seed <= 3; seed++) {
            sim_set_schedule(SIM_RANDOM, seed);
            sim_set_order((enum SimOrder)(seed % NSIMORDER), seed);
            struct Outcome random = run_steps(&s, STEPS);
            expect_same(&reference, &random, &s, "random");
        }
        sim_set_schedule(SIM_EAGER, 0);
        sim_set_order(SIM_FORWARD, 0);
    }
}

// ---- what a step cannot do without ----

// At the end of a step the host waits for its results, which makes up for some of them.
static void fault_01_fault_02_every_wait_is_needed(void **state) {
    (void)state;
    static struct LeftOut all;
    if (sim_is_real())
        skip();
    for (int stage = 0; stage < 4; stage++) {
        struct RankSettings s = minute_settings(stage, stage < 2 ? 2 : 4); // each bucket twice
        left_out_try(&all, &s, whole);
    }
    struct RankSettings s = minute_settings(0, 2);
    s.nmicro = 4; // each slot of the feed twice
    s.grad_dtype = F32;
    left_out_try(&all, &s, whole);
    assert_true(all.count >= 20);
    assert_int_equal(left_out_unneeded(&all), 0);
}

int main(int argc, char **argv) {
    whole = argc > 1 && strcmp(argv[1], "--whole") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_the_cpus),
        cmocka_unit_test(tuned_runs_resume),
        cmocka_unit_test(stages_agree_bitwise),
        cmocka_unit_test(fault_04_overlap_changes_no_bit),
        cmocka_unit_test(fault_03_any_schedule),
        cmocka_unit_test(fault_01_fault_02_every_wait_is_needed),
    };
    return cmocka_run_group_tests_name("gpu_train", tests, NULL, NULL);
}
