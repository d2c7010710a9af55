// What sparse attention hides, in every table and bit by bit: a hidden key or value changes
// nothing; tiles that no query sees are not even read, and the others once.
//
// Against a mask and the oracle these shapes are in test_kernels_sparse.c.
#include "tests/kernels/masked.h"
#include "tests/lib/test.h"

enum { TILE = LAYOUT_TILE, BLOCK = LAYOUT_OWN };

static bool any_sees(const struct Masked *m, size_t query, size_t key) {
    bool any = false;
    for (size_t head = 0; head < m->c.nh; head++)
        any = any || sees(m, head, query, key);
    return any;
}

// A key that some queries see, and others that come after it do not.
struct Hidden {
    struct Masked m;
    size_t time;
};

static void hidden_body(struct Device *device, bool skew, enum Dtype d, void *context) {
    struct Hidden *h = context;
    struct Same *same = same_all(true, false);
    struct Run with, without;
    run_case(&without, device, skew, d, &h->m.c);
    case_set_key(&h->m.c, h->time, huge(d), huge(d));
    run_reversed(&with, device, skew, d, &h->m.c);
    for (size_t i = 0; i < h->m.c.t; i++)
        same[i].query = !any_sees(&h->m, i, h->time);
    expect_same(&with, &without, d, &h->m.c, same, "a huge key in a cell that it does not see");
    run_close(&with);
    run_close(&without);
    case_set_key(&h->m.c, h->time, 1, 1);
}

// Where the loss does not look at the queries that see the key, nothing at all changes.
static void unused_body(struct Device *device, bool skew, enum Dtype d, void *context) {
    struct Hidden *h = context;
    struct Same *same = same_all(true, true);
    struct Run with, without;
    run_case(&without, device, skew, d, &h->m.c);
    case_set_key(&h->m.c, h->time, 3, huge(d));
    run_reversed(&with, device, skew, d, &h->m.c);
    for (size_t i = 0; i < h->m.c.t; i++)
        same[i] = (struct Same){!any_sees(&h->m, i, h->time), true};
    expect_same(&with, &without, d, &h->m.c, same, "a value that no loss looks at");
    run_close(&with);
    run_close(&without);
    case_set_key(&h->m.c, h->time, 1, 1);
}

// Whether a key that head 0's query does not see lies between two of its tile that it sees: such a
// hole is computed with the rest.
static bool between(const struct Masked *m, size_t query, size_t key) {
    bool before = false, after = false;
    for (size_t k = key / TILE * TILE; k < size_min(key / TILE * TILE + TILE, query + 1); k++) {
        before = before || (k < key && sees(m, 0, query, k));
        after = after || (k > key && sees(m, 0, query, k));
    }
    return before && after;
}

// The key that is hidden from most of the queries behind it, most of all in holes.
static size_t most_hidden(const struct Masked *m) {
    size_t best = 0, most = 0;
    for (size_t key = 0; key < m->c.t; key += LAYOUT_CELL / 2) {
        size_t hidden = 0;
        for (size_t query = key; query < m->c.t; query++)
            if (!any_sees(m, query, key))
                hidden += between(m, query, key) ? 1000 : 1;
        if (hidden > most) {
            most = hidden;
            best = key;
        }
    }
    assert_true(most > 0);
    return best;
}

TEST(test_hidden) {
    const struct Rig *rig = *state;
    for (size_t i = 0; i < 8; i += shape_step(rig)) {
        struct Hidden h = {.m = masked_of(&shapes[i])};
        const struct Case *c = &h.m.c;
        h.time = most_hidden(&h.m);
        case_set_key(&h.m.c, h.time, 1, 1);
        each(rig, hidden_body, &h);
        for (size_t query = 0; query < c->t; query++)
            if (any_sees(&h.m, query, h.time))
                memset(c->dout + query * c->nh * c->hs, 0, c->nh * c->hs * sizeof(float));
        each(rig, unused_body, &h);
        masked_free(&h.m);
    }
}

// ---- visits, counted ----

// As in test_kernels_seen.c: queries of 0 weigh all that they see alike, so that results count
// keys. Values, and for dQ keys, are 1 in one tile alone.
struct Visits {
    struct Masked m;
    size_t tile;
};

