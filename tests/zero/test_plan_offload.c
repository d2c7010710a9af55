// The plan of a run that offloads is what happens: bytes in every tier, over the bus, and from and
// to the disk, predicted for each placement, stage, number of ranks and of micro-batches, and
// counted in a training step. And what a step takes at least follows from them.
#include "tests/lib/planned.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "zero/plan/predict.h"

#include <errno.h>

enum { MAX_RANKS = 3 };

// ---- ranks that train some steps ----

struct Run {
    int steps, validate_before; // that step
    struct Footprint measured[MAX_RANKS];
};

static void train_steps(void *context, struct Rank *r) {
    struct Run *run = context;
    for (int i = 0; i < run->steps; i++) {
        if (i == run->validate_before)
            tiny_validate(r, 5);
        tiny_step(r);
    }
    run->measured[r->shard_group->rank] = footprint_measure(r, &(struct RankSettings){0}, 0);
}

static struct RankSettings settings_of(enum Dtype dtype, int ranks, size_t nmicro) {
    struct RankSettings s = tiny_settings(dtype);
    s.threads = 1;
    s.model.layers = 4; // so that activations leave
    s.ranks = ranks;
    s.nmicro = nmicro;
    s.grad_dtype = nmicro > 1 ? F32 : dtype;
    s.nvme.folder = disk_folder;
    return s;
}

static void check(const struct RankSettings *s) {
    planned_is_measured(s, "gpt2");
}

// ---- every placement ----

static const double ratios[] = {1, 0.3, 0.7};

// All there are for one format, number of ranks and of micro-batches.
static void check_placements(enum Dtype dtype, int ranks, size_t nmicro) {
    struct RankSettings s = settings_of(dtype, ranks, nmicro);
    for (s.stage = 0; s.stage < 4; s.stage++)
        for (s.opt_tier = 0; s.opt_tier < NTIER; s.opt_tier++)
            for (s.param_tier = 0; s.param_tier < NTIER; s.param_tier++)
                for (int ratio = 0; ratio < (s.opt_tier ? 3 : 1); ratio++) {
                    s.offload_ratio = ratios[ratio];
                    s.prefetch = (size_t)(s.stage + ratio + s.param_tier) % 4;
                    s.act_tier = (enum TierKind)((s.stage + (int)s.opt_tier + ratio) % NTIER);
                    s.recompute = (enum Recompute)((ranks + ratio + s.stage) % NRECOMPUTE);
                    check(&s);
                }
}

// Of each format of master weights, also where the device updates, or a part is offloaded.
TEST(moved_bytes_of_masters_are_predicted) {
    for (int i = 0; i < 2 * 4 * NTIER * NTIER; i++) {
        struct RankSettings s = settings_of(BF16, 1 + i % 3, 1);
        s.master_format = i % 2 ? MASTER_SPLIT : MASTER_BF16;
        s.stage = i / 2 % 4;
        s.opt_tier = (enum TierKind)(i / 8 % NTIER);
        s.param_tier = (enum TierKind)(i / 8 / NTIER);
        s.offload_ratio = s.opt_tier ? ratios[i % 3] : 1;
        check(&s);
    }
}

TEST(moved_bytes_are_predicted) {
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
        check_placements(BF16, ranks, 1);
        check_placements(F32, ranks, 3);
    }
}

// fp32 parameters that are the master weights, delayed updates, and narrow moments.
TEST(moved_bytes_of_other_formats_are_predicted) {
    for (int i = 0; i < 72; i++) {
        struct RankSettings s = settings_of(i % 2 ? F32 : BF16, 1 + i % 3, 1 + 2 * (i / 3 % 2));
        s.stage = i / 2 % 4;
        s.opt_tier = 1 + i / 8 % 2;
        s.param_tier = i % 3 ? s.opt_tier : (enum TierKind)(i / 3 % 3);
        s.delayed = i / 16 % 2;
        s.moments_dtype = i / 4 % 2 ? BF16 : F32;
        s.master_format =
            s.model.dtype == BF16 ? (enum MasterFormat)(i / 2 % NMASTER) : MASTER_FP32;
        check(&s);
    }
}

// Groups that are updated in several pieces (offload/update.c).
TEST(moved_bytes_of_long_groups_are_predicted) {
    struct Error e;
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct RankSettings s = settings_of(BF16, ranks, 1);
        s.model = (struct ModelConfig){1, 3, 468, 17, 61, .dtype = BF16};
        assert_int_equal(model_config_finish(&s.model, &e), 0);
        s.opt_tier = s.param_tier = TIER_NVME;
        s.moments_dtype = BF16;
        s.stage = ranks;
        assert_true(12 * 468 * 468 / ranks > 1 << 20);
        check(&s);
    }
}

