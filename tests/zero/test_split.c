// How layers are cut into stages (zero/pipe/split.h): of all cuts the one that the rule names, for
// which all of them are tried; by what is computed, recomputation among it. That weights do not
// depend on the cut is shown by test_pipe.sh.
#include "tests/lib/test.h"
#include "zero/pipe/split.h"

enum { MOST_UNITS = 11, WHOLE = 1 << 12 };

// ---- all cuts ----

struct Search {
    const int *cost;
    int units, stages;
    struct SplitPart part[MOST_UNITS], best[MOST_UNITS];
    long most, squares; // of the best; 0: there is none
};

static long sum_of(const int *cost, const struct SplitPart *p) {
    long sum = 0;
    for (int u = p->first; u < p->first + p->count; u++)
        sum += cost[u];
    return sum;
}

// Cuts come in the order of their first stages' counts, so that the first of equal ones stays.
static void judge(struct Search *s) {
    long most = 0, squares = 0;
    for (int i = 0; i < s->stages; i++) {
        long sum = sum_of(s->cost, &s->part[i]);
        most = sum > most ? sum : most;
        squares += sum * sum;
    }
    if (s->most && (most > s->most || (most == s->most && squares >= s->squares)))
        return;
    s->most = most;
    s->squares = squares;
    memcpy(s->best, s->part, sizeof s->best);
}

static void search(struct Search *s, int stage, int first) {
    int rest = s->stages - 1 - stage;
    if (!rest) {
        s->part[stage] = (struct SplitPart){first, s->units - first};
        judge(s);
    }
    for (int count = 1; rest && first + count <= s->units - rest; count++) {
        s->part[stage] = (struct SplitPart){first, count};
        search(s, stage + 1, first + count);
    }
}

// Their sum is a power of two, so that none is rounded; small, so that many cuts are equal.
static void draw_costs(uint64_t seed, int units, int *cost) {
    int sum = 0;
    for (int u = 0; u + 1 < units; u++)
        sum += cost[u] = (int)(rng_bits(seed, (uint64_t)u) % (seed % 3 ? 4 : 300));
    cost[units - 1] = (seed % 2 ? 64 : WHOLE) - sum;
    if (cost[units - 1] < 0)
        cost[units - 1] += WHOLE - 64;
}

TEST(the_cut_is_the_one_that_the_rule_names) {
    for (uint64_t seed = 0; seed < 60; seed++)
        for (int units = 1; units <= MOST_UNITS; units++) {
            int cost[MOST_UNITS];
            double said[MOST_UNITS];
            struct SplitPart part[MOST_UNITS];
            draw_costs(seed, units, cost);
            for (int u = 0; u < units; u++)
                said[u] = cost[u] * 3.5; // in units of any size
            for (int stages = 1; stages <= units; stages++) {
                struct Search s = {.cost = cost, .units = units, .stages = stages};
                search(&s, 0, 0);
                split_by_cost(said, units, stages, part);
                for (int i = 0; i < stages; i++)
                    if (part[i].first != s.best[i].first || part[i].count != s.best[i].count)
                        fail_msg("seed %d, %d units: stage %d of %d has %d from %d on, not %d from "
                                 "%d on",
                                 (int)seed, units, i, stages, part[i].count, part[i].first,
                                 s.best[i].count, s.best[i].first);
            }
        }
}

// As large a model as may be, cut into as many stages as a run may have.
TEST(large_ones_are_cut) {
    enum { UNITS = 2002, STAGES = 1000 };
    static double cost[UNITS];
    static struct SplitPart part[STAGES];
    for (int u = 0; u < UNITS; u++)
        cost[u] = u ? 1 : 0;
    split_by_cost(cost, UNITS, STAGES, part);
    assert_int_equal(part[STAGES - 1].first + part[STAGES - 1].count, UNITS);
    for (int s = 0; s < STAGES; s++)
        assert_in_range(part[s].count, 2, 3);
}

// ---- what counts ----

// Layers that the stages of GPT-2 124M have, whose head computes as much as 4.8 of them; or as 3.9
// that go forward twice.
TEST(what_is_recomputed_counts) {
    static const struct {
        enum Recompute level;
        int stages, layers[4];
    } want[] = {
        {RECOMPUTE_NONE, 2, {8, 4}},
        {RECOMPUTE_NONE, 3, {5, 6, 1}},
        {RECOMPUTE_NONE, 4, {4, 4, 4, 0}},
        {RECOMPUTE_BLOCK, 3, {5, 5, 2}},
    };
    struct ModelConfig c = {12, 12, 768, 1024, 50257, .dtype = BF16, .untied = true};
    struct Error e;
    assert_int_equal(model_config_finish(&c, &e), 0);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct SplitPart part[4];
        assert_int_equal(split_stages(&c, want[i].level, want[i].stages, NULL, part, &e), 0);
        for (int s = 0; s < want[i].stages; s++) {
            int ends = (s == 0) + (s + 1 == want[i].stages);
            if (part[s].count - ends != want[i].layers[s])
                fail_msg("--recompute %s: stage %d of %d has %d layers, not %d",
                         recompute_name(want[i].level), s, want[i].stages, part[s].count - ends,
                         want[i].layers[s]);
        }
    }
}
