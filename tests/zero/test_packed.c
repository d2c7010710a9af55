// Packed and masked batches, from the reader down: their losses and gradients are those of the same
// documents each in a sequence of its own, however samples fall to ranks and micro-batches; no bit
// depends on another document, a stage, a placement or recomputation; the plan knows their bytes;
// and where nothing counts, losses and gradients are 0. A counter that fails: test_counted.c.
//
// Gradients are read from the first moment of an update that moves no weight: each rank has its
// part of it at every stage, with beta1 1/2 exactly half the gradient.
#include "zero/state.h"
#include "tests/lib/gradients.h"
#include "tests/lib/planned.h"
#include "tests/lib/test.h"

enum { SAMPLES = 18, T = 17, DOCUMENTS_MOST = SAMPLES * T };

// ---- the same documents, each in a sequence of its own ----

struct Documents {
    struct ModelConfig config;
    int32_t inputs[DOCUMENTS_MOST], targets[DOCUMENTS_MOST], starts[DOCUMENTS_MOST]; // packed
    size_t count, begin[DOCUMENTS_MOST + 1];
    bool masked; // no target counts
};

static void find_documents(struct Documents *d, const struct ModelConfig *c) {
    struct Batch all = {d->inputs, d->targets, d->starts};
    struct Error e;
    d->config = *c;
    assert_int_equal(c->seq_len, T);
    assert_int_equal(tiny_read(&d->config, 0, SAMPLES, &all, &e), 0);
    for (size_t i = 0; i < DOCUMENTS_MOST; i++)
        if (d->starts[i] == (int32_t)(i % T))
            d->begin[d->count++] = i;
    d->begin[d->count] = DOCUMENTS_MOST;
}

static int read_packed(void *documents, uint64_t first, size_t n, const struct Batch *batch,
                       struct Error *e) {
    const struct Documents *d = documents;
    size_t from = first % SAMPLES * T, bytes = n * T * sizeof *d->inputs;
    (void)e;
    memcpy(batch->inputs, d->inputs + from, bytes);
    memcpy(batch->targets, d->targets + from, bytes);
    if (batch->starts)
        memcpy(batch->starts, d->starts + from, bytes);
    for (size_t i = 0; d->masked && i < n * T; i++)
        batch->targets[i] = UNCOUNTED;
    return 0;
}

// Padded behind their ends.
static int read_alone(void *documents, uint64_t first, size_t n, const struct Batch *batch,
                      struct Error *e) {
    const struct Documents *d = documents;
    (void)e;
    for (size_t i = 0; i < n; i++) {
        const size_t *begin = &d->begin[(first + i) % d->count];
        size_t length = begin[1] - begin[0];
        for (size_t t = 0; t < T; t++) {
            batch->inputs[i * T + t] = t < length ? d->inputs[*begin + t] : 1;
            batch->targets[i * T + t] = t < length ? d->targets[*begin + t] : UNCOUNTED;
        }
    }
    return 0;
}

static int count_all(void *documents, uint64_t first, uint64_t n, uint64_t *counted,
                     struct Error *e) {
    const struct Documents *d = documents;
    (void)first;
    (void)n;
    (void)e;
    *counted = 0;
    for (size_t i = 0; i < DOCUMENTS_MOST; i++)
        *counted += !d->masked && d->targets[i] != UNCOUNTED;
    return 0;
}

// ---- the gradients of one step ----

struct Step {
    struct BatchSource from;
    double loss, validation;
    float norm;
    bool skipped;
    size_t n; // of all groups, padding included
    float *gradient;
};

static void keep_gradients(struct Step *s, struct Rank *r) {
    struct Zero *z = &r->zero;
    float *part = device_alloc_host(r->device, STATE_CHUNK * sizeof *part);
    size_t at = 0;
    for (int g = 0; g < r->params.ngroup; g++) {
        size_t n = zero_owned_numel(z, g), begin = zero_owned_begin(z, g);
        CHECK(n <= STATE_CHUNK, "a group of %zu", n);
        zero_read_state(z, g, STATE_M, 0, n, part);
        if (n < r->params.group[g].padded || tiny_is_first(r))
            memcpy(s->gradient + at + begin, part, n * sizeof *part);
        at += r->params.group[g].padded;
    }
    device_free_host(r->device, part);
}

