// The kernels of collectives (sums over ranks, copies of shards) in every table, against the
// oracle's bits.
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

enum { MAX_RANKS = 9 };

struct RankShape {
    size_t n, begin, ranks;
    bool accumulate;
};

// The table of the ranks' addresses. Where calls may wait it is read late: it is written after the
// kernel was queued behind a copy, as a meeting of ranks does. Else it is read when the kernel is
// queued, and never again.
struct Table {
    void **in_queue, *now[MAX_RANKS];
};

static void **table_begin(struct Run *r, struct Table *t) {
    t->in_queue = output_bytes(r, "table", sizeof t->now, NULL);
    if (!r->device->calls_may_wait)
        return t->now;
    device_copy(r->device, QUEUE_COMPUTE, t->in_queue, t->now, sizeof t->now);
    return t->in_queue;
}

static void table_end(struct Run *r, struct Table *t) {
    if (!r->device->calls_may_wait)
        memset(t->now, 0xff, sizeof t->now);
    device_zero(r->device, QUEUE_COMPUTE, t->in_queue, sizeof t->now); // addresses differ by run
    device_sync_queue(r->device, QUEUE_COMPUTE);
}

// Sums have one order, so every table has the oracle's bits.
static void rank_sum_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct RankShape *s = shape;
    struct RankSum a = {s->n, s->begin, s->ranks, d, NULL, NULL, s->accumulate};
    struct Table t = {0};
    for (size_t k = 0; k < s->ranks; k++)
        t.now[k] = input_random(r, d, s->begin + s->n, 0, (float)(1 << 2 * (k % 4)));
    a.src = table_begin(r, &t);
    a.dst = output_random(r, "dst", d, s->n, 0);
    r->device->kernels->rank_sum(compute(r), &a);
    table_end(r, &t);
}

static void rank_gather_body(struct Run *r, enum Dtype d, const void *shape) {
    const struct RankShape *s = shape;
    size_t bytes = s->n * dtype_size(d), step = s->begin * dtype_size(d);
    size_t first = s->begin / 2; // past the beginning of what each rank has
    struct RankGather a = {.bytes = bytes,
                           .step = step,
                           .ranks = s->ranks,
                           .skip = s->accumulate ? 1 : SIZE_MAX,
                           .begin = first * dtype_size(d)};
    struct Table t = {0};
    for (size_t k = 0; k < s->ranks; k++)
        t.now[k] = input_random(r, d, s->begin * k + first + s->n, 0, 1);
    a.src = table_begin(r, &t);
    a.dst = output_random(r, "dst", d, s->n * s->ranks, 0);
    r->device->kernels->rank_gather(compute(r), &a);
    table_end(r, &t);
}

TEST(test_ranks) {
    static const struct RankShape shapes[] = {
        {1, 0, 1, false},     {64, 3, 2, false},  {1003, 64, 3, true}, {17, 5, 4, true},
        {40000, 7, 4, false}, {8192, 0, 1, true}, {4099, 8, 9, true},  {1024, 64, 9, false},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        rig_check(*state, rank_sum_body, &shapes[i], true);
        rig_check(*state, rank_gather_body, &shapes[i], true);
    }
}

AROUND_ALL(rig_setup, rig_teardown);
