// What the first key of a query hides, and grouped queries, in every table and bit by bit: zeros
// are the dense case; a hidden key or value changes nothing; tiles that no query sees are not even
// read, and the others once; and the number of threads does not matter.
//
// Against the oracle these shapes are in test_kernels_attention.c.
#include "tests/kernels/seen_case.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// One sequence of T tokens: two tiles of the CPU and a block of the GPU, and a part. 64 elements
// are for the tensor cores where operands are aligned, 9 for no vector's length.
enum { T = 134, NH = 2, NKV = 1 };

static const size_t sizes[] = {9, 64};
enum { NSIZES = sizeof sizes / sizeof sizes[0] };

static void fill(int32_t first[T], const struct Pattern *p) {
    for (size_t i = 0; i < T; i++)
        first[i] = pattern_first(p, 0, i);
}

static void dense_body(struct Device *device, bool skew, enum Dtype d, void *context) {
    struct Case dense = *(struct Case *)context;
    dense.first = NULL;
    struct Run zeros, none;
    run_case(&none, device, skew, d, &dense);
    run_case(&zeros, device, skew, d, context);
    expect_same(&zeros, &none, d, &dense, same_all(true, true), "a window of T instead of none");
    run_close(&zeros);
    run_close(&none);
}

TEST(test_wide_window) {
    int32_t first[T];
    fill(first, &(struct Pattern){.window = T});
    for (size_t i = 0; i < NSIZES; i++) {
        struct Case c = case_of(T, NH, NKV, sizes[i], first);
        each(*state, dense_body, &c);
        case_free(&c);
    }
}

// A key that is hidden from some queries.
struct Hidden {
    struct Case c;
    size_t time;
};

static bool sees(const struct Case *c, size_t query, size_t key) {
    return (size_t)c->first[query] <= key && key <= query;
}

// The queries that see the key have other results, and so have the keys that they see; no other
// query has, though its tiles hold the key.
static void hidden_body(struct Device *device, bool skew, enum Dtype d, void *context) {
    struct Hidden *h = context;
    struct Same *same = same_all(true, false);
    struct Run with, without;
    run_case(&without, device, skew, d, &h->c);
    case_set_key(&h->c, h->time, huge(d), huge(d));
    run_reversed(&with, device, skew, d, &h->c);
    for (size_t i = 0; i < T; i++)
        same[i].query = !sees(&h->c, i, h->time);
    expect_same(&with, &without, d, &h->c, same, "a huge key that it does not see");
    run_close(&with);
    run_close(&without);
    case_set_key(&h->c, h->time, 1, 1);
}

// Where the loss does not look at the queries that see the key, it may hold what it likes: nothing
// at all changes. (A key so large that its scores lose their fractions would: e^(score - lse).)
static void unused_body(struct Device *device, bool skew, enum Dtype d, void *context) {
    struct Hidden *h = context;
    struct Same *same = same_all(true, true);
    struct Run with, without;
    run_case(&without, device, skew, d, &h->c);
    case_set_key(&h->c, h->time, 3, huge(d));
    run_reversed(&with, device, skew, d, &h->c);
    for (size_t i = 0; i < T; i++)
        same[i] = (struct Same){!sees(&h->c, i, h->time), true};
    expect_same(&with, &without, d, &h->c, same, "a value that no loss looks at");
    run_close(&with);
    run_close(&without);
    case_set_key(&h->c, h->time, 1, 1);
}

TEST(test_hidden) {
    static const struct {
        struct Pattern pattern;
        size_t time;
    } rows[] = {{{.window = 1}, 70},   {{.window = 64}, 63},   {{.window = 65}, 64},
                {{.window = 100}, 20}, {{.document = 40}, 32}, {{.document = 40}, 33}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t j = 0; j < NSIZES; j++) {
            int32_t first[T];
            fill(first, &rows[i].pattern);
            struct Hidden h = {case_of(T, NH, NKV, sizes[j], first), rows[i].time};
            case_set_key(&h.c, h.time, 1, 1);
            each(*state, hidden_body, &h);
            for (size_t query = 0; query < T; query++)
                if (sees(&h.c, query, h.time))
                    memset(h.c.dout + query * NH * sizes[j], 0, NH * sizes[j] * sizeof(float));
            each(*state, unused_body, &h);
            case_free(&h.c);
        }
}