static size_t seen_keys(const struct Masked *m, size_t head, size_t query, size_t begin,
                        size_t end) {
    size_t n = 0;
    for (size_t key = begin; key < size_min(end, m->c.t); key++)
        n += sees(m, head, query, key);
    return n;
}

// What the queries of all heads give to the value at time i.
static double counted_dv(const struct Masked *m, size_t key_head, size_t i) {
    size_t group = m->c.nh / m->c.nkv;
    double dv = 0;
    for (size_t head = key_head * group; head < (key_head + 1) * group; head++)
        for (size_t query = i; query < m->c.t; query++)
            if (sees(m, head, query, i))
                dv += 1 / (double)seen_keys(m, head, query, 0, m->c.t);
    return dv;
}

static void expect_counts(const struct Run *r, enum Dtype d, const struct Visits *v) {
    const struct Case *c = &v->m.c;
    size_t begin = v->tile * TILE, width = (c->nh + 2 * c->nkv) * c->hs;
    const void *out = run_result(r, "out"), *dqkv = run_result(r, "dqkv");
    const float *lse = run_result(r, "lse");
    double scale = 1 / sqrt((double)c->hs);
    for (size_t i = 0; i < c->t; i++) {
        for (size_t h = 0; h < c->nh; h++) {
            double all = (double)seen_keys(&v->m, h, i, 0, c->t);
            double share = (double)seen_keys(&v->m, h, i, begin, begin + TILE) / all;
            size_t at = (i * c->nh + h) * c->hs;
            expect_near(r, F32, "lse", i, exp((double)lse[h * c->t + i]), all, all);
            expect_near(r, d, "output", i, dtype_load(out, d, at), share, share);
            expect_near(r, d, "dQ", i, dtype_load(dqkv, d, i * width + h * c->hs),
                        scale * share * (1 - share), scale * share);
        }
        for (size_t h = 0; h < c->nkv; h++) {
            double dv = counted_dv(&v->m, h, i);
            size_t at = i * width + (c->nh + c->nkv + h) * c->hs;
            expect_near(r, d, "dV", i, dtype_load(dqkv, d, at), dv, dv);
        }
    }
}

// Whether some head's queries begin .. begin + BLOCK - 1 see something of the tile: then a GPU's
// block reads it.
static bool block_sees(const struct Visits *v, size_t begin) {
    size_t n = 0;
    for (size_t i = begin; i < size_min(begin + BLOCK, v->m.c.t); i++)
        for (size_t h = 0; h < v->m.c.nh; h++)
            n += seen_keys(&v->m, h, i, v->tile * TILE, (v->tile + 1) * TILE);
    return n > 0;
}

static void visits_body(struct Device *device, bool skew, enum Dtype d, void *context) {
    struct Visits *v = context;
    struct Case *c = &v->m.c;
    struct Run counted, poisoned;
    if (skew || d == F16) // bf16 goes the same ways
        return;
    case_set_visits(&v->m.c, v->tile * TILE, (v->tile + 1) * TILE);
    run_case(&counted, device, skew, d, c);
    expect_counts(&counted, d, v);
    for (size_t i = v->tile * TILE; i < size_min(c->t, (v->tile + 1) * TILE); i++)
        case_set_key(c, i, NAN, NAN);
    run_reversed(&poisoned, device, skew, d, c);
    struct Same *same = same_all(false, false);
    for (size_t i = 0; i < c->t; i++)
        same[i].query = !block_sees(v, i / BLOCK * BLOCK);
    expect_same(&poisoned, &counted, d, c, same, "NaNs in a tile of keys that it sees none of");
    run_close(&counted);
    run_close(&poisoned);
}

TEST(test_visits) {
    const struct Rig *rig = *state;
    size_t left_out = 0;
    for (size_t i = 0; i < 6; i += shape_step(rig))
        for (size_t tile = 0; tile * TILE < shapes[i].t; tile++) {
            struct Visits v = {masked_of(&shapes[i]), tile};
            for (size_t block = (tile * TILE / BLOCK + 1) * BLOCK; block < v.m.c.t; block += BLOCK)
                left_out += !block_sees(&v, block);
            each(rig, visits_body, &v);
            masked_free(&v.m);
        }
    assert_true(left_out > 0 || shape_step(rig) > 1); // or the NaNs show nothing
}

AROUND_ALL(rig_setup, rig_teardown);
