// Targets are counted ahead, as batches are read: what a step gets are the batch, the documents'
// starts and the count that the source has for it. And a rank that cannot count the targets of a
// step is heard as one that cannot read its batches: all ranks stop after the same step, with what
// was trained, and give up the same validation.
#include "zero/state.h"
#include "tests/lib/outcome.h"
#include "tests/lib/test.h"
#include "zero/train/loop.h"

#include <errno.h>

// ---- a loop's steps are the source's ----

enum { STEPS = 5 };
static const struct LrSchedule schedule = {.kind = SCHEDULE_CONSTANT, .lr = 1e-3, .steps = STEPS};
static const struct AdamSettings adam = {0.9, 0.95, 1e-8, 0.1, 1};

struct Made {
    bool ahead; // by the loop, which reads ahead; else one by one
    double loss[STEPS];
    uint64_t hash;
    struct Rank *rank; // rank 0
};

static bool never_pauses(void *context, uint64_t step) {
    (void)context;
    (void)step;
    return false;
}

static int does_nothing(void *context, struct Error *e) {
    (void)context;
    (void)e;
    return 0;
}

static bool keep_loss(void *made, const struct StepResult *result, double seconds) {
    struct Made *m = made;
    (void)seconds;
    if (m)
        m->loss[result->step - 1] = rank_mean_loss(m->rank, result);
    return false;
}

static void make_steps(void *context, struct Rank *r) {
    struct Made *m = tiny_is_first(r) ? context : NULL;
    struct Loop loop = {.schedule = schedule,
                        .adam = adam,
                        .from = tiny_source(r),
                        .context = m,
                        .pauses = never_pauses,
                        .ended = keep_loss,
                        .paused = does_nothing};
    struct Error e;
    bool stopped;
    if (m)
        m->rank = r;
    if (((struct Made *)context)->ahead)
        CHECK(!loop_run(&loop, r, &stopped, &e), "%s", e.text);
    while (r->zero.step < STEPS) {
        struct StepState s = schedule_step(&schedule, &adam, r->zero.step, r->zero.updates);
        CHECK(!rank_queue_step(r, &loop.from, &s, &e), "%s", e.text);
        struct StepResult result = zero_step_wait(&r->zero);
        keep_loss(m, &result, 0);
    }
    uint64_t hash = zero_weights_hash(&r->zero);
    if (m)
        m->hash = hash;
}

TEST(reading_ahead_changes_no_bit) {
    struct RankSettings s = tiny_family(4, F32);
    s.packed = true;
    s.threads = 1;
    for (s.ranks = 1; s.ranks <= 2; s.ranks++) {
        struct Made made[2] = {{.ahead = false}, {.ahead = true}};
        for (int i = 0; i < 2; i++)
            tiny_ranks(&s, make_steps, &made[i]);
        assert_memory_equal(made[0].loss, made[1].loss, sizeof made[0].loss);
        assert_true(made[0].hash == made[1].hash && made[0].loss[0] > 0);
    }
}

// ---- a counter that fails ----

struct Failing {
    uint64_t steps[2], known[2]; // that each rank made
    bool told[2];
    int validated[2];
};

static int fails_at_fourth(void *rank, uint64_t first, uint64_t n, uint64_t *counted,
                           struct Error *e) {
    const struct Rank *r = rank;
    struct BatchSource good = tiny_source(r);
    if (r->shard_group->rank == 1 && first / n == 3)
        return error_set(e, -EIO, E_NVME_IO, "a mask cannot be read");
    return good.count(good.data, first, n, counted, e);
}

static int fails(void *rank, uint64_t first, uint64_t n, uint64_t *counted, struct Error *e) {
    const struct Rank *r = rank;
    struct BatchSource good = tiny_source(r);
    if (r->shard_group->rank == 1)
        return error_set(e, -EIO, E_NVME_IO, "a mask cannot be read");
    return good.count(good.data, first, n, counted, e);
}

static int read_for(void *rank, uint64_t first, size_t n, const struct Batch *batch,
                    struct Error *e) {
    struct BatchSource good = tiny_source(rank);
    return good.read(good.data, first, n, batch, e);
}

struct Watched {
    struct Failing *all;
    struct Rank *rank;
    atomic_uint word;
};

static void cannot_read(void *watched, int err, const struct Error *e) {
    struct Watched *w = watched;
    CHECK(err == -EIO && e->id == E_NVME_IO, "%d %s", err, e->text);
    w->all->told[w->rank->shard_group->rank] = true;
    atomic_store(&w->word, REQUEST_STOP);
}

static bool goes_on(void *watched, const struct StepResult *result, double seconds) {
    (void)watched;
    (void)result;
    (void)seconds;
    return false;
}

static void train_until_it_fails(void *context, struct Rank *r) {
    struct Failing *f = context;
    struct Watched w = {.all = f, .rank = r};
    struct Loop loop = {.schedule = {.kind = SCHEDULE_CONSTANT, .lr = 1e-3, .steps = 50},
                        .adam = {0.9, 0.95, 1e-8, 0.1, 1},
                        .from = {read_for, fails_at_fourth, r},
                        .context = &w,
                        .unread = cannot_read,
                        .pauses = never_pauses,
                        .ended = goes_on,
                        .paused = does_nothing};
    struct Error e;
    bool stopped = false;
    int rank = r->shard_group->rank;
    r->own_word = &w.word;
    CHECK(!loop_run(&loop, r, &stopped, &e) && stopped, "%s", e.text);
    r->own_word = NULL;
    f->steps[rank] = r->zero.step;
    f->known[rank] = r->zero.known;
    struct BatchSource bad = {read_for, fails, r};
    float loss;
    f->validated[rank] = rank_validate(r, &bad, 5, &loss, &e);
}

TEST(all_stop_where_one_cannot_count) {
    struct Failing f = {.told = {false, false}};
    struct RankSettings s = tiny_settings(F32);
    s.ranks = 2;
    s.stage = 3;
    s.packed = true;
    tiny_ranks(&s, train_until_it_fails, &f);
    assert_true(!f.told[0] && f.told[1]);
    assert_true(f.steps[0] == f.steps[1] && f.steps[0] >= 1 && f.steps[0] <= 3);
    assert_true(f.known[0] == f.steps[0] && f.known[1] == f.steps[1]);
    assert_int_equal(f.validated[0], -EINTR);
    assert_int_equal(f.validated[1], -EIO);
}