// Tiles that no query sees are not visited. With a window of 65, the last tile of queries (from
// 128 on) begins with key 64: NaNs before it reach none of its results. And no query from 192 on
// sees a key before 128: NaNs in their dout reach none of those keys' gradients.
enum { FAR = 200, FAR_WINDOW = 65, BLOCK = 128, TILE = 64 };

static void unvisited_body(struct Device *device, bool skew, enum Dtype d, void *context) {
    struct Case *clean = context;
    struct Case keys = case_of(FAR, clean->nh, clean->nkv, clean->hs, clean->first);
    struct Case queries = case_of(FAR, clean->nh, clean->nkv, clean->hs, clean->first);
    for (size_t time = 0; time < TILE; time++)
        case_set_key(&keys, time, NAN, NAN);
    for (size_t i = (BLOCK + TILE) * clean->nh * clean->hs; i < out_size(clean); i++)
        queries.dout[i] = NAN;
    struct Run base, without_keys, without_queries;
    run_case(&base, device, skew, d, clean);
    run_reversed(&without_keys, device, skew, d, &keys);
    run_reversed(&without_queries, device, skew, d, &queries);
    struct Same *same = same_all(false, false);
    for (size_t i = BLOCK; i < FAR; i++)
        same[i].query = true;
    expect_same(&without_keys, &base, d, clean, same,
                "NaNs in a tile of keys that it sees none of");
    same = same_all(false, false);
    for (size_t i = 0; i < BLOCK; i++)
        same[i].key = true;
    expect_same(&without_queries, &base, d, clean, same, "NaNs in queries that do not see it");
    run_close(&base);
    run_close(&without_keys);
    run_close(&without_queries);
    case_free(&keys);
    case_free(&queries);
}

TEST(test_unvisited) {
    int32_t first[FAR];
    for (size_t i = 0; i < FAR; i++)
        first[i] = pattern_first(&(struct Pattern){.window = FAR_WINDOW}, 0, i);
    for (size_t i = 0; i < NSIZES; i++) {
        struct Case c = case_of(FAR, 2, 1, sizes[i], first);
        each(*state, unvisited_body, &c);
        case_free(&c);
    }
}

// ---- visits, counted ----

// Where all queries are 0, each weighs what it sees alike, so that results count keys: with values
// of 1 in one tile of keys alone, a query's output is the tile's share of the keys that it sees,
// and e^lse their number. A tile that is visited twice counts double, one that is left out not at
// all; so each is visited once. Of the backward pass likewise dV, which counts queries, and dQ,
// where keys are 1 in that tile, too: n of N keys give (n / N) (1 - n / N).
struct Visits {
    struct Case c;
    size_t tile;
};

static size_t seen_keys(const struct Case *c, size_t query, size_t begin, size_t end) {
    size_t from = (size_t)c->first[query] > begin ? (size_t)c->first[query] : begin;
    size_t to = query + 1 < end ? query + 1 : end;
    return from < to ? to - from : 0;
}

static void expect_counts(const struct Run *r, enum Dtype d, const struct Visits *v) {
    const struct Case *c = &v->c;
    size_t begin = v->tile * TILE, end = begin + TILE, width = (c->nh + 2 * c->nkv) * c->hs;
    const void *out = run_result(r, "out"), *dqkv = run_result(r, "dqkv");
    const float *lse = run_result(r, "lse");
    double scale = 1 / sqrt((double)c->hs);
    for (size_t i = 0; i < c->t; i++) {
        double all = (double)seen_keys(c, i, 0, c->t), dv = 0;
        double share = (double)seen_keys(c, i, begin, end) / all;
        for (size_t query = i; query < c->t; query++)
            if (sees(c, query, i))
                dv += (double)c->nh / (double)c->nkv / (double)seen_keys(c, query, 0, c->t);
        for (size_t h = 0; h < c->nh; h++) {
            size_t at = (i * c->nh + h) * c->hs;
            expect_near(r, F32, "lse", i, exp(lse[h * c->t + i]), all, all);
            expect_near(r, d, "output", i, dtype_load(out, d, at), share, share);
            expect_near(r, d, "dQ", i, dtype_load(dqkv, d, i * width + h * c->hs),
                        scale * share * (1 - share), scale * share);
        }
        expect_near(r, d, "dV", i, dtype_load(dqkv, d, i * width + (c->nh + c->nkv) * c->hs), dv,
                    dv);
    }
}

