// Offloaded activations: no bit changes, the device holds a few layers' at a time, what is moved is
// what was predicted, and it moves beside the layers that compute.
//
//   test_keep           a covering part of all combinations
//   test_keep --whole   all
//
// Offloaded activations beside other offloaded state: test_offload.c.
#include "kernels/trace.h"
#include "tests/lib/generate.h"
#include "tests/lib/outcome.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "zero/offload/activations.h"
#include "zero/offload/offload.h"
#include "zero/plan/footprint.h"

#include <errno.h>

enum { LAYERS = 5, STEPS = 4, TRACED = 2, TEXT = 12 };

static struct RankSettings settings_of(enum Dtype dtype, int ranks, size_t nmicro) {
    struct RankSettings s = tiny_settings(dtype);
    s.model.layers = LAYERS;
    s.threads = 1;
    s.ranks = ranks;
    s.nmicro = nmicro;
    s.grad_dtype = nmicro > 1 ? F32 : dtype;
    s.nvme.folder = disk_folder;
    return s;
}

// ---- runs that must be alike ----

// Slow queues, in microseconds per operation.
struct Slow {
    unsigned device[NQUEUE], host[NQUEUE];
};

struct Training {
    struct Slow slow;
    struct Outcome out;
    int32_t text[TEXT];
};

static void slow_down(struct Rank *r, const struct Slow *slow) {
    zero_sync(&r->zero);
    for (int q = 0; q < NQUEUE; q++) {
        device_set_delay(r->device, (enum Queue)q, (struct QueueDelay){slow->device[q], 3});
        if (r->host)
            device_set_delay(r->host, (enum Queue)q, (struct QueueDelay){slow->host[q], 4});
    }
}

// Validation and samples come in between, with batches of other sizes.
static void train_steps(void *context, struct Rank *r) {
    struct Training *t = context;
    int32_t text[TEXT] = {1, 2, 3};
    float validation = 0;
    struct Sampling sampling = {.temperature = 1, .seed = 9};
    slow_down(r, &t->slow);
    for (int i = 0; i < STEPS; i++) {
        outcome_keep(&t->out, r, i, tiny_step(r));
        if (i != 1)
            continue;
        validation = tiny_validate(r, OUTCOME_VALIDATED);
        rank_generate(r, text, 3, TEXT - 3, &sampling);
    }
    uint64_t hash = zero_weights_hash(&r->zero);
    if (!tiny_is_first(r))
        return;
    t->out.validation = validation;
    t->out.hash = hash;
    memcpy(t->text, text, sizeof text);
}

static struct Training run_slowly(const struct RankSettings *s, const struct Slow *slow) {
    struct Training t = {.slow = *slow, .out.steps = STEPS};
    tiny_ranks(s, train_steps, &t);
    return t;
}

static struct Training run(const struct RankSettings *s) {
    return run_slowly(s, &(struct Slow){{0}, {0}});
}

static void expect_same(const struct Training *a, const struct Training *b,
                        const struct RankSettings *s) {
    outcome_expect_same(&a->out, &b->out, s, "");
    if (memcmp(a->text, b->text, sizeof a->text) != 0)
        fail_msg("%s: another text was sampled", settings_text(s));
}

// ---- every level, tier, stage, and number of ranks and micro-batches ----

// Of all combinations a part in which every two choices meet.
static bool is_chosen(const struct RankSettings *s, int salt) {
    int tier = (int)s->act_tier, level = (int)s->recompute;
    return whole || ((level + s->stage + salt) % 4 == 0 &&
                     (int)s->prefetch == (s->stage + tier + salt / 2) % 3);
}

static void compare_stage(enum Dtype dtype, int ranks, size_t nmicro, int stage) {
    struct RankSettings s = settings_of(dtype, ranks, nmicro);
    int salt = (int)dtype + ranks + (int)nmicro;
    s.stage = stage;
    struct Training reference = run(&s);
    assert_true(isfinite(reference.out.loss[STEPS - 1]) &&
                reference.out.loss[0] != reference.out.loss[1]);
    for (s.act_tier = TIER_CPU; s.act_tier < NTIER; s.act_tier++)
        for (int level = RECOMPUTE_NONE; level < NRECOMPUTE; level++)
            for (s.prefetch = 0; s.prefetch < 3; s.prefetch++) {
                s.recompute = (enum Recompute)level;
                if (!is_chosen(&s, salt))
                    continue;
                struct Training other = run(&s);
                expect_same(&reference, &other, &s);
            }
}

