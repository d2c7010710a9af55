// The promise of offload: not a bit of the training changes.
//
// Whole runs are compared with the run in which all lies on the device: every step's loss and
// gradient norm, a validation, and the weights' hash at the end. Tiers of optimizer state, of
// parameters and of activations, stages, ranks, formats, accumulation and ratio are all met with
// each other: in the test by a part in which every two of them meet, with --whole by all there are.
// And the disk may be slow.
//
//   test_offload           a covering part
//   test_offload --whole   all tiers with all stages, ranks and formats; some ten minutes
#include "tests/lib/outcome.h"
#include "tests/lib/test.h"
#include "zero/state.h"

enum { STEPS = 20 };

static struct Outcome run(const struct RankSettings *s) {
    return outcome_of(s, STEPS, STEPS / 2);
}

static struct RankSettings settings_of(enum Dtype dtype, int ranks, size_t nmicro) {
    struct RankSettings s = tiny_settings(dtype);
    s.model.layers = 4; // of which two stay where activations are offloaded, or three
    s.threads = 1;
    s.ranks = ranks;
    s.nmicro = nmicro;
    s.grad_dtype = nmicro > 1 ? F32 : dtype;
    // So large that fp16 has its overflows among the steps, and finds its scale.
    s.loss_scale = (struct LossScaleSettings){0x1p20f, 1, 5, 2};
    s.nvme.folder = disk_folder;
    return s;
}

// ---- every placement ----

static const double ratios[] = {1, 0.3, 0.7};

// Of all combinations a part in which every two choices meet; of the whole all tiers, each with one
// prefetch and, besides a ratio of 1, one of the two others.
static bool is_chosen(const struct RankSettings *s, int ratio, int salt) {
    int a = s->opt_tier, b = s->param_tier, c = s->act_tier;
    if (whole)
        return (int)s->prefetch == (a + b + c + s->stage + salt) % 3 &&
               (ratio == 0 || ratio == 1 + (b + c + s->stage + salt) % 2);
    return (a + b + s->stage + ratio + salt) % 3 == 0 && c == (b + 2 * ratio + s->stage) % 3 &&
           (int)s->prefetch == (a + s->stage + ratio) % 3;
}

static void compare_with(const struct Outcome *reference, struct RankSettings s, int salt) {
    for (int ratio = 0; ratio < (s.opt_tier ? 3 : 1); ratio++)
        for (s.prefetch = 0; s.prefetch < 3; s.prefetch++) {
            s.offload_ratio = ratios[ratio];
            if (!is_chosen(&s, ratio, salt))
                continue;
            struct Outcome other = run(&s);
            outcome_expect_same(reference, &other, &s, "");
        }
}

static void compare_placements(enum Dtype dtype, int ranks, size_t nmicro) {
    int salt = (int)dtype + ranks + (int)nmicro;
    for (int stage = 0; stage < 4; stage++) {
        struct RankSettings s = settings_of(dtype, ranks, nmicro);
        s.stage = stage;
        struct Outcome reference = run(&s);
        assert_true(isfinite(reference.loss[STEPS - 1]));
        for (s.opt_tier = 0; s.opt_tier < NTIER; s.opt_tier++)
            for (s.param_tier = 0; s.param_tier < NTIER; s.param_tier++)
                for (s.act_tier = 0; s.act_tier < NTIER; s.act_tier++)
                    compare_with(&reference, s, salt);
    }
}

TEST(fault_08_and_12_placements_agree_bitwise) {
    static const size_t micros[] = {1, 2, 3, 5};
    for (enum Dtype d = F32; d < NDTYPE; d++)
        for (int ranks = 1; ranks <= 3; ranks++)
            for (int i = 0; i < 4; i++)
                if (whole ? micros[i] % 2 && micros[i] < 5 : (int)d == (ranks + i) % NDTYPE)
                    compare_placements(d, ranks, micros[i]);
}

// ---- a slow disk ----

static void train_with_slow_writes(void *context, struct Rank *r) {
    struct Outcome *out = context;
    zero_sync(&r->zero);
    device_set_delay(r->host, QUEUE_OUT, (struct QueueDelay){10000, 7});
    for (int i = 0; i < STEPS; i++)
        outcome_keep(out, r, i, tiny_step(r));
    uint64_t hash = zero_weights_hash(&r->zero);
    if (tiny_is_first(r))
        out->hash = hash;
}

// Where an update has fewer pieces than there are buffers, no piece waits for another's buffer, and
// only the mark of what is kept holds an update's reads back until the last one is on disk.
TEST(an_update_reads_what_the_last_one_wrote) {
    for (int stage = 0; stage < 4; stage += 2) {
        struct RankSettings s = settings_of(BF16, 2, 1);
        s.model.layers = 1;
        s.stage = stage;
        struct Outcome want = outcome_of(&s, STEPS, -1), got = {.steps = STEPS};
        s.opt_tier = TIER_NVME;
        s.offload_ratio = 1;
        tiny_ranks(&s, train_with_slow_writes, &got);
        outcome_expect_same(&want, &got, &s, "a slow disk");
    }
}

static int open_quietly(void **state) {
    log_level = LOG_QUIET; // hundreds of runs
    return disk_open(state);
}

AROUND_ALL(open_quietly, disk_close);
