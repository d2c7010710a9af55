// Causal attention on tensor cores where a grid is large: many heads, many blocks of a head, many
// tiles. Against the oracle; the largest, which would take it minutes, against the plain kernels on
// the same GPU. (tests/kernels/test_kernels_attention.c holds all of them against the oracle, in
// small.)
#include "tests/cusim/sim.h"
#include "tests/lib/rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

struct Shape {
    size_t b, t, nh, hs;
};

static size_t rows(const struct Shape *s) {
    return s->b * s->t * s->nh * s->hs;
}

// Forward, then backward from its results. Operands that are out of alignment (skew) take the plain
// kernels.
static void both_passes(struct Run *r, struct Device *device, bool skew, enum Dtype d,
                        const struct Shape *s) {
    const struct Kernels *k = device->kernels;
    struct Stream *queue = device->queue[QUEUE_COMPUTE];
    run_init(r, device, skew);
    struct AttentionForward f = {
        .b = s->b, .t = s->t, .nh = s->nh, .nkv = s->nh, .hs = s->hs, .dtype = d};
    f.qkv = input_random(r, d, 3 * rows(s), 0, 1);
    f.out = output_poison(r, "out", d, rows(s), 0);
    f.lse = output_poison(r, "lse", F32, s->b * s->nh * s->t, 0);
    f.work = scratch(r, k->attention_forward_work(device, &f));
    k->attention_forward(queue, &f);
    struct AttentionBackward a = {
        .b = s->b, .t = s->t, .nh = s->nh, .nkv = s->nh, .hs = s->hs, .dtype = d};
    a.qkv = f.qkv;
    a.out = f.out;
    a.lse = f.lse;
    a.dout = input_random(r, d, rows(s), 0, 1);
    a.dqkv = output_poison(r, "dqkv", d, 3 * rows(s), 0);
    a.work = scratch(r, k->attention_backward_work(device, &a));
    k->attention_backward(queue, &a);
    run_finish(r);
}

static void expect_output(const struct Run *fast, const struct Run *reference, const char *name,
                          enum Dtype d, size_t n, double slack) {
    float *want = base_alloc(n * sizeof *want);
    for (size_t i = 0; i < n; i++) {
        want[i] = dtype_load(run_result(reference, name), d, i);
        assert_true(isfinite(want[i])); // it was written
    }
    run_expect(fast, name, reference->device->kernels->name, want, slack);
    free(want);
}

// Both round what they store. The tensor cores take P and dS rounded, too, which moves a sum by at
// most half a unit of what is about the largest output.
static void expect_same(const struct Rig *rig, struct Device *other, enum Dtype d,
                        const struct Shape *s) {
    struct Run reference, fast;
    size_t before = sim_mmas();
    both_passes(&reference, other, true, d, s);
    assert_true(sim_mmas() == before);
    both_passes(&fast, rig->device[1][0], false, d, s);
    assert_true(sim_is_real() || sim_mmas() > before);
    expect_output(&fast, &reference, "out", d, rows(s), 2);
    expect_output(&fast, &reference, "lse", F32, s->b * s->nh * s->t, 64);
    expect_output(&fast, &reference, "dqkv", d, 3 * rows(s), 3);
    run_close(&reference);
    run_close(&fast);
}

// More heads than are started together (AttentionGrid), each with a second block of one row.
TEST(test_many_heads) {
    static const struct Shape shape = {5, 129, 16, 64};
    const struct Rig *rig = *state;
    expect_same(rig, rig->device[0][0], BF16, &shape);
}

// Eight blocks of queries, the last of which see sixteen tiles.
TEST(test_long_heads) {
    static const struct Shape shape = {1, 1024, 1, 64};
    const struct Rig *rig = *state;
    expect_same(rig, rig->device[0][0], BF16, &shape);
}

static bool takes_minutes(const char *what) {
    if (!sim_is_real())
        print_message("%s: minutes in the simulator, so on a GPU alone\n", what);
    return !sim_is_real();
}

TEST(test_many_long_heads) {
    static const struct Shape shapes[] = {{5, 1024, 16, 64}, {5, 1024, 16, 128}};
    const struct Rig *rig = *state;
    if (takes_minutes("80 heads of 1024 tokens"))
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (enum Dtype d = BF16; d < NDTYPE; d++)
            expect_same(rig, rig->device[1][0], d, &shapes[i]);
}

// More blocks than any dimension of a grid but x may have.
TEST(test_65600_heads) {
    static const struct Shape shape = {4100, 3, 16, 64};
    const struct Rig *rig = *state;
    if (takes_minutes("65600 heads"))
        skip();
    expect_same(rig, rig->device[0][0], BF16, &shape);
}

AROUND_ALL(rig_setup, rig_teardown);
