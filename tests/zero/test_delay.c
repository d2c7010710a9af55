// Updates that come one step late, against a plain program that makes them so.
//
// The plain program keeps master weights and moments in plain arrays. A step's gradients are those
// of the library's walk, on weights that the program puts there itself; then it calls AdamW on its
// arrays, and hands the walk the weights as they were BEFORE this update if it is a late one (Ren
// et al. 2021, ZeRO-Offload, arXiv 2101.06840, section 5.2), else those after it. It knows no
// queues, tiers or buffers that take turns. Loss, norm and weights of every step must be its to the
// bit, in every placement: in the test in a part in which every two choices meet, with --whole in
// all.
//
//   test_delay           a covering part
//   test_delay --whole   everything; an hour or more
//
// Read next: test_offload_resume.c.
#include "zero/state.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

enum { STEPS = 10, MOST_RANKS = 3, MOST_GROUPS = 8, NEVER = 1 << 30 };

struct Outcome {
    struct TinyStep step[STEPS];
    uint64_t hash[STEPS]; // of the master weights after each step
    float on_the_way, at_the_end;
    int skipped[MOST_RANKS]; // steps, on each rank
};

struct Case {
    struct RankSettings settings;
    bool hashes;  // after every step, which waits for the host each time; else at the end alone
    int poisoned; // in steps 4 and 5 this rank's gradients are infinite; -1: none's
    unsigned delay_us;
    int delayed_queue; // of the host's, then of the device's; -1: none
};

// ---- a gradient that is not finite on one rank ----

static void (*true_classifier)(struct Stream *, const struct Classifier *);

static void infinite_classifier(struct Stream *s, const struct Classifier *args) {
    struct Classifier infinite = *args;
    infinite.dloss = INFINITY;
    true_classifier(s, &infinite);
}

static struct TinyStep take_step(const struct Case *c, struct Rank *r, int i) {
    const struct Kernels *kernels = r->device->kernels;
    struct Kernels poisoned = *kernels;
    poisoned.classifier = infinite_classifier;
    if (r->shard_group->rank == c->poisoned && (i == 3 || i == 4))
        r->device->kernels = &poisoned;
    struct TinyStep step = tiny_step(r);
    r->device->kernels = kernels;
    return step;
}

// ---- the plain program ----

// Whole groups, of which each rank updates its part.
struct Plain {
    struct Case c;
    struct Outcome out;
    float *master[MOST_GROUPS], *before[MOST_GROUPS];
    void *m[MOST_GROUPS], *v[MOST_GROUPS];
};

static void meet(struct Rank *r) {
    zero_share(&r->zero, 0);
}

static uint64_t sum_over_ranks(struct Rank *r, uint64_t mine) {
    const uint64_t *all = zero_share(&r->zero, mine);
    uint64_t sum = 0;
    for (int i = 0; i < r->shard_group->size; i++)
        sum += all[i];
    return sum;
}

static void plain_begin(struct Plain *p, struct Rank *r) {
    struct Zero *z = &r->zero;
    for (int g = 0; g < r->params.ngroup; g++) {
        size_t n = zero_shard_numel(z, g), begin = n * (size_t)r->shard_group->rank;
        size_t padded = r->params.group[g].padded;
        float *chunk = device_alloc_host(r->device, n * sizeof *chunk);
        if (r->shard_group->rank == 0) {
            p->master[g] = base_alloc_zeroed(padded * sizeof(float));
            p->before[g] = base_alloc_zeroed(padded * sizeof(float));
            p->m[g] = base_alloc_zeroed(padded * sizeof(float));
            p->v[g] = base_alloc_zeroed(padded * sizeof(float));
        }
        meet(r);
        zero_read_state(z, g, STATE_MASTER, begin - zero_owned_begin(z, g), n, chunk);
        memcpy(p->master[g] + begin, chunk, n * sizeof *chunk);
        device_free_host(r->device, chunk);
    }
}

static void plain_end(struct Plain *p, int ngroup) {
    for (int g = 0; g < ngroup; g++) {
        free(p->master[g]);
        free(p->before[g]);
        free(p->m[g]);
        free(p->v[g]);
    }
}

