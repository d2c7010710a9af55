// See planned.h.
#include "zero/state.h"
#include "tests/lib/planned.h"

struct Run {
    struct Footprint measured[PLANNED_RANKS];
};

// Three steps: what is moved is counted of one that follows another (footprint.h).
static void train_steps(void *context, struct Rank *r) {
    struct Run *run = context;
    for (int i = 0; i < 3; i++)
        tiny_step(r);
    run->measured[r->all->rank] = footprint_measure(r, &(struct RankSettings){0}, 0);
}

struct Forecast planned(const struct RankSettings *s) {
    struct Forecast f;
    struct Error e = {0};
    if (footprint_predict(s, 0, s->ranks, &f, &e))
        fail_msg("%s", e.text);
    return f;
}

static struct Footprint planned_of(const struct RankSettings *s, int rank) {
    struct Forecast f;
    struct Error e = {0};
    if (footprint_of_rank(s, rank, s->ranks, &f, &e))
        fail_msg("%s", e.text);
    return f.is;
}

struct Place {
    const struct RankSettings *settings;
    const char *what;
    int rank;
};

static void expect(const struct Place *p, const char *of, uint64_t counted, uint64_t predicted) {
    if (counted != predicted)
        fail_msg("%s, %s, rank %d, %s: %llu bytes, predicted %llu", p->what,
                 settings_text(p->settings), p->rank, of, (unsigned long long)counted,
                 (unsigned long long)predicted);
}

static void compare_rank(const struct Place *p, const struct Footprint *m) {
    const struct Footprint plan = planned_of(p->settings, p->rank), *f = &plan;
    assert_true(m->stepped && m->moved_known);
    expect(p, "to the device", m->moved.in, f->moved.in);
    expect(p, "from the device", m->moved.out, f->moved.out);
    expect(p, "from disk", m->moved.read, f->moved.read);
    expect(p, "to disk", m->moved.written, f->moved.written);
    for (int c = 0; c < NCOLLECTIVE; c++)
        expect(p, collective_name((enum Collective)c), m->traffic.bytes[c], f->traffic.bytes[c]);
    expect(p, "to other nodes", m->traffic.inter_node, f->traffic.inter_node);
    for (int kind = 0; kind < NTIER; kind++) {
        for (int tag = 0; tag < NTAG; tag++)
            expect(p, tag_name((enum Tag)tag), m->tier[kind].most[tag], f->tier[kind].most[tag]);
        expect(p, tier_name((enum TierKind)kind), m->tier[kind].peak, f->tier[kind].peak);
    }
}

struct Forecast planned_is_measured(const struct RankSettings *s, const char *what) {
    struct Run run;
    struct Forecast f = planned(s);
    CHECK(s->ranks <= PLANNED_RANKS, "%d ranks; a run beside its plan has at most %d", s->ranks,
          PLANNED_RANKS);
    tiny_ranks(s, train_steps, &run);
    for (int r = 0; r < s->ranks; r++)
        compare_rank(&(struct Place){s, what, r}, &run.measured[r]);
    return f;
}

struct Forecast planned_by_formula(const struct RankSettings *s, const struct Elements *n,
                                   const char *what) {
    struct Forecast f = planned_is_measured(s, what);
    uint64_t ranks = (uint64_t)s->ranks, others = ranks - 1, weight = dtype_size(s->model.dtype);
    uint64_t reports = (16 + 8 * n->groups + 63) / 64 * 64, grad = dtype_size(s->grad_dtype);
    uint64_t gradient = others * n->trained / ranks * grad;
    uint64_t gathers = s->stage == 3 ? n->gathered * s->nmicro : s->stage > 0 ? n->trained : 0;
    const size_t *kept = f.is.tier[TIER_DEVICE].most;
    uint64_t part = s->stage > 0 ? ranks : 1;
    uint64_t want[NCOLLECTIVE] = {
        [COMM_ALL_REDUCE] = s->stage == 0 ? 2 * gradient : 0,
        [COMM_REDUCE_SCATTER] = s->stage == 0 ? 0 : gradient * (s->stage > 1 ? s->nmicro : 1),
        [COMM_ALL_GATHER] = others * (reports + gathers / ranks * weight)};
    for (int c = 0; c < NCOLLECTIVE; c++)
        if (f.is.traffic.bytes[c] != want[c])
            fail_msg("%s, %s: %s sends %llu bytes, by formula %llu", what, settings_text(s),
                     collective_name((enum Collective)c), (unsigned long long)f.is.traffic.bytes[c],
                     (unsigned long long)want[c]);
    assert_int_equal(kept[TAG_PARAM], n->all * weight / (s->stage > 2 ? ranks : 1));
    assert_int_equal(kept[TAG_GRAD], n->trained * grad / (s->stage > 1 ? ranks : 1));
    assert_int_equal(kept[TAG_OPTIMIZER], n->trained * (s->model.dtype == F32 ? 8 : 12) / part);
    return f;
}