// Fresh weights are so small that a token's loss hardly knows what it attends to.
static void enlarge_weights(struct Rank *r) {
    struct Zero *z = &r->zero;
    float *part = device_alloc_host(r->device, STATE_CHUNK * sizeof *part);
    for (int g = 0; g < r->params.ngroup; g++) {
        size_t n = zero_owned_numel(z, g);
        zero_read_state(z, g, STATE_MASTER, 0, n, part);
        for (size_t i = 0; i < n; i++)
            part[i] *= fabsf(part[i]) < 0.5f ? 8 : 1; // norms' stay
        zero_write_state(z, g, STATE_MASTER, 0, n, part);
    }
    zero_store_params(z, false);
    device_free_host(r->device, part);
}

static void make_step(void *context, struct Rank *r) {
    struct Step *s = context;
    enlarge_weights(r);
    struct StepState settings = gradients_still(r);
    struct Error e;
    float validation;
    CHECK(!rank_queue_step(r, &s->from, &settings, &e), "%s", e.text);
    struct StepResult result = zero_step_wait(&r->zero);
    CHECK(!rank_validate(r, &s->from,
                         r->acts.b_max * (size_t)r->shard_group->size * r->zero.plan.nmicro,
                         &validation, &e),
          "%s", e.text);
    if (tiny_is_first(r)) {
        s->loss = rank_mean_loss(r, &result);
        s->norm = result.grad_norm;
        s->skipped = result.skipped;
        s->validation = (double)validation;
    }
    keep_gradients(s, r);
}

static struct Step step_of(const struct RankSettings *s, BatchReader *read, struct Documents *d) {
    struct Step step = {.from = {read, count_all, d}};
    struct Params p;
    params_layout(&s->model, (size_t)s->ranks, 0, 1, &p);
    for (int g = 0; g < p.ngroup; g++)
        step.n += p.group[g].padded;
    params_free(&p);
    step.gradient = base_alloc_zeroed(step.n * sizeof *step.gradient);
    tiny_ranks(s, make_step, &step);
    for (size_t i = 0; i < step.n; i++)
        step.gradient[i] *= 2;
    return step;
}

// Groups are padded to the number of ranks: real elements are at the same places in each alone.
static size_t real_at(const struct Params *p, size_t i, size_t *padded_at) {
    size_t real = 0, padded = 0;
    for (int g = 0; g < p->ngroup; g++) {
        if (i < real + p->group[g].numel) {
            *padded_at = padded + i - real;
            return 1;
        }
        real += p->group[g].numel;
        padded += p->group[g].padded;
    }
    return 0;
}

struct Difference {
    double most, largest; // of the gradients' elements, and of one of them
};

static struct Difference compare(const struct Step *a, const struct RankSettings *sa,
                                 const struct Step *b, const struct RankSettings *sb) {
    struct Difference d = {0, 0};
    struct Params pa, pb;
    size_t at, bt;
    params_layout(&sa->model, (size_t)sa->ranks, 0, 1, &pa);
    params_layout(&sb->model, (size_t)sb->ranks, 0, 1, &pb);
    for (size_t i = 0; real_at(&pa, i, &at) && real_at(&pb, i, &bt); i++) {
        double x = (double)a->gradient[at], y = (double)b->gradient[bt];
        if (!(fabs(x - y) <= d.most) && !isnan(d.most)) // a NaN is kept
            d.most = fabs(x - y);
        d.largest = fmax(d.largest, fabs(x));
    }
    params_free(&pa);
    params_free(&pb);
    return d;
}

static struct RankSettings settings_of(int family, int ranks, size_t nmicro, int stage) {
    struct RankSettings s = tiny_family(family, F32);
    s.threads = 1;
    s.ranks = ranks;
    s.nmicro = nmicro;
    s.stage = stage;
    s.batch = SAMPLES / (size_t)ranks / nmicro;
    s.packed = true;
    return s;
}

static struct RankSettings alone_settings(int family, const struct Documents *d) {
    struct RankSettings s = settings_of(family, 1, 1, 0);
    s.packed = false;
    s.batch = d->count;
    return s;
}