// ZeRO-Offload, section 4.1: a 16-bit gradient goes out, a 16-bit weight comes in.
TEST(four_bytes_a_parameter_cross_the_bus) {
    struct RankSettings s = settings_of(BF16, 1, 1);
    s.opt_tier = TIER_CPU;
    struct Forecast f = planned(&s);
    assert_true(f.is.moved.in == 2 * f.padded);
    assert_true(f.is.moved.out == 2 * f.padded);
    assert_true(f.is.moved.read + f.is.moved.written == 0);
    check(&s);
    s.opt_tier = TIER_NVME; // as many over the bus; the disk gives 12 and takes 12
    f = planned(&s);
    assert_true(f.is.moved.in + f.is.moved.out == 4 * f.padded);
    assert_true(f.is.moved.read == f.is.moved.written && f.is.moved.read >= 12 * f.padded);
}

TEST(without_offload_nothing_is_moved) {
    struct RankSettings s = settings_of(BF16, 2, 1);
    struct Forecast f = planned(&s);
    assert_true(f.is.moved.in + f.is.moved.out + f.is.moved.read + f.is.moved.written == 0);
    assert_true(f.is.tier[TIER_CPU].peak == 0 && f.is.tier[TIER_NVME].peak == 0);
}

// A step that does not follow another right away has no count: what a validation moved is not its.
TEST(counts_are_of_steps_that_follow_another) {
    struct RankSettings s = settings_of(BF16, 1, 1);
    s.opt_tier = s.param_tier = TIER_CPU;
    struct Run one = {.steps = 1, .validate_before = -1}, two = {.steps = 2, .validate_before = 1};
    tiny_ranks(&s, train_steps, &one);
    assert_false(one.measured[0].moved_known);
    tiny_ranks(&s, train_steps, &two);
    assert_false(two.measured[0].moved_known);
}

// ---- time ----

static struct StepWork work_of(size_t nmicro) {
    return (struct StepWork){
        .moves = {.update = {.in = 10, .read = 200, .written = 100}, .backward = {.out = 10}},
        .flops = {1000, 2000},
        .nmicro = nmicro,
        .disk_ranks = 1};
}

static void expect_seconds(const struct StepWork *w, double disk, double want) {
    struct Speeds s = {.flops = 1000, .in = 100, .out = 50, .read = disk, .written = disk};
    double is = bound_of(w, &s).step;
    if (fabs(is - want) > 1e-9)
        fail_msg("a disk of %g bytes/s, %zu micro-batches: %g s, not %g", disk, w->nmicro, is,
                 want);
}

// A step with the optimizer on NVMe: backward + max(forward, bytes read / its rate + written).
TEST(time_of_a_step) {
    struct StepWork w = work_of(1);
    expect_seconds(&w, 1e6, 2 + 1);
    expect_seconds(&w, 100, 2 + 3);
    w.disk_ranks = 2; // one disk for both
    expect_seconds(&w, 100, 2 + 6);
    w = work_of(4); // the other forward passes hide nothing
    expect_seconds(&w, 100, 2 + 0.75 + 3);
    w.delayed = true; // the whole step hides it
    expect_seconds(&w, 100, 3);
    expect_seconds(&w, 50, 6);
}

// The device's update follows its backward pass; the host's runs beside the next forward pass, or
// beside all of the next step where it is late.
TEST(time_of_the_updates) {
    struct StepWork w = {.flops = {1000, 2000}, .nmicro = 1, .disk_ranks = 1};
    struct Speeds s = {.flops = 1000, .update = 100, .host_update = 50};
    w.update = 50;
    assert_true(bound_of(&w, &s).step == 2 + 0.5 + 1);
    w.host_update = 40;
    assert_true(bound_of(&w, &s).step == 2 + 0.5 + 1);
    w.host_update = 100;
    assert_true(bound_of(&w, &s).step == 2 + 0.5 + 2);
    assert_string_equal(bound_longest(&(struct Bound){.host = 2, .disk = 1, .compute = 1}), "host");
    w.nmicro = 2;
    assert_true(bound_of(&w, &s).step == 2 + 0.5 + 0.5 + 2);
    w.delayed = true;
    assert_true(bound_of(&w, &s).step == 3.5);
    w.host_update = 250;
    assert_true(bound_of(&w, &s).step == 5);
    s.host_update = 0; // not known
    assert_true(bound_of(&w, &s).step == 0);
}

// 28 bytes a parameter in 16 bits: 12 of fp32 state read and written, a gradient, a weight.
TEST(updates_are_predicted) {
    struct RankSettings s = settings_of(BF16, 1, 1);
    s.param_tier = TIER_CPU;
    struct Forecast f = planned(&s);
    assert_true(f.work.update == 28 * (double)f.padded && f.work.host_update == 0);
    s.opt_tier = TIER_CPU;
    f = planned(&s);
    assert_true(f.work.host_update == 28 * (double)f.padded && f.work.update == 0);
    s.offload_ratio = 0.5;
    f = planned(&s);
    assert_true(f.work.host_update > 0 && f.work.update > 0);
    assert_true(f.work.host_update + f.work.update == 28 * (double)f.padded);
    s = settings_of(F32, 2, 1); // the weights are the master weights; each rank updates its half
    s.stage = 1;
    s.opt_tier = TIER_CPU;
    f = planned(&s);
    assert_true(f.work.host_update == 28 * (double)f.padded / 2);
}

