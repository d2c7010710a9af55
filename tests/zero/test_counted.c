// A rank that cannot count the targets of a step is heard as one that cannot read its batches: all
// ranks stop after the same step, with what was trained, and give up the same validation.
#include "zero/state.h"
#include "tests/lib/outcome.h"
#include "zero/run/loop.h"

#include <errno.h>

struct Failing {
    uint64_t steps[2], known[2]; // that each rank made
    bool told[2];
    int validated[2];
};

static int fails_at_fourth(void *rank, uint64_t first, uint64_t n, uint64_t *counted,
                           struct Error *e) {
    const struct Rank *r = rank;
    struct BatchSource good = tiny_source(r);
    if (r->dp->rank == 1 && first / n == 3)
        return error_set(e, -EIO, "a mask cannot be read");
    return good.count(good.data, first, n, counted, e);
}

static int fails(void *rank, uint64_t first, uint64_t n, uint64_t *counted, struct Error *e) {
    const struct Rank *r = rank;
    struct BatchSource good = tiny_source(r);
    if (r->dp->rank == 1)
        return error_set(e, -EIO, "a mask cannot be read");
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
    CHECK(err == -EIO && strcmp(e->text, "a mask cannot be read") == 0, "%d %s", err, e->text);
    w->all->told[w->rank->dp->rank] = true;
    atomic_store(&w->word, WISH_STOP);
}

static bool never_pauses(void *watched, uint64_t step) {
    (void)watched;
    (void)step;
    return false;
}

static bool goes_on(void *watched, const struct StepResult *result, double seconds) {
    (void)watched;
    (void)result;
    (void)seconds;
    return false;
}

static int does_nothing(void *watched, struct Error *e) {
    (void)watched;
    (void)e;
    return 0;
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
    int rank = r->dp->rank;
    r->own_word = &w.word;
    CHECK(!loop_run(&loop, r, &stopped, &e) && stopped, "%s", e.text);
    r->own_word = NULL;
    f->steps[rank] = r->zero.step;
    f->known[rank] = r->zero.known;
    struct BatchSource bad = {read_for, fails, r};
    float loss;
    f->validated[rank] = rank_validate(r, &bad, 5, &loss, &e);
}

static void all_stop_where_one_cannot_count(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_stop_where_one_cannot_count),
    };
    return cmocka_run_group_tests_name("counted", tests, NULL, NULL);
}
