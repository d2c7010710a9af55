// The promise of ZeRO's stages: not a bit of the training changes.
//
// Whole runs are compared: every step's loss and gradient norm, and the weights' hash at the end.
// At equal world size and one micro-batch all four stages must agree bitwise, however many units
// are fetched ahead and whatever is recomputed. With accumulation stages 0 and 1 add up
// micro-batches before ranks, 2 and 3 ranks before micro-batches: two pairs, equal inside, and to
// rounding between. Another world size adds in another order too.
//
//   test_stages           a part that covers every stage, world size, prefetch and size
//   test_stages --whole   stages x ranks x recomputation x prefetch x formats x sizes; minutes
//   mpirun -np N test_stages --whole     the same with N processes
//
// The whole prints a line for each size, world and format, which must not depend on whether ranks
// are threads or processes: scripts/dev/stage_matrix.sh compares them.
#include "zero/state.h"
#include "tests/lib/outcome.h"
#include "tests/lib/test.h"

enum { STEPS = 20, NSIZE = 7 };

static struct World world;

// Uneven on purpose: vocabularies and groups that no world size divides, and shards of padding
// alone.
static const struct ModelConfig sizes[NSIZE] = {
    {.layers = 2, .heads = 3, .channels = 36, .seq_len = 17, .vocab = 61},
    {.layers = 1, .heads = 1, .channels = 20, .seq_len = 5, .vocab = 11},
    {.layers = 3, .heads = 2, .channels = 24, .seq_len = 9, .vocab = 100},
    {.layers = 2, .heads = 5, .channels = 40, .seq_len = 7, .vocab = 257},
    {.layers = 4, .heads = 1, .channels = 12, .seq_len = 3, .vocab = 7},
    {.layers = 2, .heads = 2, .channels = 2, .seq_len = 2, .vocab = 3}, // more ranks than rows
    {.layers = 2, .heads = 4, .channels = 64, .seq_len = 16, .vocab = 50257},
};

static struct RankSettings settings_of(int size, enum Dtype dtype, int ranks, int stage) {
    struct Error e;
    struct RankSettings s = {
        .model = sizes[size],
        .batch = 2,
        .nmicro = 1,
        .grad_dtype = dtype,
        .stage = stage,
        .prefetch = 1,
        .threads = 1,
        .device_bytes = SIZE_MAX,
        .ranks = ranks,
        // So large that fp16 has its overflows among the steps, and finds its scale.
        .loss_scale = {0x1p20f, 1, 5, 2},
    };
    s.model.dtype = dtype;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    return s;
}

// With a validation of a number of samples that is no multiple of what the ranks take at once.
static struct Outcome run(const struct RankSettings *s, int steps) {
    return outcome_of(s, steps, steps - 1);
}

// ---- one micro-batch: all stages, bitwise ----

// Of a part of the matrix every prefetch, recomputation and stage is met with every size and world.
static bool is_chosen(int size, int ranks, int stage, int prefetch, int recompute) {
    return whole || (prefetch == (size + ranks + stage) % 3 && recompute == (size + stage) % 2);
}

static void compare_stages(int size, enum Dtype dtype, int ranks) {
    if (world.launched && ranks != world.size)
        return;
    struct RankSettings s = settings_of(size, dtype, ranks, 0);
    struct Outcome reference = run(&s, STEPS);
    uint64_t trail = reference.hash;  // of everything that was compared
    for (int i = 0; i < STEPS; i++) { // a NaN's sign is nobody's promise
        float norm = isnan(reference.norm[i]) ? NAN : reference.norm[i];
        trail = rng_mix(trail ^ f32_bits(norm)) + f32_bits((float)reference.loss[i]);
    }
    if (whole && world.first == 0)
        printf("size %d, %d ranks, %s: %016llx\n", size, ranks, dtype_name(dtype),
               (unsigned long long)trail);
    assert_true(isfinite(reference.loss[STEPS - 1]));
    assert_true(reference.loss[0] != reference.loss[STEPS - 1]);
    for (s.stage = 0; s.stage < 4; s.stage++)
        for (s.prefetch = 0; s.prefetch < 3; s.prefetch++)
            for (int block = 0; block < 2; block++) {
                if (!is_chosen(size, ranks, s.stage, (int)s.prefetch, block))
                    continue;
                s.recompute = block ? RECOMPUTE_BLOCK : RECOMPUTE_NONE;
                struct Outcome other = run(&s, STEPS);
                outcome_expect_same(&reference, &other, &s, "");
            }
}