// AdamW on this rank's part of a group.
static void plain_update(struct Plain *p, struct Rank *r, int g) {
    struct Zero *z = &r->zero;
    struct Device *d = r->device;
    enum Dtype gd = z->plan.grad.dtype, md = z->plan.moments_dtype;
    size_t n = zero_shard_numel(z, g), begin = n * (size_t)r->shard_group->rank;
    size_t decay_end = r->params.group[g].decay_end;
    void *grad = device_alloc_host(d, n * dtype_size(gd));
    const void *made = dtype_at(z->state[g].grad.mem, gd, begin - z->state[g].grad_begin);
    device_copy(d, QUEUE_OUT, grad, made, n * dtype_size(gd));
    device_sync_queue(d, QUEUE_OUT);
    memcpy(p->before[g] + begin, p->master[g] + begin, n * sizeof(float));
    d->kernels->adamw(
        d->queue[QUEUE_COMPUTE],
        &(struct AdamW){.n = n,
                        .n_decay = decay_end > begin ? size_min(n, decay_end - begin) : 0,
                        .grad_dtype = gd,
                        .moments_dtype = md,
                        .master = p->master[g] + begin,
                        .m = dtype_at(p->m[g], md, begin),
                        .v = dtype_at(p->v[g], md, begin),
                        .grad = grad,
                        .state = zero_last_copy(z)->received_control});
    device_sync_queue(d, QUEUE_COMPUTE);
    device_free_host(d, grad);
}

// The walk's weights become these.
static void plain_put(struct Rank *r, int g, const float *weights) {
    enum Dtype dtype = r->zero.plan.param.dtype;
    size_t n = r->params.group[g].padded;
    void *rounded = device_alloc_host(r->device, n * dtype_size(dtype));
    for (size_t i = 0; i < n; i++)
        dtype_store(rounded, dtype, i, weights[i]);
    device_copy(r->device, QUEUE_IN, r->zero.state[g].param.mem, rounded, n * dtype_size(dtype));
    device_sync_queue(r->device, QUEUE_IN);
    device_free_host(r->device, rounded);
}

static uint64_t plain_hash(struct Plain *p, struct Rank *r) {
    uint64_t hash = 0;
    for (int g = 0; g < r->params.ngroup; g++) {
        size_t n = zero_shard_numel(&r->zero, g), begin = n * (size_t)r->shard_group->rank;
        hash += params_hash(&r->params, g, begin, begin + n, p->master[g] + begin);
    }
    return sum_over_ranks(r, hash);
}

static void keep_step(struct Outcome *out, const struct Rank *r, int i, struct TinyStep step) {
    out->skipped[r->shard_group->rank] += step.skipped;
    if (r->shard_group->rank == 0)
        out->step[i] = step;
}

static void run_plain(void *context, struct Rank *r) {
    struct Plain *p = context;
    const struct RankSettings *s = &p->c.settings;
    int groups = r->params.ngroup;
    CHECK(groups <= MOST_GROUPS, "%d groups", groups);
    plain_begin(p, r);
    for (int i = 0; i < STEPS; i++) {
        bool late = s->delayed && (uint64_t)i >= s->delay_after;
        keep_step(&p->out, r, i, take_step(&p->c, r, i));
        zero_sync(&r->zero);
        for (int g = 0; g < groups; g++)
            plain_update(p, r, g);
        uint64_t hash = plain_hash(p, r);
        for (int g = 0; g < groups; g++)
            plain_put(r, g, late ? p->before[g] : p->master[g]);
        float loss = i == STEPS / 2 ? tiny_validate(r, 7) : 0;
        meet(r);
        if (r->shard_group->rank > 0)
            continue;
        p->out.hash[i] = hash;
        p->out.on_the_way += loss;
    }
    for (int g = 0; g < groups; g++)
        plain_put(r, g, p->master[g]);
    float loss = tiny_validate(r, 7);
    meet(r);
    if (r->shard_group->rank > 0)
        return;
    p->out.at_the_end = loss;
    plain_end(p, groups);
}

// ---- the library ----

struct Offloaded {
    struct Case c;
    struct Outcome out;
};

static void disturb(const struct Case *c, struct Rank *r) {
    if (c->delayed_queue < 0)
        return;
    zero_sync(&r->zero);
    struct Device *d = c->delayed_queue < NQUEUE ? r->host : r->device;
    device_set_delay(d, (enum Queue)(c->delayed_queue % NQUEUE),
                     (struct QueueDelay){c->delay_us, 7});
}

