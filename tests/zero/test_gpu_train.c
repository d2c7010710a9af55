// Training on CUDA, in the simulator or on a GPU: the same code as ./train --device cuda runs.
//
// Against the CPU: the losses of ten steps. Against itself: stages, ranks that share a GPU,
// prefetch, overlap and recomputation change no bit; nor does, in the simulator, the order in which
// threads, streams and hosts take their turns. The race detector looks at every run. Then each
// record, wait and synchronisation of a step is left out, one at a time: each must be missed.
//
// The tiny model's sizes are odd, and its heads have 12 elements: its products have no fused
// epilogue, its attention runs on the ordinary units. The wide model is for what GPT-2 runs on.
//
//   test_gpu_train           each kind in the setups that had not shown that it is needed
//   test_gpu_train --whole   each kind in every setup; and every combination of stage, ranks,
//                            format, prefetch, queues and recomputation
//
// Faults 1 to 4 of real trainers: a reduction on the wrong stream, a buffer used again too early,
// the race of a double buffer, a run that differs when it overlaps.
#include "zero/state.h"
#include "tests/cusim/blas_sim.h"
#include "tests/lib/gpu_runs.h"
#include "tests/lib/left_out.h"
#include "tests/lib/planned.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "zero/checkpoint/checkpoint.h"

enum { STEPS = 3 };
enum { SHORT = 96, LONG = 136 }; // tokens of a wide model's sequence

// ---- against the CPU ----

// Losses, and the gradient's norms, each within its share of the CPU's.
static void expect_the_cpus(struct RankSettings s, int steps, double loss_band, double norm_band) {
    struct Outcome gpu = run_steps(&s, steps);
    expect_no_race("some steps");
    s.device = DEVICE_CPU;
    struct Outcome cpu = run_steps(&s, steps);
    for (int i = 0; i < steps; i++) {
        if (!(fabs(gpu.loss[i] - cpu.loss[i]) <= loss_band * cpu.loss[i]))
            fail_msg("%s: loss %.9g at step %d, the CPU says %.9g", dtype_name(s.model.dtype),
                     gpu.loss[i], i + 1, cpu.loss[i]);
        if (!(fabsf(gpu.norm[i] - cpu.norm[i]) <= norm_band * cpu.norm[i]))
            fail_msg("%s: norm %.9g at step %d, the CPU says %.9g", dtype_name(s.model.dtype),
                     gpu.norm[i], i + 1, cpu.norm[i]);
    }
    assert_true(cpu.loss[steps - 1] != cpu.loss[0]);
}

TEST(losses_are_the_cpus) {
    expect_the_cpus(gpu_settings(F32, 1, 0), LONG_STEPS, 1e-5, 1e-4);
}

// Packed and masked: GPT-2's positions begin anew by a sort of their own, Mistral's by its table,
// and its window ends at its document's start.
TEST(packed_losses_are_the_cpus) {
    struct RankSettings s = gpu_settings(F32, 1, 0);
    s.packed = true;
    expect_the_cpus(s, STEPS, 1e-5, 1e-4);
    struct RankSettings mistral = tiny_family(4, F32);
    assert_true(mistral.model.window > 0);
    s.model = mistral.model;
    expect_the_cpus(s, STEPS, 1e-5, 1e-4);
    s.grad_dtype = s.model.dtype = BF16;
    s.ranks = 2;
    struct Outcome reference = run_steps(&s, STEPS);
    for (s.stage = 1; s.stage < 4; s.stage++) {
        struct Outcome other = run_steps(&s, STEPS);
        outcome_expect_same(&reference, &other, &s, "");
    }
    expect_no_race("packed batches");
}

// Of each token's loss, a format's rounding of the logits moves some unit of bf16, each token's its
// own way, so their mean moves less by the root of their number. In fp16 that is finer, but from
// the second step on weights differ: AdamW moves one whose gradient is near 0 by its sign. Losses
// were seen to differ by 7e-5 in either format, and norms by 6e-4; the bands are 3 to 5 times that.
TEST(losses_are_the_cpus_on_tensor_cores) {
    for (enum Dtype d = BF16; d < NDTYPE; d++) {
        struct RankSettings s = wide_settings(d, 1, 0, LONG);
        expect_the_cpus(s, 2 * STEPS, 0x1p-8 / sqrt((double)s.model.seq_len), 0x1p-9);
    }
}