static void visits_body(struct Device *device, bool skew, enum Dtype d, void *context) {
    struct Visits *v = context;
    struct Run counted, poisoned;
    if (skew || d == F16) // bf16 goes the same ways
        return;
    case_set_visits(&v->c, v->tile * TILE, (v->tile + 1) * TILE);
    run_case(&counted, device, skew, d, &v->c);
    expect_counts(&counted, d, v);
    for (size_t i = v->tile * TILE; i < size_min(v->c.t, (v->tile + 1) * TILE); i++)
        case_set_key(&v->c, i, NAN, NAN);
    run_reversed(&poisoned, device, skew, d, &v->c);
    struct Same *same = same_all(false, false);
    for (size_t block = 0; block < v->c.t; block += BLOCK) { // of queries, on a GPU
        size_t n = 0, end = size_min(block + BLOCK, v->c.t);
        for (size_t i = block; i < end; i++)
            n += seen_keys(&v->c, i, v->tile * TILE, (v->tile + 1) * TILE);
        for (size_t i = block; i < end; i++)
            same[i].query = n == 0;
    }
    expect_same(&poisoned, &counted, d, &v->c, same, "NaNs in a tile of keys that it sees none of");
    run_close(&counted);
    run_close(&poisoned);
}

TEST(test_visits) {
    static const struct Pattern patterns[] = {
        {.window = 1}, {.window = 65}, {.window = 130}, {.document = 64}, {.document = 90}};
    const struct Rig *rig = *state;
    size_t step = strcmp(rig->name[rig->ntable - 1], "cuda") ? 1 : 2; // the simulator is slow
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i += step)
        for (size_t tile = 0; tile * TILE < FAR; tile++) {
            int32_t first[FAR];
            for (size_t time = 0; time < FAR; time++)
                first[time] = pattern_first(&patterns[i], 0, time);
            struct Visits v = {case_of(FAR, 2, 1, sizes[(i + tile) % NSIZES], first), tile};
            each(*state, visits_body, &v);
            case_free(&v.c);
        }
}

// Groups of 2, 3 and 8 query heads, in whole and in parts, with one to five threads.
TEST(test_threads) {
    static const size_t heads[][2] = {{4, 2}, {6, 2}, {8, 1}, {3, 3}};
    const struct Rig *rig = *state;
    for (int i = 1; i < rig->ntable; i++) {
        if (strcmp(rig->name[i], "cuda") == 0)
            skip(); // rig_check tries other orders of a GPU's threads
        for (size_t j = 0; j < sizeof heads / sizeof heads[0]; j++) {
            int32_t first[T];
            fill(first, &(struct Pattern){.document = 90});
            struct Case c = case_of(T, heads[j][0], heads[j][1], 20, first);
            for (int threads = 2; threads <= 5; threads++)
                for (enum Dtype d = F32; d < NDTYPE; d++) {
                    struct Device *many;
                    struct Error e = {0};
                    struct Run one, other;
                    assert_int_equal(device_open_cpu(&many, threads, rig->name[i], &e), 0);
                    run_case(&one, rig->device[i][0], false, d, &c);
                    run_case(&other, many, false, d, &c);
                    expect_same(&one, &other, d, &c, same_all(true, true), "more threads");
                    run_close(&one);
                    run_close(&other);
                    device_close(many);
                }
            case_free(&c);
        }
    }
}

AROUND_ALL(rig_setup, rig_teardown);
