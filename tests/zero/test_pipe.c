// The order of a pipeline's step (zero/pipe/order.h), and its cuts: for all counts of stages up to
// 8 and of micro-batches up to 32, each stage for itself goes down its list of passes, and waits in
// each swap for its neighbour, as ranks do: nobody waits for ever, and every pass finds what it
// works on. Bits of runs are compared in test_pipe.sh.
#include "zero/pipe/order.h"
#include "zero/pipe/split.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_STAGES = 8, MOST_MICROS = 32 };

// ---- stages that wait for each other ----

// Of a stage: where it is in its list, and what has come to it and what it has made.
struct Walker {
    struct Pass pass[2 * MOST_MICROS];
    size_t at;
    enum { BEFORE, AT_SWAP_BEFORE, COMPUTES, AT_SWAP_BEHIND } where;
    bool forward[MOST_MICROS], backward[MOST_MICROS]; // passes that it has made
    bool input[MOST_MICROS], gradient[MOST_MICROS];   // what it was handed
    size_t kept, most_kept;
};

struct Line {
    int stages;
    size_t micros;
    struct Walker walker[MOST_STAGES];
};

// The swap that a walker waits in: with which stage, what it sends, and whether it receives.
struct Wanted {
    int with;
    size_t sends;
    bool receives;
};

static bool wants(const struct Line *l, int stage, struct Wanted *out) {
    const struct Walker *w = &l->walker[stage];
    const struct Pass *p = &w->pass[w->at];
    if (w->where == AT_SWAP_BEFORE)
        *out = (struct Wanted){p->backward ? stage + 1 : stage - 1, ORDER_NONE, true};
    else if (w->where == AT_SWAP_BEHIND)
        *out = (struct Wanted){p->backward ? stage - 1 : stage + 1, p->micro, p->exchanges};
    return w->where == AT_SWAP_BEFORE || w->where == AT_SWAP_BEHIND;
}

// Of what a walker receives in its swap, the pass that works on it: this one, or the next.
static const struct Pass *receiver(const struct Walker *w) {
    return &w->pass[w->at + (w->where == AT_SWAP_BEHIND)];
}

static void take(struct Line *l, int stage, const struct Wanted *mine, const struct Wanted *other) {
    struct Walker *w = &l->walker[stage];
    assert_int_equal(mine->receives, other->sends != ORDER_NONE);
    if (!mine->receives)
        return;
    const struct Pass *p = receiver(w);
    assert_int_equal(p->micro, other->sends);
    assert_int_equal(p->backward, mine->with > stage);
    (p->backward ? w->gradient : w->input)[p->micro] = true;
}

static void leave_swap(struct Line *l, int stage) {
    struct Walker *w = &l->walker[stage];
    if (w->where == AT_SWAP_BEFORE) {
        w->where = COMPUTES;
        return;
    }
    w->where = BEFORE;
    w->at++;
}

static void compute(struct Line *l, int stage) {
    struct Walker *w = &l->walker[stage];
    const struct Pass *p = &w->pass[w->at];
    bool *made = p->backward ? w->backward : w->forward;
    assert_false(made[p->micro]);
    if (p->backward) {
        assert_true(w->forward[p->micro]);
        assert_true(p->micro == 0 || w->backward[p->micro - 1]); // sums are made in one order
        assert_true(stage + 1 == l->stages || w->gradient[p->micro]);
        w->kept--;
    } else {
        assert_true(stage == 0 || w->input[p->micro]);
        w->kept++;
        w->most_kept = size_max(w->most_kept, w->kept);
    }
    made[p->micro] = true;
    w->where = p->sends ? AT_SWAP_BEHIND : BEFORE;
    w->at += !p->sends;
}

// One move of a stage; false where it waits, or is done.
static bool move(struct Line *l, int stage) {
    struct Walker *w = &l->walker[stage];
    struct Wanted mine = {0}, other = {0};
    if (w->at == 2 * l->micros)
        return false;
    if (w->where == BEFORE) {
        w->where = w->pass[w->at].receives ? AT_SWAP_BEFORE : COMPUTES;
        return true;
    }
    if (w->where == COMPUTES) {
        compute(l, stage);
        return true;
    }
    if (!wants(l, stage, &mine) || mine.with < 0 || mine.with >= l->stages)
        fail_msg("stage %d waits for one that is not there", stage);
    if (!wants(l, mine.with, &other) || other.with != stage)
        return false;
    take(l, stage, &mine, &other);
    take(l, mine.with, &other, &mine);
    leave_swap(l, stage);
    leave_swap(l, mine.with);
    return true;
}