static void run_offloaded(void *context, struct Rank *r) {
    struct Offloaded *o = context;
    disturb(&o->c, r);
    for (int i = 0; i < STEPS; i++) {
        keep_step(&o->out, r, i, take_step(&o->c, r, i));
        uint64_t hash = o->c.hashes || i + 1 == STEPS ? zero_weights_hash(&r->zero) : 0;
        float loss = i == STEPS / 2 ? tiny_validate(r, 7) : 0;
        if (r->shard_group->rank > 0)
            continue;
        o->out.hash[i] = hash;
        o->out.on_the_way += loss;
    }
    zero_install_new_weights(&r->zero);
    float loss = tiny_validate(r, 7);
    if (r->shard_group->rank == 0)
        o->out.at_the_end = loss;
}

// ---- both ----

static const char *name_of(const struct Case *c) {
    static char text[300];
    const struct RankSettings *s = &c->settings;
    snprintf(text, sizeof text,
             "stage %d, %d ranks, %s, moments %s, %zu micro-batches, late after %llu, optimizer on "
             "%s, parameters on %s, prefetch %zu, queue %d",
             s->stage, s->ranks, dtype_name(s->model.dtype), dtype_name(s->moments_dtype),
             s->nmicro, (unsigned long long)s->delay_after, tier_name(s->opt_tier),
             tier_name(s->param_tier), s->prefetch, c->delayed_queue);
    return text;
}

static struct Case case_of(enum Dtype dtype, int ranks, size_t nmicro, uint64_t after) {
    struct Case c = {tiny_settings(dtype), .hashes = true, .poisoned = -1, .delayed_queue = -1};
    struct RankSettings *s = &c.settings;
    struct Error e;
    s->model.layers = 5; // more groups than the host has queued ahead
    s->model.channels = 12;
    assert_ok(model_config_finish(&s->model, &e), &e);
    s->threads = 1;
    s->ranks = ranks;
    s->nmicro = nmicro;
    s->grad_dtype = nmicro > 1 ? F32 : dtype;
    // So large that fp16 has its overflows among the steps, and finds its scale.
    s->loss_scale = (struct LossScaleSettings){0x1p18f, 1, 3, 2};
    s->nvme.folder = disk_folder;
    s->delayed = true;
    s->delay_after = after;
    return c;
}

// The same training, where stages with accumulation add up in the order of this one.
static struct Outcome plain_of(const struct Case *c) {
    struct Plain p = {.c = *c};
    bool by_shards = c->settings.stage >= 2 && c->settings.nmicro > 1;
    p.c.settings.stage = by_shards ? 2 : 0;
    p.c.settings.opt_tier = p.c.settings.param_tier = TIER_DEVICE;
    p.c.settings.delayed = false; // of the library's; the program itself is
    struct RankSettings library = p.c.settings;
    p.c.settings.delayed = c->settings.delayed;
    tiny_ranks(&library, run_plain, &p);
    return p.out;
}

static void expect_same(const struct Outcome *want, const struct Case *c) {
    struct Offloaded o = {.c = *c};
    tiny_ranks(&c->settings, run_offloaded, &o);
    const struct Outcome *got = &o.out;
    for (int i = 0; i < STEPS; i++) {
        const struct TinyStep *a = &want->step[i], *b = &got->step[i];
        bool norm = a->grad_norm == b->grad_norm || (a->skipped && b->skipped);
        if (a->loss != b->loss || !norm || a->skipped != b->skipped)
            fail_msg("%s: loss %.9g and norm %.9g, not %.9g and %.9g, at step %d", name_of(c),
                     b->loss, (double)b->grad_norm, a->loss, (double)a->grad_norm, i + 1);
        if ((c->hashes || i + 1 == STEPS) && want->hash[i] != got->hash[i])
            fail_msg("%s: other weights after step %d", name_of(c), i + 1);
    }
    if (want->on_the_way != got->on_the_way || want->at_the_end != got->at_the_end)
        fail_msg("%s: validation losses %.9g and %.9g, not %.9g and %.9g", name_of(c),
                 (double)got->on_the_way, (double)got->at_the_end, (double)want->on_the_way,
                 (double)want->at_the_end);
    for (int r = 0; r < c->settings.ranks; r++)
        assert_int_equal(want->skipped[r], got->skipped[r]);
}

// ---- tests ----