// That these runs are what they are for. Attention's forward pass has two products of a pair of
// tiles, its backward pass three for dQ and four for dK and dV: without one of its kernels a step
// would have less than 3.5 times the forward pass's. Each layer has four biases and one GELU.
TEST(wide_runs_use_tensor_cores) {
    if (sim_is_real())
        skip();
    for (enum Dtype d = BF16; d < NDTYPE; d++) {
        struct RankSettings s = wide_settings(d, 1, 0, LONG);
        struct Rank r;
        tiny_open(&r, &s, 1);
        size_t before = sim_mmas(), forward, step;
        tiny_validate(&r, 1);
        forward = sim_mmas() - before;
        unsigned long bias = sim_blas_fused(BLAS_BIAS), dgelu = sim_blas_fused(BLAS_DGELU);
        tiny_step(&r);
        step = sim_mmas() - before - forward;
        assert_true(forward > 0 && 2 * step > 7 * forward);
        assert_int_equal(sim_blas_fused(BLAS_BIAS) - bias, 4 * s.model.layers);
        assert_int_equal(sim_blas_fused(BLAS_DGELU) - dgelu, s.model.layers);
        rank_close(&r);
    }
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
    struct Error e = {0};
    int rank = r->shard_group->rank;
    if (!s->resumed) {
        tiny_step(r);
        if (checkpoint_save(&r->zero, s->folder, "a run\n", NULL, &e))
            fail_msg("%s", e.text);
        s->bytes[rank] = device_get_choices(r->device, NULL, 0);
        s->choices[rank] = base_alloc(s->bytes[rank]);
        device_get_choices(r->device, s->choices[rank], s->bytes[rank]);
    } else {
        if (checkpoint_resume(&r->zero, (const char *const[]){s->folder, NULL}, "auto", "a run\n",
                              NULL, &e))
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

TEST(tuned_runs_resume) {
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
    return s->one_queue == (s->prefetch == 2) &&
           (size_t)s->recompute == ((size_t)s->stage + s->prefetch) % NRECOMPUTE;
}

// Stages `from` .. 3 with stage 0.
static void compare_stages(struct RankSettings s, int from) {
    struct Outcome reference = run_steps(&s, STEPS);
    assert_true(isfinite(reference.loss[STEPS - 1]));
    expect_no_race("stage 0");
    for (s.stage = from; s.stage < 4; s.stage++)
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

// A part leaves fp16 to the tensor cores' test.
TEST(stages_agree_bitwise) {
    for (enum Dtype d = F32; d < NDTYPE; d++)
        for (int ranks = 2; ranks <= 4; ranks += 2)
            if (whole || (d != F16 && (d == F32) == (ranks == 2)))
                compare_stages(gpu_settings(d, ranks, 0), 0);
}

TEST(stages_agree_on_tensor_cores) {
    compare_stages(wide_settings(BF16, 2, 0, SHORT), 0);
    compare_stages(wide_settings(F16, 2, 0, SHORT), whole ? 0 : 3);
}

// What is recomputed, with a stage for each level, and a plan that is met to the byte. A part has
// one level of each family, and the one that drops the MLP.
TEST(every_family_agrees_bitwise) {
    for (int i = 0; i < TINY_FAMILIES; i++) {
        struct RankSettings s = tiny_family(i, i % 2 ? F32 : BF16);
        s.device = DEVICE_CUDA;
        s.ranks = 2;
        s.nmicro = 1;
        s.grad_dtype = s.model.dtype;
        struct Outcome reference = run_steps(&s, 2);
        assert_true(isfinite(reference.loss[1]));
        for (int level = 1; level < NRECOMPUTE; level++) {
            if (!whole && level != RECOMPUTE_MLP && level != 1 + i % RECOMPUTE_BLOCK)
                continue;
            s.stage = (i + level) % 4;
            s.recompute = (enum Recompute)level;
            struct Outcome other = run_steps(&s, 2);
            expect_same(&reference, &other, &s, tiny_family_name(i));
        }
        planned_is_measured(&s, tiny_family_name(i));
        expect_no_race("a run beside its plan");
    }
}

TEST(fault_04_overlap_changes_no_bit) {
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

TEST(fault_03_any_schedule_on_tensor_cores) {
    if (sim_is_real())
        skip();
    struct RankSettings s = wide_settings(F16, 2, 3, SHORT);
    s.prefetch = 2;
    s.recompute = RECOMPUTE_BLOCK;
    struct Outcome reference = run_steps(&s, STEPS);
    for (uint64_t seed = 1; seed < NSIMORDER; seed++) {
        sim_set_schedule(SIM_RANDOM, seed);
        sim_set_order((enum SimOrder)seed, seed);
        struct Outcome random = run_steps(&s, STEPS);
        expect_same(&reference, &random, &s, "random");
    }
    sim_set_schedule(SIM_EAGER, 0);
    sim_set_order(SIM_FORWARD, 0);
}

TEST(fault_03_any_schedule) {
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

// Events left out by test_gpu_train:
static const char *const shown[] = {
    "word sent",       "backward done",  "loss summed",    "reported",       "clipped",
    "settings used",   "received all",   "group updated",  "group gathered", "weights arrived",
    "weights drained", "bucket drained", "tokens arrived", "tokens drained", "ranks met",
};

// At the end of a step the host waits for its results, which makes up for some of them.
TEST(fault_01_fault_02_every_wait_is_needed) {
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
    s = minute_settings(0, 2);
    left_out_try_validation(&all, &s);
    for (int stage = 0; stage < 4 && whole; stage += 3) {
        s = wide_settings(BF16, 2, stage, SHORT);
        left_out_try(&all, &s, whole);
    }
    assert_true(all.count >= 20);
    assert_int_equal(left_out_unneeded(&all), 0);
    left_out_expect(&all, shown, sizeof shown / sizeof shown[0]);
}