TEST(fault_05_stages_agree_bitwise) {
    for (int size = 0; size < NSIZE; size++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (enum Dtype d = F32; d < NDTYPE; d++)
                if (whole || (int)d == (size + ranks) % NDTYPE)
                    compare_stages(size, d, ranks);
}

// Any number of units ahead, up to more than there are: near the turn of the walk, units that are
// fetched ahead for the backward pass are still in use in the forward pass.
TEST(any_prefetch_agrees_bitwise) {
    static const size_t ahead[] = {0, 3, 4, 5, 6, 7, 8, 9, 64};
    struct RankSettings s = settings_of(0, F32, 2, 0);
    s.model.layers = 8;
    struct Outcome reference = run(&s, 3);
    s.stage = 3;
    for (size_t i = 0; i < sizeof ahead / sizeof ahead[0]; i++) {
        s.prefetch = ahead[i];
        struct Outcome other = run(&s, 3);
        outcome_expect_same(&reference, &other, &s, "");
    }
}

// ---- accumulation ----

static void expect_close(double a, double b, double tolerance, const struct RankSettings *s,
                         int step) {
    if (!(fabs(a - b) <= tolerance * fabs(a)))
        fail_msg("%s: %.9g, not %.9g, at step %d", settings_text(s), b, a, step);
}

TEST(fault_08_accumulation_keeps_the_pairs) {
    static const size_t micros[] = {2, 3, 5};
    for (int i = 0; i < 3; i++)
        for (int ranks = 2; ranks <= (whole ? 4 : 3); ranks++) {
            struct Outcome out[4];
            if (world.launched && ranks != world.size)
                continue;
            struct RankSettings s = settings_of(i, i == 1 ? F16 : F32, ranks, 0);
            double near = i == 1 ? 2e-3 : 1e-6;
            s.grad_dtype = F32;
            s.nmicro = micros[i];
            for (s.stage = 0; s.stage < 4; s.stage++)
                out[s.stage] = run(&s, STEPS);
            outcome_expect_same(&out[0], &out[1], &s, "");
            outcome_expect_same(&out[2], &out[3], &s, "");
            for (int step = 0; step < STEPS; step++)
                expect_close(out[0].loss[step], out[2].loss[step], near, &s, step + 1);
        }
}

// ---- world sizes ----

// The same global batch of 28 sequences. Norm and loss must not know how many ranks there are: a
// norm that counts a rank's own shard only, or whole gradients once per rank, is far off.
TEST(fault_06_07_16_world_sizes_agree) {
    static const int worlds[] = {1, 2, 4, 7};
    for (int size = 0; size < NSIZE; size++) {
        if (!whole && size != 0 && size != 5 && size != 6)
            continue;
        int steps = size == 6 && !whole ? 3 : STEPS;
        for (int stage = 0; stage < 4; stage += whole ? 1 : 3) {
            struct Outcome one = {0};
            for (int w = 0; w < 4; w++) {
                struct RankSettings s = settings_of(size, F32, worlds[w], stage);
                s.batch = 28 / (size_t)worlds[w];
                struct Outcome out = run(&s, steps);
                one = w ? one : out;
                for (int i = 0; i < steps; i++) {
                    expect_close(one.loss[i], out.loss[i], 1e-6, &s, i + 1);
                    expect_close(one.norm[i], out.norm[i], 1e-4, &s, i + 1);
                }
                expect_close((double)one.validation, (double)out.validation, 1e-6, &s, steps);
            }
        }
    }
}

// ---- a gradient that is not finite on one rank ----

static void (*true_classifier)(struct Stream *, const struct Classifier *);

static void infinite_classifier(struct Stream *s, const struct Classifier *args) {
    struct Classifier infinite = *args;
    infinite.dloss = INFINITY;
    true_classifier(s, &infinite);
}

enum { POISONED = 3 }; // ranks

struct Poisoned {
    struct TinyStep bad, good;
    uint64_t before, after, end;
    struct LossScale scale[POISONED]; // of each rank, after two bad steps
};

static void poison_rank_1(void *context, struct Rank *r) {
    struct Poisoned *out = context, mine = {0};
    const struct Kernels *kernels = r->device->kernels;
    struct Kernels poisoned = *kernels;
    poisoned.classifier = infinite_classifier;
    tiny_step(r);
    mine.before = zero_weights_hash(&r->zero);
    r->device->kernels = r->shard_group->rank == 1 ? &poisoned : kernels;
    tiny_step(r);
    mine.bad = tiny_step(r);
    out->scale[r->shard_group->rank] = r->zero.loss_scale;
    r->device->kernels = kernels;
    mine.after = zero_weights_hash(&r->zero);
    mine.good = tiny_step(r);
    mine.end = zero_weights_hash(&r->zero);
    if (r->shard_group->rank > 0)
        return;
    memcpy(mine.scale, out->scale, sizeof mine.scale);
    *out = mine;
}

// fp16 makes the same of it on every rank: the first bad step uses up the hysteresis, the second
// halves the scale.
static void check_scales(const struct Poisoned *p, const struct RankSettings *s) {
    for (int r = 0; r < POISONED; r++) {
        const struct LossScale *got = &p->scale[r];
        float want = s->model.dtype == F16 ? s->loss_scale.initial / 2 : 1;
        if (got->scale != want || got->hysteresis != 1)
            fail_msg("stage %d, %s: rank %d has a loss scale of %g, should have %g", s->stage,
                     dtype_name(s->model.dtype), r, (double)got->scale, (double)want);
    }
}

TEST(fault_09_one_bad_rank_makes_all_skip) {
    for (int i = 0; i < 4 * NDTYPE; i++) {
        int stage = i / NDTYPE;
        struct RankSettings s = settings_of(0, (enum Dtype)(i % NDTYPE), POISONED, stage);
        s.loss_scale.initial = 1024;
        s.loss_scale.window = 1000;
        struct Poisoned p = {0};
        struct Device *d;
        struct Error e;
        assert_int_equal(device_open_cpu(&d, 1, NULL, &e), 0);
        true_classifier = d->kernels->classifier;
        device_close(d);
        tiny_ranks(&s, poison_rank_1, &p);
        assert_true(p.bad.skipped && !isfinite(p.bad.grad_norm));
        assert_true(p.before == p.after);
        assert_true(!p.good.skipped && isfinite(p.good.grad_norm));
        assert_true(p.end != p.after);
        check_scales(&p, &s);
    }
}

// ---- a step that is queued before the result of the last is known ----

enum { AHEAD_STEPS = 8 };

struct AheadRun {
    bool ahead;
    struct TinyStep step[AHEAD_STEPS];
    uint64_t hash, updates;
    struct LossScale scale;
};

// Steps 2, 3 and 5 are bad on rank 1: a bad one behind a good one, a bad one behind a bad one, and
// good ones behind both.
static void run_ahead(void *context, struct Rank *r) {
    struct AheadRun *out = context, mine = {.ahead = out->ahead};
    const struct Kernels *kernels = r->device->kernels;
    struct Kernels poisoned = *kernels;
    poisoned.classifier = infinite_classifier;
    int taken = 0;
    for (int i = 0; i < AHEAD_STEPS; i++) {
        bool bad = r->shard_group->rank == 1 && (i == 2 || i == 3 || i == 5);
        r->device->kernels = bad ? &poisoned : kernels;
        tiny_queue_step(r);
        r->device->kernels = kernels;
        for (; taken < i + !mine.ahead; taken++)
            mine.step[taken] = tiny_take_step(r);
    }
    for (; taken < AHEAD_STEPS; taken++)
        mine.step[taken] = tiny_take_step(r);
    mine.hash = zero_weights_hash(&r->zero);
    mine.updates = r->zero.updates;
    mine.scale = r->zero.loss_scale;
    if (tiny_is_first(r))
        *out = mine;
}

static void expect_same_ahead(const struct AheadRun *a, const struct AheadRun *b,
                              const struct RankSettings *s) {
    bool same = a->hash == b->hash && a->updates == b->updates &&
                a->scale.scale == b->scale.scale && a->scale.hysteresis == b->scale.hysteresis &&
                a->scale.good == b->scale.good;
    for (int i = 0; i < AHEAD_STEPS; i++) {
        const struct TinyStep *x = &a->step[i], *y = &b->step[i];
        bool bad = i == 2 || i == 3 || i == 5;
        same = same && x->loss == y->loss && x->skipped == bad && y->skipped == bad &&
               (bad || x->grad_norm == y->grad_norm);
    }
    if (!same || a->updates != AHEAD_STEPS - 3)
        fail_msg("stage %d, %s: queued ahead, the run has hash %016llx after %llu updates, not "
                 "%016llx after %llu",
                 s->stage, dtype_name(s->model.dtype), (unsigned long long)b->hash,
                 (unsigned long long)b->updates, (unsigned long long)a->hash,
                 (unsigned long long)a->updates);
}

// The device counts updates and finds the loss scale by itself; each bad step changes what the
// steps behind it compute, though one of them was queued before.
TEST(queued_ahead_skips_change_no_bit) {
    struct Device *d;
    struct Error e;
    assert_int_equal(device_open_cpu(&d, 1, NULL, &e), 0);
    true_classifier = d->kernels->classifier;
    device_close(d);
    for (int i = 0; i < 4 * NDTYPE; i++) {
        struct RankSettings s = settings_of(0, (enum Dtype)(i % NDTYPE), 2, i / NDTYPE);
        s.loss_scale = (struct LossScaleSettings){1024, 1, 2, 2};
        struct AheadRun waits = {.ahead = false}, ahead = {.ahead = true};
        tiny_ranks(&s, run_ahead, &waits);
        tiny_ranks(&s, run_ahead, &ahead);
        expect_same_ahead(&waits, &ahead, &s);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests_of_processes[] = {
        cmocka_unit_test(fault_05_stages_agree_bitwise),
        cmocka_unit_test(fault_08_accumulation_keeps_the_pairs),
    };
    whole = argc > 1 && strcmp(argv[1], "--whole") == 0;
    struct Error e;
    CHECK(!world_open(&world, 60, &e), "%s", e.text);
    tiny_join(&world);
    // Other worlds, and a rank that goes wrong alone, are for threads.
    int failed =
        world.launched ? cmocka_run_group_tests(tests_of_processes, NULL, NULL) : run_all_tests();
    world_close(&world);
    return failed;
}