// Stages that add up in one order share a plain run.
static void compare_placements(struct Case c, int first_stage, int end_stage, int salt) {
    struct RankSettings *s = &c.settings;
    s->stage = first_stage;
    struct Outcome want = plain_of(&c);
    assert_true(isfinite(want.step[STEPS - 1].loss));
    assert_true(want.hash[0] != want.hash[STEPS - 1]);
    for (s->stage = first_stage; s->stage < end_stage; s->stage++)
        for (s->opt_tier = TIER_CPU; s->opt_tier < NTIER; s->opt_tier++)
            for (s->param_tier = TIER_DEVICE; s->param_tier < NTIER; s->param_tier++) {
                int place = s->stage + (int)s->opt_tier + (int)s->param_tier + salt;
                s->prefetch = (size_t)(place + s->stage) % 3;
                c.hashes = place % 2;
                if (whole || place % 3 == 0)
                    expect_same(&want, &c);
            }
}

TEST(fault_08_and_12_late_updates_are_those_of_a_plain_program) {
    static const uint64_t after[] = {0, 3, NEVER};
    static const size_t micros[] = {1, 3};
    for (int i = 0; i < 3 * 3 * 3 * 2 * 2; i++) {
        int dtype = i % 3, ranks = i / 3 % 3, late = i / 9 % 3, micro = i / 27 % 2, narrow = i / 54;
        if (!whole && ((dtype + ranks + late) % 3 || (ranks + micro + narrow) % 2))
            continue;
        struct Case c = case_of((enum Dtype)dtype, 1 + ranks, micros[micro], after[late]);
        c.settings.moments_dtype = narrow ? BF16 : F32;
        if (micro)
            compare_placements(c, 0, 2, i);
        compare_placements(c, micro ? 2 : 0, 4, i);
    }
}

// A delayed update must be another training, or the comparison says nothing.
TEST(a_late_update_is_another_training) {
    struct Case c = case_of(F32, 1, 1, 0);
    struct Outcome late = plain_of(&c);
    c.settings.delay_after = 3;
    struct Outcome later = plain_of(&c);
    c.settings.delay_after = NEVER;
    struct Outcome never = plain_of(&c);
    assert_true(late.step[0].loss == never.step[0].loss);
    assert_true(late.step[1].loss != never.step[1].loss);
    assert_true(later.step[3].loss == never.step[3].loss);
    assert_true(later.step[4].loss != never.step[4].loss);
}

// fp16 overflows by itself in its first steps; here one rank's gradients are infinite in two steps,
// while updates are on their way. All ranks skip these two, and only these.
TEST(fault_09_a_late_update_is_skipped_by_all) {
    for (int i = 0; i < NDTYPE * 4; i++) {
        struct Case c = case_of((enum Dtype)(i % NDTYPE), 3, 1, i % 2 ? 2 : 0);
        struct RankSettings *s = &c.settings;
        s->stage = i / NDTYPE;
        s->loss_scale = (struct LossScaleSettings){1024, 1, 1000, 2};
        s->opt_tier = i % 2 ? TIER_NVME : TIER_CPU;
        s->param_tier = (enum TierKind)(i % NTIER);
        c.poisoned = 1;
        struct Device *d;
        struct Error e;
        assert_int_equal(device_open_cpu(&d, 1, NULL, &e), 0);
        true_classifier = d->kernels->classifier;
        device_close(d);
        struct Outcome want = plain_of(&c);
        assert_true(want.step[3].skipped && want.step[4].skipped && want.skipped[0] == 2);
        assert_true(want.hash[2] == want.hash[4] && want.hash[5] != want.hash[4]);
        expect_same(&want, &c);
    }
}

// Whatever queue is slow: a wait that is missing shows as another number.
TEST(any_queue_may_be_slow) {
    for (int i = 0; i < 2 * NQUEUE * 2; i++) {
        struct Case c = case_of(BF16, 2, 1 + (size_t)i % 2 * 2, 1);
        struct RankSettings *s = &c.settings;
        s->stage = i % 4;
        c.hashes = false;
        c.delay_us = 2000;
        struct Outcome want = plain_of(&c);
        c.delayed_queue = i / 2;
        for (s->opt_tier = TIER_CPU; s->opt_tier < NTIER; s->opt_tier++)
            for (s->param_tier = TIER_DEVICE; s->param_tier < NTIER; s->param_tier++)
                if (whole || ((int)s->opt_tier + (int)s->param_tier + i / 2) % 3 == 0)
                    expect_same(&want, &c);
    }
}

AROUND_ALL(disk_open, disk_close);
