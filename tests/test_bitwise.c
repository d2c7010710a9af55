// What may not change a single bit of the weights: running again, recomputation, the size of the
// arenas' neighbours, resuming.
#include "tests/tiny.h"

#include "zero/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
// cmocka.h wants the headers above it.
#include <cmocka.h>

enum { STEPS = 6 };

static const enum Dtype dtypes[] = {F32, BF16};

static void a_rerun_gives_the_same_bits(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        struct RankSettings s = tiny_settings(dtypes[d]);
        uint64_t hash = tiny_run(&s, 1, STEPS);
        assert_true(hash == tiny_run(&s, 1, STEPS));
        assert_true(hash != tiny_run(&s, 2, STEPS)); // the hash can tell runs apart
        assert_true(hash != tiny_run(&s, 1, STEPS - 1));
    }
}

static void recomputation_changes_no_bit(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        struct RankSettings s = tiny_settings(dtypes[d]);
        uint64_t hash = tiny_run(&s, 1, STEPS);
        for (int level = 0; level < NRECOMPUTE; level++) {
            s.recompute = (enum Recompute)level;
            assert_true(hash == tiny_run(&s, 1, STEPS));
        }
    }
}

// Each level keeps less than the one before.
static void recomputation_saves_memory(void **state) {
    (void)state;
    struct RankSettings s = tiny_settings(BF16);
    s.model.layers = 8; // where what is kept outweighs what is shared
    size_t last = SIZE_MAX;
    for (int level = 0; level < NRECOMPUTE; level++) {
        struct Rank r;
        struct Error e;
        s.recompute = (enum Recompute)level;
        assert_int_equal(rank_open(&r, &s, true, &e), 0);
        assert_true(r.tier.used[TAG_ACTIVATION] < last);
        last = r.tier.used[TAG_ACTIVATION];
        rank_close(&r);
    }
}

static void dry_tiers_predict_the_allocation(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        struct RankSettings s = tiny_settings(dtypes[d]);
        struct Rank dry, real;
        struct Error e;
        assert_int_equal(rank_open(&dry, &s, true, &e), 0);
        tiny_open(&real, &s, 1);
        for (int tag = 0; tag < NTAG; tag++)
            assert_int_equal(dry.tier.used[tag], real.tier.used[tag]);
        rank_close(&dry);
        rank_close(&real);
    }
}

// Faults 14 and 24: every state survives a checkpoint, and so does the order of the data.
static void fault_14_24_resume_is_bitwise(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        char folder[] = "/tmp/zero-bitwise-XXXXXX";
        assert_non_null(mkdtemp(folder));
        struct RankSettings s = tiny_settings(dtypes[d]);
        uint64_t whole = tiny_run(&s, 1, 2 * STEPS);
        struct Rank r;
        struct Error e = {{0}};
        tiny_open(&r, &s, 1);
        for (int i = 0; i < STEPS; i++)
            tiny_step(&r);
        assert_int_equal(checkpoint_save(&r.zero, folder, "run 1\n", 0, &e), 0);
        rank_close(&r);
        tiny_open(&r, &s, 99); // other weights, so that a state that is not loaded shows
        if (checkpoint_resume(&r.zero, folder, "auto", "run 1\n", &e))
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
static void fault_09_a_step_that_is_not_finite_is_skipped(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rerun_gives_the_same_bits),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(recomputation_saves_memory),
        cmocka_unit_test(dry_tiers_predict_the_allocation),
        cmocka_unit_test(fault_14_24_resume_is_bitwise),
        cmocka_unit_test(fault_09_a_step_that_is_not_finite_is_skipped),
    };
    return cmocka_run_group_tests_name("bitwise", tests, NULL, NULL);
}