TEST(fault_08_and_12_activations_come_back_bitwise) {
    for (enum Dtype d = F32; d <= BF16; d++)
        for (int ranks = 1; ranks <= 3; ranks++)
            for (size_t nmicro = 1; nmicro <= 3; nmicro += 2)
                for (int stage = 0; stage < 4; stage++)
                    if (whole || (ranks + stage + (int)nmicro / 2 + (int)d) % 2)
                        compare_stage(d, ranks, nmicro, stage);
}

// ---- slow queues ----

// Each is slow alone: what does not wait for it then comes too early.
TEST(fault_04_slow_queues_change_no_bit) {
    static const enum Queue queues[] = {QUEUE_COMPUTE, QUEUE_IN, QUEUE_OUT};
    struct RankSettings s = settings_of(F32, 1, 2);
    struct Training reference = run(&s);
    for (s.act_tier = TIER_CPU; s.act_tier < NTIER; s.act_tier++)
        for (s.prefetch = 0; s.prefetch < 3; s.prefetch++) {
            for (int i = 0; i < 3; i++) {
                struct Slow device = {{0}, {0}}, host = device;
                device.device[queues[i]] = queues[i] == QUEUE_COMPUTE ? 200 : 3000;
                host.host[queues[i]] = 3000;
                struct Training other = run_slowly(&s, &device);
                expect_same(&reference, &other, &s);
                other = run_slowly(&s, &host);
                expect_same(&reference, &other, &s);
            }
            s.one_queue = true;
            struct Training other = run(&s);
            expect_same(&reference, &other, &s);
            s.one_queue = false;
        }
}

// ---- memory and traffic ----

struct Taken {
    struct Tier tier[NTIER];
    struct Moved moved;     // of a step
    struct Moved otherwise; // by validation and sampling
    size_t slot, layers_out;
    int rank; // of which
};

static struct Moved difference(struct Moved a, struct Moved b) {
    return (struct Moved){a.in - b.in, a.out - b.out, a.read - b.read, a.written - b.written};
}

static struct Moved predicted(const struct RankSettings *s, int rank) {
    struct Forecast f;
    struct Error e;
    assert_int_equal(footprint_of_rank(s, rank, 1, &f, &e), 0);
    return f.is.moved;
}

static void measure(void *context, struct Rank *r) {
    struct Taken *t = context;
    struct Moved before;
    struct Sampling sampling = {.temperature = 1, .seed = 9};
    int32_t text[TEXT] = {1, 2, 3};
    tiny_step(r);
    before = offload_moved(&r->zero);
    tiny_step(r);
    struct Moved step = difference(offload_moved(&r->zero), before);
    before = offload_moved(&r->zero);
    tiny_validate(r, 5);
    rank_generate(r, text, 3, 2, &sampling);
    if (!tiny_is_first(r))
        return;
    t->moved = step;
    t->otherwise = difference(offload_moved(&r->zero), before);
    t->slot = r->acts.slot_bytes;
    t->layers_out = r->model.config.layers - r->acts.slots;
    memcpy(t->tier, r->tier, sizeof t->tier);
}

static void expect_moved(const struct Moved *is, const struct Moved *want,
                         const struct RankSettings *s) {
    if (memcmp(is, want, sizeof *is) != 0)
        fail_msg("%s: %llu in, %llu out, %llu read, %llu written; predicted %llu, %llu, %llu, %llu",
                 settings_text(s), (unsigned long long)is->in, (unsigned long long)is->out,
                 (unsigned long long)is->read, (unsigned long long)is->written,
                 (unsigned long long)want->in, (unsigned long long)want->out,
                 (unsigned long long)want->read, (unsigned long long)want->written);
}

static struct Taken measured(const struct RankSettings *s) {
    struct Taken t;
    struct Rank dry;
    struct Error e;
    tiny_ranks(s, measure, &t);
    assert_int_equal(rank_open(&dry, s, true, &e), 0);
    for (int kind = 0; kind < NTIER; kind++)
        for (int tag = 0; tag < NTAG; tag++)
            if (t.tier[kind].most[tag] != dry.tier[kind].most[tag])
                fail_msg("%s: %zu bytes of %s on %s, predicted %zu", settings_text(s),
                         t.tier[kind].most[tag], tag_name((enum Tag)tag),
                         tier_name((enum TierKind)kind), dry.tier[kind].most[tag]);
    rank_close(&dry);
    struct Moved moved = predicted(s, 0);
    expect_moved(&moved, &t.moved, s);
    return t;
}