static void walk(int stages, size_t micros) {
    struct Line *l = calloc(1, sizeof *l);
    l->stages = stages;
    l->micros = micros;
    for (int s = 0; s < stages; s++)
        order_passes(stages, 0, s, micros, l->walker[s].pass);
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = stages - 1; s >= 0; s--)
            moved |= move(l, s);
    }
    for (int s = 0; s < stages; s++) {
        if (l->walker[s].at != 2 * micros)
            fail_msg("stage %d of %d waits for ever at pass %zu, with %zu micro-batches", s, stages,
                     l->walker[s].at, micros);
        assert_int_equal(l->walker[s].most_kept, order_kept(stages, s, micros));
    }
    free(l);
}

static void make(struct Order *o, int stages, size_t micros, double forward, double backward) {
    struct OrderCost cost[MOST_STAGES];
    for (int s = 0; s < stages; s++)
        cost[s] = (struct OrderCost){forward, backward};
    order_make(o, stages, 0, micros, cost, 0);
}

TEST(nobody_waits_for_ever) {
    for (int stages = 1; stages <= MOST_STAGES; stages++)
        for (size_t micros = 1; micros <= MOST_MICROS; micros++) {
            struct Order o;
            make(&o, stages, micros, 1, 2);
            walk(stages, micros);
            order_free(&o);
        }
}

// Of one stage it is what a run without a pipeline does.
TEST(one_stage_goes_back_at_once) {
    struct Order o;
    struct Pass pass[8] = {0};
    make(&o, 1, 4, 1, 2);
    order_passes(1, 0, 0, 4, pass);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pass[i].micro, i / 2);
        assert_int_equal(pass[i].backward, i % 2);
        assert_false(pass[i].sends || pass[i].receives || pass[i].exchanges);
    }
    assert_true(order_bubble(&o) == 0);
    order_free(&o);
}

// Entries begin when all that they need has ended, and the list is in such an order; balanced, the
// bubble is (p - 1) / (m + p - 1).
TEST(the_bubble_is_the_papers) {
    for (int stages = 1; stages <= MOST_STAGES; stages++)
        for (size_t micros = (size_t)stages; micros <= MOST_MICROS; micros++) {
            struct Order o;
            double p = stages, m = (double)micros, now[MOST_STAGES] = {0};
            make(&o, stages, micros, 1, 2);
            for (size_t i = 0; i < o.count; i++) {
                const struct OrderEntry *e = &o.entry[i];
                assert_true(e->begin >= now[e->stage]);
                now[e->stage] = e->end;
                if (e->kind == ORDER_SENDRECV)
                    now[e->stage + 1] = fmax(now[e->stage + 1], e->end);
            }
            assert_true(fabs(order_bubble(&o) - (p - 1) / (m + p - 1)) < 1e-12);
            order_free(&o);
        }
}

// ---- cuts ----

TEST(the_largest_part_is_the_least) {
    const double cost[] = {0, 1, 1, 1, 1, 1, 1, 1, 1, 5.5};
    struct SplitPart part[10];
    for (int stages = 1; stages <= 10; stages++) {
        double most = 0;
        int next = 0;
        split_by_cost(cost, 10, stages, part);
        for (int s = 0; s < stages; s++) {
            double sum = 0;
            assert_int_equal(part[s].first, next);
            assert_true(part[s].count > 0);
            for (int u = 0; u < part[s].count; u++)
                sum += cost[next++];
            most = fmax(most, sum);
        }
        assert_int_equal(next, 10);
        assert_true(most == (stages == 1 ? 13.5 : stages == 2 ? 7.5 : 5.5) || most == 7);
    }
}

TEST(layers_are_as_said) {
    static const char *const wrong[] = {"3,3",  "3,3,3", "3,3,2,0", "8,0,0", "3,3,2,",
                                        "3,,5", "a,b,c", "-1,3,6",  "",      "99999999999,1,1"};
    struct ModelConfig c = {.layers = 8};
    struct SplitPart part[3];
    struct Error e;
    assert_int_equal(split_stages(&c, RECOMPUTE_NONE, 3, "3,3,2", part, &e), 0);
    assert_true(part[0].first == 0 && part[0].count == 4);
    assert_true(part[1].first == 4 && part[1].count == 3);
    assert_true(part[2].first == 7 && part[2].count == 3);
    assert_int_equal(split_stages(&c, RECOMPUTE_NONE, 3, "0,8,0", part, &e), 0);
    assert_true(part[0].count == 1 && part[1].count == 8 && part[2].count == 1);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (split_stages(&c, RECOMPUTE_NONE, 3, wrong[i], part, &e) == 0)
            fail_msg("--pp-split %s is taken", wrong[i]);
}