// What a machine can do is what is measured: the device's kernels, and the host's.
static double measure_now(const char *where, const char *name, double (*measure)(void *),
                          void *context) {
    (void)where;
    (void)name;
    return measure(context);
}

TEST(speeds_of_updates_are_measured) {
    struct RankSettings s = settings_of(BF16, 1, 1);
    struct Speeds speeds;
    struct Error e;
    s.opt_tier = TIER_CPU;
    s.offload_ratio = 0.5;
    assert_int_equal(speeds_find(&s, true, measure_now, ".", &speeds, &e), 0);
    assert_true(speeds.update > 1e6 && speeds.host_update > 1e6);
    s.offload_ratio = 1;
    assert_int_equal(speeds_find(&s, true, measure_now, ".", &speeds, &e), 0);
    assert_true(speeds.update == 0 && speeds.host_update > 1e6);
}

TEST(time_of_what_is_not_known) {
    struct StepWork w = work_of(1);
    struct Speeds s = {.flops = 1000, .in = 100, .out = 50};
    struct Bound b = bound_of(&w, &s);
    assert_true(b.compute == 3 && b.bus > 0 && b.disk == 0 && b.step == 0);
    s = (struct Speeds){0};
    b = bound_of(&w, &s);
    assert_true(b.compute == 0 && b.bus == 0 && b.disk == 0 && b.step == 0);
}

TEST(the_longest_link_is_named) {
    struct StepWork w = work_of(1);
    struct Speeds s = {.flops = 1000, .in = 100, .out = 50, .read = 200, .written = 200};
    struct Bound b = bound_of(&w, &s);
    assert_string_equal(bound_longest(&b), "compute");
    s.written = 10;
    b = bound_of(&w, &s);
    assert_string_equal(bound_longest(&b), "disk");
    s.out = 0.1;
    b = bound_of(&w, &s);
    assert_string_equal(bound_longest(&b), "bus");
}

// ---- what does not fit ----

// 0, or the error of a run with so much free memory for two ranks; its line in e.
static int fit(const struct RankSettings *s, size_t free_bytes, struct Error *e) {
    struct Forecast f;
    const struct World w = world_of_threads(s->ranks);
    const struct PredictRequest r = {.settings = s, .world = &w};
    *e = (struct Error){0};
    return fit_or_refuse(&r, (struct RankDeviceMemory){free_bytes, 0}, &(struct Speeds){0}, &f, e);
}

// With --device cpu both tiers lie in the machine's memory; a GPU's is its own.
TEST(memory_of_all_tiers_together) {
    struct RankSettings s = settings_of(BF16, 2, 1);
    s.opt_tier = TIER_CPU;
    struct Forecast f = planned(&s);
    size_t device = f.is.tier[TIER_DEVICE].peak, host = f.is.tier[TIER_CPU].peak;
    struct Error e;
    assert_int_equal(f.work.disk_ranks, 2);
    assert_int_equal(fit(&s, 2 * (device + host), &e), 0);
    assert_int_equal(fit(&s, 2 * (device + host) - 2, &e), -ENOMEM);
    assert_true(error_is(&e, "E_MEMORY the machine"));
    s.rank_host_bytes = host;
    s.host_bytes = 2 * host;
    assert_int_equal(fit(&s, SIZE_MAX / 4, &e), 0);
    s.host_bytes = 2 * host - 1;
    assert_int_equal(fit(&s, SIZE_MAX / 4, &e), -ENOMEM);
    assert_true(error_is(&e, "E_MEMORY a node of 2 ranks, --host-mem allows"));
    s.node_size = 1;
    assert_int_equal(fit(&s, SIZE_MAX / 4, &e), 0);
    s.node_size = s.host_bytes = 0;
    s.rank_host_bytes = host - 1;
    assert_int_equal(fit(&s, SIZE_MAX / 4, &e), -ENOMEM);
    assert_true(error_is(&e, "E_MEMORY --host-mem-per-rank allows"));
    s.rank_host_bytes = 0;
    s.device_bytes = device;
    assert_int_equal(fit(&s, SIZE_MAX / 4, &e), 0);
    s.device_bytes = device - 1;
    assert_int_equal(fit(&s, SIZE_MAX / 4, &e), -ENOMEM);
    assert_true(error_is(&e, "E_MEMORY --device-mem"));
}

// Some 10^12 parameters, for which no disk has room.
TEST(the_disk_is_asked_before_anything_is_taken) {
    struct RankSettings s = settings_of(BF16, 2, 1);
    struct Error e;
    s.model = (struct ModelConfig){320, 128, 16384, 17, 61, .dtype = BF16};
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    s.opt_tier = TIER_NVME;
    assert_int_equal(fit(&s, SIZE_MAX / 4, &e), -ENOSPC);
    assert_true(error_is(&e, "E_DISK_FULL --nvme-path"));
    s.nvme.folder = "/no/such";
    assert_int_equal(fit(&s, SIZE_MAX / 4, &e), -ENOENT);
}

AROUND_ALL(disk_open, disk_close);