TEST(what_is_taken_and_moved_was_predicted) {
    for (int tier = TIER_CPU; tier < NTIER; tier++)
        for (int level = RECOMPUTE_NONE; level < NRECOMPUTE; level++)
            for (size_t nmicro = 1; nmicro <= 3; nmicro += 2) {
                struct RankSettings s = settings_of(BF16, 1 + level % 2, nmicro);
                s.recompute = (enum Recompute)level;
                s.act_tier = (enum TierKind)tier;
                s.prefetch = (size_t)(tier + level) % 4;
                struct Taken t = measured(&s);
                size_t out = LAYERS - size_max(2, s.prefetch + 1);
                uint64_t bytes = t.slot * out * nmicro, disk = tier == TIER_NVME ? bytes : 0;
                assert_int_equal(t.layers_out, out);
                expect_moved(&t.moved, &(struct Moved){bytes, bytes, disk, disk}, &s);
                expect_moved(&t.otherwise, &(struct Moved){0}, &s);
            }
}

// A stage of a pipeline that has three micro-batches under way, of two layers each; and the last
// one, whose next pass is of the same micro-batch, so that two of its layers stay.
static void measure_stage(void *context, struct Rank *r) {
    struct Taken *t = context;
    struct Moved before;
    tiny_step(r);
    before = offload_moved(&r->zero);
    tiny_step(r);
    if (r->all->rank != t->rank)
        return;
    t->moved = difference(offload_moved(&r->zero), before);
    t->slot = r->acts.slot_bytes;
    memcpy(t->tier, r->tier, sizeof t->tier);
}

TEST(stages_keep_each_micro_batch_elsewhere) {
    static const size_t layers[] = {2, 2, 4}, sets[] = {3, 2, 1};
    for (int rank = 0; rank < 3; rank++) {
        struct RankSettings s = settings_of(F32, 3, 5);
        struct Taken t = {.rank = rank};
        s.pp = 3;
        s.pp_split = "2,2,4";
        s.model.layers = 8;
        s.model.untied = true;
        s.prefetch = 1;
        s.act_tier = TIER_CPU;
        tiny_ranks(&s, measure_stage, &t);
        size_t leave = layers[rank] - (sets[rank] == 1 ? 2 : 0);
        uint64_t bytes = 5 * leave * t.slot;
        assert_int_equal(t.tier[TIER_CPU].most[TAG_ACTIVATION], sets[rank] * leave * t.slot);
        expect_moved(&t.moved, &(struct Moved){bytes, bytes, 0, 0}, &s);
        struct Moved moved = predicted(&s, rank);
        expect_moved(&moved, &t.moved, &s);
    }
}

static size_t bytes_at(enum TierKind act_tier, size_t layers, enum TierKind at) {
    struct RankSettings s = settings_of(F32, 1, 1);
    s.recompute = RECOMPUTE_BLOCK;
    s.model.layers = layers;
    s.act_tier = act_tier;
    return measured(&s).tier[at].most[TAG_ACTIVATION];
}

TEST(the_device_holds_as_much_of_any_depth) {
    for (enum TierKind to = TIER_CPU; to < NTIER; to++) {
        assert_int_equal(bytes_at(to, 3, TIER_DEVICE), bytes_at(to, 12, TIER_DEVICE));
        size_t few = bytes_at(to, 3, to), many = bytes_at(to, 12, to);
        assert_int_equal(many, 10 * few); // all but the last two layers leave
    }
    size_t here = bytes_at(TIER_DEVICE, 3, TIER_DEVICE);
    assert_true(bytes_at(TIER_DEVICE, 12, TIER_DEVICE) > here);
    assert_true(bytes_at(TIER_CPU, 3, TIER_DEVICE) < here);
    assert_int_equal(bytes_at(TIER_DEVICE, 3, TIER_CPU), 0);
    assert_int_equal(bytes_at(TIER_CPU, 2, TIER_CPU), 0); // none need leave
}