static void expect_near(const struct Step *want, const struct RankSettings *alone,
                        const struct Step *is, const struct RankSettings *packed,
                        const char *family) {
    struct Difference d = compare(want, alone, is, packed);
    if (!(fabs(is->loss - want->loss) <= 1e-6 * want->loss) ||
        !(fabs(is->validation - want->validation) <= 1e-6 * want->validation))
        fail_msg("%s, %s: losses %.9g and %.9g, each document alone %.9g and %.9g", family,
                 settings_text(packed), is->loss, is->validation, want->loss, want->validation);
    if (!(d.most <= 1e-6 * d.largest))
        fail_msg("%s, %s: a gradient differs by %g of the largest", family, settings_text(packed),
                 d.most / d.largest);
}

// GPT-2, and families with rotary positions: Llama, with a window, with norms of heads.
static const int tried[] = {0, 3, 4, 6};
enum { FAMILIES = sizeof tried / sizeof tried[0] };

TEST(packed_is_unpacked) {
    for (int f = 0; f < FAMILIES; f++) {
        struct Documents d = {.count = 0};
        struct RankSettings some = tiny_family(tried[f], F32);
        find_documents(&d, &some.model);
        assert_true(d.count > 2 * SAMPLES && d.count < DOCUMENTS_MOST / 2);
        struct RankSettings alone = alone_settings(tried[f], &d);
        struct Step want = step_of(&alone, read_alone, &d);
        assert_true(fabs(want.validation - want.loss) <= 1e-6 * want.loss);
        for (int ranks = 1; ranks <= 3; ranks++)
            for (size_t nmicro = 1; nmicro <= 3; nmicro += 2)
                for (int stage = 0; stage <= 3; stage += 3) {
                    struct RankSettings s = settings_of(tried[f], ranks, nmicro, stage);
                    struct Step is = step_of(&s, read_packed, &d);
                    expect_near(&want, &alone, &is, &s, tiny_family_name(tried[f]));
                    free(is.gradient);
                }
        free(want.gradient);
    }
}

// ---- another document ----

// Every second document of a sequence counts for nothing. Then its tokens are others.
static void mask_every_second(struct Documents *d, bool change) {
    for (size_t k = 0; k < d->count; k++)
        for (size_t i = d->begin[k]; k % 2 == 0 && i < d->begin[k + 1]; i++) {
            d->targets[i] = UNCOUNTED;
            if (change)
                d->inputs[i] = (int32_t)((size_t)(d->inputs[i] + 1) % d->config.vocab);
        }
}

TEST(another_document_changes_no_bit) {
    for (int f = 0; f < FAMILIES; f++)
        for (int packed = 0; packed < 2; packed++) {
            struct RankSettings s = settings_of(tried[f], 1, 1, 0);
            struct Step step[2];
            s.packed = packed == 1;
            for (int change = 0; change < 2; change++) {
                struct Documents d = {.count = 0};
                find_documents(&d, &s.model);
                mask_every_second(&d, change == 1);
                step[change] = step_of(&s, read_packed, &d);
            }
            struct Difference d = compare(&step[0], &s, &step[1], &s);
            bool same = step[0].loss == step[1].loss && d.most == 0;
            if (same != s.packed)
                fail_msg("%s, %s: loss %.9g with other tokens beside, was %.9g; a gradient differs "
                         "by %g",
                         tiny_family_name(tried[f]), settings_text(&s), step[1].loss, step[0].loss,
                         d.most);
            assert_true(step[0].loss > 0 && d.largest > 0);
            free(step[0].gradient);
            free(step[1].gradient);
        }
}

// ---- stages, placements, recomputation, formats ----

enum { STEPS = 3 };

