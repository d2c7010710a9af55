// What may not change a single bit of the weights: running again, recomputation, the size of the
// arenas' neighbours, resuming.
#include "zero/state.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include "zero/checkpoint/checkpoint.h"

#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 6 };

TEST(a_rerun_gives_the_same_bits) {
    for (enum Dtype d = F32; d < NDTYPE; d++) {
        struct RankSettings s = tiny_settings(d);
        uint64_t hash = tiny_run(&s, 1, STEPS);
        assert_true(hash == tiny_run(&s, 1, STEPS));
        assert_true(hash != tiny_run(&s, 2, STEPS)); // the hash can tell runs apart
        assert_true(hash != tiny_run(&s, 1, STEPS - 1));
    }
}

TEST(recomputation_changes_no_bit) {
    for (enum Dtype d = F32; d < NDTYPE; d++) {
        struct RankSettings s = tiny_settings(d);
        uint64_t hash = tiny_run(&s, 1, STEPS);
        for (int level = 0; level < NRECOMPUTE; level++) {
            s.recompute = (enum Recompute)level;
            assert_true(hash == tiny_run(&s, 1, STEPS));
        }
    }
}

// Each level keeps less than the one before.
TEST(recomputation_saves_memory) {
    struct RankSettings s = tiny_settings(BF16);
    s.model.layers = 8; // where what is kept outweighs what is shared
    size_t last = SIZE_MAX;
    for (int level = 0; level < NRECOMPUTE; level++) {
        struct Rank r;
        struct Error e;
        s.recompute = (enum Recompute)level;
        assert_int_equal(rank_open(&r, &s, true, &e), 0);
        assert_true(r.tier[TIER_DEVICE].used[TAG_ACTIVATION] < last);
        last = r.tier[TIER_DEVICE].used[TAG_ACTIVATION];
        rank_close(&r);
    }
}

TEST(dry_tiers_predict_the_allocation) {
    for (enum Dtype d = F32; d < NDTYPE; d++) {
        struct RankSettings s = tiny_settings(d);
        struct Rank dry, real;
        struct Error e;
        assert_int_equal(rank_open(&dry, &s, true, &e), 0);
        tiny_open(&real, &s, 1);
        for (int tag = 0; tag < NTAG; tag++)
            assert_int_equal(dry.tier[TIER_DEVICE].used[tag], real.tier[TIER_DEVICE].used[tag]);
        rank_close(&dry);
        rank_close(&real);
    }
}

// Faults 14 and 24: every state survives a checkpoint, and so does the order of the data.
TEST(fault_14_24_resume_is_bitwise) {
    for (enum Dtype d = F32; d < NDTYPE; d++) {
        char folder[] = "/tmp/zero-bitwise-XXXXXX";
        assert_non_null(mkdtemp(folder));
        struct RankSettings s = tiny_settings(d);
        uint64_t whole = tiny_run(&s, 1, 2 * STEPS);
        struct Rank r;
        struct Error e = {0};
        tiny_open(&r, &s, 1);
        for (int i = 0; i < STEPS; i++)
            tiny_step(&r);
        assert_int_equal(checkpoint_save(&r.zero, folder, "run 1\n", NULL, &e), 0);
        rank_close(&r);
        tiny_open(&r, &s, 99); // other weights, so that a state that is not loaded shows
        if (checkpoint_resume(&r.zero, (const char *const[]){folder, NULL}, "auto", "run 1\n", NULL,
                              &e))
            fail_msg("%s", e.text);
        assert_int_equal(r.zero.step, STEPS);
        for (int i = 0; i < STEPS; i++)
            tiny_step(&r);
        assert_true(whole == zero_weights_hash(&r.zero));
        rank_close(&r);
        char *command = base_format("rm -r %s", folder);
        assert_int_equal(system(command), 0);
        free(command);
    }
}

// Fault 9: an update with a gradient that is not finite is skipped, is reported, and harms nothing.
TEST(fault_09_a_step_that_is_not_finite_is_skipped) {
    struct RankSettings s = tiny_settings(F32);
    struct Rank r;
    tiny_open(&r, &s, 1);
    struct TinyStep step = tiny_step(&r);
    assert_false(step.skipped);
    float *w = zero_master(&r.zero, 1), was = w[5];
    w[5] = INFINITY;
    step = tiny_step(&r);
    assert_true(step.skipped);
    w[5] = was;
    uint64_t hash = zero_weights_hash(&r.zero);
    w[5] = INFINITY;
    assert_true(tiny_step(&r).skipped);
    w[5] = was;
    assert_true(hash == zero_weights_hash(&r.zero)); // the update changed no weight
    step = tiny_step(&r);
    assert_false(step.skipped); // and left no NaN in the moments
    assert_true(isfinite(step.loss) && isfinite(step.grad_norm));
    rank_close(&r);
}