// A device too small for all layers' activations holds those of a run that offloads them.
TEST(a_model_that_does_not_fit_trains) {
    struct RankSettings s = settings_of(F32, 1, 1);
    struct Training reference = run(&s);
    struct Rank r;
    struct Error e;
    s.act_tier = TIER_NVME;
    assert_int_equal(rank_open(&r, &s, true, &e), 0);
    s.device_bytes = r.tier[TIER_DEVICE].peak;
    rank_close(&r);
    struct Training other = run(&s);
    expect_same(&reference, &other, &s);
    s.act_tier = TIER_DEVICE;
    assert_int_equal(rank_open(&r, &s, false, &e), -ENOMEM);
    assert_true(error_is(&e, "E_TIER_FULL activations"));
    rank_close(&r);
}

// ---- overlap ----

// Layers that arrived, or left, while the one behind them in the model computed; and other copies.
struct Overlap {
    int fetched, left, alone;
};

static bool overlap(const struct TraceRecord *a, const struct TraceRecord *b) {
    return a->begin < b->end && b->begin < a->end;
}

static bool is_math(const struct TraceRecord *r) {
    return r->label.unit >= 1 && r->label.unit <= LAYERS && strcmp(r->name, "wait") &&
           strcmp(r->name, "record") && strcmp(r->name, "adamw");
}

static bool is_beside(const struct Trace *t, const struct TraceRecord *copy) {
    const struct TraceRing *compute = &t->ring[QUEUE_COMPUTE];
    for (uint64_t i = 0; i < compute->count; i++) {
        const struct TraceRecord *c = &compute->record[i];
        if (c->label.step == TRACED && is_math(c) && c->label.unit == copy->label.unit + 1 &&
            overlap(c, copy))
            return true;
    }
    return false;
}

static int count_beside(const struct Trace *t, enum Queue q, int *alone) {
    const struct TraceRing *ring = &t->ring[q];
    int beside = 0;
    assert_true(ring->count < TRACE_RING);
    for (uint64_t i = 0; i < ring->count; i++) {
        const struct TraceRecord *c = &ring->record[i];
        if (c->label.step != TRACED || c->label.unit < 1 || c->label.unit > LAYERS ||
            strcmp(c->name, "copy") != 0)
            continue;
        bool is = is_beside(t, c);
        beside += is;
        *alone += !is;
    }
    return beside;
}

// A copy must outlast what compute does between two layers, and all that its queue does for a layer
// must not outlast a layer; for the disk the queue does more, and the copy begins later.
static void trace_slowly(void *context, struct Rank *r) {
    struct Overlap *found = context;
    unsigned in_out = r->tier[TIER_NVME].total ? 2000 : 4500;
    slow_down(r, &(struct Slow){{[QUEUE_COMPUTE] = 2000, [QUEUE_IN] = in_out, [QUEUE_OUT] = in_out},
                                {0}});
    for (int i = 0; i < TRACED; i++)
        tiny_step(r);
    zero_sync(&r->zero);
    found->fetched = count_beside(r->trace, QUEUE_IN, &found->alone);
    found->left = count_beside(r->trace, QUEUE_OUT, &found->alone);
}

static struct Overlap overlap_with(enum TierKind tier, size_t prefetch) {
    struct RankSettings s = settings_of(F32, 1, 1);
    struct Overlap found = {0};
    s.act_tier = tier;
    s.prefetch = prefetch;
    s.traced = true;
    tiny_ranks(&s, trace_slowly, &found);
    return found;
}

// A busy machine, or its disk, may be late now and then, but not each time.
TEST(a_layer_computes_while_others_come_and_go) {
    for (enum TierKind tier = TIER_CPU; tier < NTIER; tier++)
        for (size_t prefetch = 0; prefetch < 2; prefetch++) {
            struct Overlap found = {0};
            for (int tries = 0; tries < 8 && found.left + found.fetched < 2 * (LAYERS - 2); tries++)
                found = overlap_with(tier, prefetch);
            print_message("%s, prefetch %zu: beside the next layer %d of 3 left and %d came\n",
                          tier_name(tier), prefetch, found.left, found.fetched);
            assert_int_equal(found.left, LAYERS - 2);
            assert_int_equal(found.fetched, LAYERS - 2);
            assert_int_equal(found.alone, 0);
        }
}

AROUND_ALL(disk_open, disk_close);