TEST(stages_agree_bitwise) {
    for (int f = 0; f < FAMILIES; f++)
        for (enum Dtype dtype = F32; dtype < NDTYPE; dtype++) {
            struct RankSettings s = tiny_family(tried[f], dtype);
            s.threads = 1;
            s.ranks = 1 + (f + (int)dtype) % 3;
            s.nmicro = 1;
            s.grad_dtype = dtype;
            s.packed = true;
            struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
            assert_true(isfinite(want.loss[STEPS - 1]) && want.loss[0] != want.loss[1]);
            for (int i = 0; i < 12; i++) {
                struct RankSettings other = tiny_changed(s, i);
                struct Outcome is = outcome_of(&other, STEPS, STEPS - 1);
                outcome_expect_same(&want, &is, &other, tiny_family_name(tried[f]));
            }
        }
}

// A delayed update is another run, but the same one at every stage.
TEST(delayed_updates_agree_bitwise) {
    struct RankSettings s = tiny_family(0, BF16);
    s.ranks = 2;
    s.threads = 1;
    s.packed = s.delayed = true;
    s.opt_tier = TIER_CPU;
    s.nmicro = 1;
    struct Outcome want = outcome_of(&s, STEPS, -1);
    for (s.stage = 1; s.stage <= 3; s.stage++) {
        struct Outcome is = outcome_of(&s, STEPS, -1);
        outcome_expect_same(&want, &is, &s, "");
    }
}

// Accumulation adds in another order, at stages 0 and 1 as at 2 and 3.
TEST(other_splits_agree) {
    struct RankSettings s = tiny_family(3, F32);
    s.packed = true;
    s.threads = 1;
    s.nmicro = 6;
    s.batch = 1;
    struct Outcome want = outcome_of(&s, STEPS, STEPS - 1);
    static const struct {
        int ranks;
        size_t nmicro, batch;
    } splits[] = {{1, 1, 6}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};
    for (int i = 0; i < 4; i++)
        for (s.stage = 0; s.stage < 4; s.stage++) {
            s.ranks = splits[i].ranks;
            s.nmicro = splits[i].nmicro;
            s.batch = splits[i].batch;
            struct Outcome is = outcome_of(&s, STEPS, STEPS - 1);
            for (int k = 0; k < STEPS; k++)
                if (!(fabs(is.loss[k] - want.loss[k]) <= 1e-6 * want.loss[k]))
                    fail_msg("%s: loss %.9g at step %d, not %.9g", settings_text(&s), is.loss[k],
                             k + 1, want.loss[k]);
            assert_true(fabsf(is.validation - want.validation) <= 1e-6f * want.validation);
        }
}

// ---- memory ----

// Four arrays of a batch where there is a window besides, else three; else two, as ever.
TEST(plan_is_what_happens) {
    for (int f = 0; f < FAMILIES; f++)
        for (int i = 0; i < 4; i++) {
            struct RankSettings s = tiny_family(tried[f], i % 2 ? F32 : BF16);
            s.threads = 1;
            s.ranks = 1 + i % 3;
            s.nmicro = 1 + (size_t)i % 2;
            s.grad_dtype = F32;
            s = tiny_changed(s, i);
            size_t before = planned(&s).is.tier[TIER_DEVICE].peak;
            size_t array = s.batch * s.model.seq_len * sizeof(int32_t);
            bool window = s.model.window > 0;
            size_t host = feed_host_bytes(&s);
            s.packed = true;
            size_t more = planned_is_measured(&s, "packed").is.tier[TIER_DEVICE].peak - before;
            assert_int_equal(feed_host_bytes(&s) - host, (window ? 4 : 2) * array);
            if (s.model.family->position == POSITION_ROTARY && !window)
                assert_int_equal(more, 2 * (round_up(3 * array, 64) - round_up(2 * array, 64)));
        }
}

// ---- nothing counts ----

TEST(a_step_that_counts_nothing_is_a_gradient_of_zero) {
    for (int ranks = 1; ranks <= 3; ranks += 2)
        for (int stage = 0; stage <= 3; stage += 3) {
            struct Documents d = {.masked = true};
            struct RankSettings s = settings_of(0, ranks, 3, stage);
            find_documents(&d, &s.model);
            struct Step step = step_of(&s, read_packed, &d);
            assert_true(step.loss == 0 && step.validation == 0 && step.norm == 0);
            assert_false(step.skipped);
            for (size_t i = 0; i < step.n; i++)
                assert_true(step.gradient[i] == 0);
            free(step.gradient);
        }
}