// Steps in fp16 whose gradients are sometimes finite: the scale is too large at the start, and the
// window so short that it soon grows again.
static struct RankSettings fp16_at_the_edge(void) {
    struct RankSettings s = tiny_settings(F16);
    s.grad_dtype = F16;
    s.loss_scale = (struct LossScaleSettings){0x1p24f, 1, 3, 3};
    return s;
}

// Saved after every step: with the hysteresis whole, used in part and used up, and in the middle of
// a window. What a resumed run makes of it must be what the run that went on made.
TEST(resume_keeps_the_loss_scale) {
    enum { LAST = 14 };
    struct RankSettings s = fp16_at_the_edge();
    uint64_t whole = tiny_run(&s, 1, LAST);
    bool used_in_part = false, in_a_window = false, skipped = false;
    for (int at = 1; at < LAST; at++) {
        char folder[] = "/tmp/zero-bitwise-XXXXXX";
        assert_non_null(mkdtemp(folder));
        struct Rank r;
        struct Error e = {0};
        tiny_open(&r, &s, 1);
        for (int i = 0; i < at; i++)
            skipped |= tiny_step(&r).skipped;
        struct LossScale saved = r.zero.loss_scale;
        uint64_t updates = r.zero.updates;
        used_in_part |= saved.hysteresis == 2;
        in_a_window |= saved.good % 3 != 0 && updates < r.zero.step;
        assert_int_equal(checkpoint_save(&r.zero, folder, "run 1\n", NULL, &e), 0);
        rank_close(&r);
        tiny_open(&r, &s, 99);
        assert_int_equal(checkpoint_resume(&r.zero, (const char *const[]){folder, NULL}, "auto",
                                           "run 1\n", NULL, &e),
                         0);
        assert_true(r.zero.updates == updates && r.zero.loss_scale.scale == saved.scale);
        for (int i = at; i < LAST; i++)
            tiny_step(&r);
        if (whole != zero_weights_hash(&r.zero))
            fail_msg("resumed after step %d, with a loss scale of %g and a hysteresis of %d", at,
                     (double)saved.scale, (int)saved.hysteresis);
        rank_close(&r);
        char *command = base_format("rm -r %s", folder);
        assert_int_equal(system(command), 0);
        free(command);
    }
    assert_true(used_in_part && in_a_window && skipped); // or the test shows nothing
}

// The loss is reported as it is, and so is the norm, whatever the scale.
TEST(the_loss_scale_divides_out) {
    static const float scales[] = {256, 65536};
    struct TinyStep step[2];
    for (int i = 0; i < 2; i++) {
        struct RankSettings s = tiny_settings(F16);
        struct Rank r;
        s.loss_scale.initial = scales[i];
        tiny_open(&r, &s, 1);
        step[i] = tiny_step(&r);
        rank_close(&r);
    }
    assert_true(step[0].loss == step[1].loss && isfinite(step[0].grad_norm));
    assert_true(fabsf(step[0].grad_norm - step[1].grad_norm) < 1e-3f * step[0].grad_norm);
    struct RankSettings s = tiny_settings(F32);
    struct Rank r;
    tiny_open(&r, &s, 1);
    struct TinyStep fp32 = tiny_step(&r);
    rank_close(&r);
    assert_true(fabs(step[0].loss - fp32.loss) < 1e-3 * fp32.loss);
    assert_true(fabsf(step[0].grad_norm - fp32.grad_norm) < 1e-2f * fp32.grad_norm);
}

// A skipped step counts as a step, and not as an update: a first update moves a weight by about the
// learning rate, 1e-3, also where the steps before it were skipped.
TEST(skipped_steps_are_no_updates) {
    struct RankSettings s = tiny_settings(F32);
    struct Rank r;
    tiny_open(&r, &s, 1);
    device_sync_queue(r.device, QUEUE_COMPUTE);
    float *w = zero_master(&r.zero, 1), was = w[5];
    w[5] = INFINITY;
    for (int i = 0; i < 3; i++)
        assert_true(tiny_step(&r).skipped);
    assert_true(r.zero.step == 3 && r.zero.updates == 0 && r.zero.skipped_at_least == 3);
    w[5] = was;
    assert_false(tiny_step(&r).skipped);
    assert_true(r.zero.step == 4 && r.zero.updates == 1 && r.zero.skipped_at_least == 0);
    device_sync_queue(r.device, QUEUE_COMPUTE);
    double moved = fabs((double)w[5] - was);
    if (!(moved > 0.9e-3 && moved < 1.2e-3))
        fail_msg("the first update moved a weight by %g", moved);
    rank_close(&r);
}
