// A pipeline whose ends share a matrix: the embedding is the first stage's, and the head of the
// last stage has a copy of it. Every gradient is that of one stage to rounding; stages, placements
// and formats change no bit, nor does the count of stages; both ends have the same bits of it, and
// a save says where they have not; and the plan knows the bytes. Checkpoints and exports of such
// runs are test_pipe.sh's.
#include "zero/state.h"
#include "tests/lib/gradients.h"
#include "tests/lib/planned.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"
#include "zero/checkpoint/checkpoint.h"

#include <errno.h>
#include <math.h>

enum { STEPS = 3, LAYERS = 3 };

static const int tried[] = {0, 2, 5}; // of tiny_family, whose heads are tied
enum { FAMILIES = sizeof tried / sizeof tried[0] };

static struct RankSettings settings_of(int family, enum Dtype dtype, int stages, int dp) {
    struct RankSettings s = tiny_family(family, dtype);
    s.model.layers = LAYERS;
    s.threads = 1;
    s.pp = stages;
    s.ranks = stages * dp;
    s.nmicro = (size_t)(4 / dp);
    s.batch = 1;
    return s;
}

// The two parts of a sum of 17 tokens and 61 words, one behind the other rather than mixed: 6e-8.
TEST(gradients_are_of_one_stage) {
    for (int f = 0; f < FAMILIES; f++) {
        struct RankSettings alone = settings_of(tried[f], F32, 1, 1);
        struct Gradients want = gradients_of(&alone);
        for (int stages = 2; stages <= 4; stages++)
            for (int dp = 1; dp <= 2; dp++)
                for (int stage = 0; stage < 4; stage++) {
                    struct RankSettings s = settings_of(tried[f], F32, stages, dp);
                    s.stage = stage;
                    struct Gradients is = gradients_of(&s);
                    gradients_expect_near(&want, &is, &s, 2e-7, tiny_family_name(tried[f]));
                    free(is.gradient);
                }
        free(want.gradient);
    }
}

// Nor does a step leave anything of its gradients to the next one.
TEST(steps_are_those_of_one_stage) {
    for (int f = 0; f < FAMILIES; f++)
        for (int stage = 0; stage < 4; stage++) {
            struct RankSettings s = settings_of(tried[f], F32, 1, 1);
            struct Outcome want = outcome_of(&s, STEPS, -1);
            s.pp = 2;
            s.ranks = 2;
            s.stage = stage;
            struct Outcome is = outcome_of(&s, STEPS, -1);
            for (int i = 0; i < STEPS; i++)
                if (!(fabs(is.loss[i] - want.loss[i]) <= 1e-6 * want.loss[i]) ||
                    !(fabsf(is.norm[i] - want.norm[i]) <= 1e-5f * want.norm[i]))
                    fail_msg("%s, step %d, stage %d: loss %.9g, norm %.9g, not %.9g, %.9g",
                             tiny_family_name(tried[f]), i + 1, stage, is.loss[i],
                             (double)is.norm[i], want.loss[i], (double)want.norm[i]);
        }
}

// Stages 0 and 1 add micro-batches up in another order than 2 and 3.
static void expect_same_of_stages(int family, enum Dtype dtype, int from) {
    struct RankSettings s = settings_of(family, dtype, 2, 1 + from / 2);
    s.stage = from;
    s.grad_dtype = dtype;
    struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
    assert_true(isfinite(want.loss[STEPS - 1]) && want.loss[0] != want.loss[1]);
    for (int k = 0; k < 12; k++) {
        struct RankSettings other = tiny_changed(s, k);
        other.stage = from + k % 2;
        other.act_tier = TIER_DEVICE;
        other.pp = 2 + k % 3;
        other.ranks = other.pp * (1 + from / 2);
        struct Outcome is = outcome_of(&other, STEPS, STEPS - 1);
        outcome_expect_same(&want, &is, &other, tiny_family_name(family));
    }
}

TEST(stages_agree_bitwise) {
    for (int f = 0; f < FAMILIES; f++)
        for (int i = 0; i < 2 * NDTYPE; i++)
            expect_same_of_stages(tried[f], (enum Dtype)(i / 2), i % 2 * 2);
}

// ---- what both ends have ----

enum { ENDS = 4 }; // two stages of two ranks

struct Ends {
    uint64_t hash[ENDS];
    int before[ENDS], after[ENDS]; // an element of a copy was changed
    struct Error e[ENDS];
};

static void hash_ends(void *context, struct Rank *r) {
    struct Ends *ends = context;
    struct Zero *z = &r->zero;
    struct TinyStep steps[STEPS];
    int rank = r->all->rank;
    float *part = device_alloc_host(r->device, STATE_CHUNK * sizeof *part);
    tiny_steps(r, STEPS, steps);
    zero_finish(z);
    for (int g = 0; g < r->params.ngroup; g++) {
        if (!r->params.group[g].shared)
            continue;
        zero_read_state(z, g, STATE_MASTER, 0, zero_owned_numel(z, g), part);
        for (size_t i = 0; i < zero_owned_numel(z, g); i++)
            ends->hash[rank] = ends->hash[rank] * 31 + f32_bits(part[i]);
    }
    ends->before[rank] = shared_check(z, &ends->e[rank]);
    if (rank == ENDS - 1) {
        float other = 2;
        zero_write_state(z, 0, STATE_MASTER, 5, 1, &other);
    }
    ends->after[rank] = shared_check(z, &ends->e[rank]);
    device_free_host(r->device, part);
}

TEST(ends_have_the_same) {
    for (int f = 0; f < FAMILIES; f++) {
        struct RankSettings s = settings_of(tried[f], BF16, 2, 2);
        struct Ends ends = {0};
        s.stage = 3;
        tiny_ranks(&s, hash_ends, &ends);
        assert_int_not_equal(ends.hash[0], ends.hash[1]); // other shards
        for (int rank = 0; rank < ENDS; rank++) {
            assert_int_equal(ends.hash[rank], ends.hash[rank % 2]);
            assert_int_equal(ends.before[rank], 0);
            assert_int_equal(ends.after[rank], -EIO);
            assert_int_equal(!error_is(&ends.e[rank], "E_RANKS_DIFFER rank 3"), rank > 0);
        }
    }
}

// ---- the plan ----

TEST(plan_is_measured) {
    for (int f = 0; f < FAMILIES; f++)
        for (int i = 0; i < 12; i++) {
            struct RankSettings s =
                tiny_changed(settings_of(tried[f], BF16, 2 + i % 2, 1 + i / 6), i);
            s.act_tier = TIER_DEVICE;
            planned_is_measured(&s, tiny_family_name(tried[f]));
        }
}
