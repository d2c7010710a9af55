// Sparse attention in every table: each pattern against a boolean mask, by the oracle, and against
// the oracle by all others; finite differences; a layout of all cells has the bits of none; and one
// of a longer sequence serves a shorter one.
//
// What a pattern's cells are is test_sparse.c's (tests/model), and what it hides bit by bit
// test_kernels_sparse_seen.c's.
#include "kernels/cpu/cpu.h"
#include "tests/kernels/masked.h"
#include "tests/lib/test.h"

#include <math.h>

// ---- against a boolean mask ----

// Attention of one head as a matrix of scores says it, with -infinity where the mask is false.
struct Plain {
    const struct Masked *m;
    float *out, *lse, *dqkv;
};

static size_t at_of(const struct Case *c, size_t time, size_t vector) {
    return (time * (c->nh + 2 * c->nkv) + vector) * c->hs;
}

static double dot(const float *x, const float *y, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

// One query: its row of the softmax, its output, and what it adds to the gradients.
static void plain_query(const struct Plain *p, size_t head, size_t i, double *dqkv) {
    const struct Case *c = &p->m->c;
    size_t q = at_of(c, i, head), o = (i * c->nh + head) * c->hs, group = c->nh / c->nkv;
    double scale = 1 / sqrt((double)c->hs), most = -INFINITY, sum = 0, d = 0;
    double row[MOST_T], dp[MOST_T], out[128] = {0};
    for (size_t j = 0; j < c->t; j++) {
        size_t k = at_of(c, j, c->nh + head / group);
        row[j] = sees(p->m, head, i, j) ? dot(c->qkv + q, c->qkv + k, c->hs) * scale : -INFINITY;
        most = fmax(most, row[j]);
    }
    for (size_t j = 0; j < c->t; j++)
        sum += exp(row[j] - most);
    p->lse[head * c->t + i] = (float)(most + log(sum));
    for (size_t j = 0; j < c->t; j++) {
        size_t v = at_of(c, j, c->nh + c->nkv + head / group);
        row[j] = exp(row[j] - most) / sum;
        dp[j] = dot(c->dout + o, c->qkv + v, c->hs);
        for (size_t e = 0; e < c->hs; e++)
            out[e] += row[j] * (double)c->qkv[v + e];
        d += row[j] * dp[j];
    }
    for (size_t e = 0; e < c->hs; e++)
        p->out[o + e] = (float)out[e];
    for (size_t j = 0; j < c->t; j++)
        for (size_t e = 0; e < c->hs; e++) {
            size_t k = at_of(c, j, c->nh + head / group), v = k + c->nkv * c->hs;
            double ds = row[j] * (dp[j] - d) * scale;
            dqkv[q + e] += ds * (double)c->qkv[k + e];
            dqkv[k + e] += ds * (double)c->qkv[q + e];
            dqkv[v + e] += row[j] * (double)c->dout[o + e];
        }
}

static void plain_attention(const struct Plain *p) {
    const struct Case *c = &p->m->c;
    double *dqkv = base_alloc_zeroed(qkv_size(c) * sizeof *dqkv);
    for (size_t head = 0; head < c->nh; head++)
        for (size_t i = 0; i < c->t; i++)
            plain_query(p, head, i, dqkv);
    for (size_t i = 0; i < qkv_size(c); i++)
        p->dqkv[i] = (float)dqkv[i];
    free(dqkv);
}

TEST(test_mask) {
    const struct Rig *rig = *state;
    for (size_t i = 0; i < NSHAPE; i++) {
        struct Masked m = masked_of(&shapes[i]);
        struct Plain p = {&m, base_alloc(out_size(&m.c) * sizeof(float)),
                          base_alloc(m.c.nh * m.c.t * sizeof(float)),
                          base_alloc(qkv_size(&m.c) * sizeof(float))};
        struct Run r;
        plain_attention(&p);
        run_case(&r, rig->device[0][0], false, F32, &m.c);
        run_expect(&r, "out", "the boolean mask", p.out, 4);
        run_expect(&r, "lse", "the boolean mask", p.lse, 4);
        run_expect(&r, "dqkv", "the boolean mask", p.dqkv, 16);
        run_close(&r);
        free(p.out);
        free(p.lse);
        free(p.dqkv);
        masked_free(&m);
    }
}

// ---- every table against the oracle ----

// Of numbers in 16 bits half a unit: P and dS are rounded where tensor cores or AVX512_BF16
// multiply them, and each table's output is the one that its own backward pass reads.
static void oracle_body(struct Run *r, enum Dtype d, const void *masked) {
    static const double half_unit[NDTYPE] = {[BF16] = 0x1p-9, [F16] = 0x1p-12};
    const struct Masked *m = masked;
    bool cuda = strcmp(r->device->name, "cuda") == 0;
    bool rounds = cuda ? m->c.hs == 64 || m->c.hs == 128
                       : d == BF16 && cpu_kernels_dot_bf16(r->device->kernels);
    double rounding = half_unit[d] / 0x1p-24;
    struct Slack slack = {64 + (rounds ? rounding : 0), 16, 64 + 4 * rounding};
    queue_case(r, d, &m->c, slack);
}

TEST(test_oracle) {
    const struct Rig *rig = *state;
    for (size_t i = 0; i < NSHAPE; i += shape_step(rig)) {
        struct Masked m = masked_of(&shapes[i]);
        rig_check(rig, oracle_body, &m, true);
        masked_free(&m);
    }
}

// ---- finite differences ----

struct Layer {
    struct Device *oracle;
    struct Masked *m;
    float *out, *lse;
};

static double layer_loss(void *context) {
    struct Layer *l = context;
    const struct Case *c = &l->m->c;
    struct AttentionForward a = {
        .b = 1, .t = c->t, .nh = c->nh, .nkv = c->nkv, .hs = c->hs, .dtype = F32};
    a.layout = c->layout;
    a.qkv = c->qkv;
    a.out = l->out;
    a.lse = l->lse;
    l->oracle->kernels->attention_forward(l->oracle->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(l->oracle, QUEUE_COMPUTE);
    return rig_dot(l->out, c->dout, out_size(c));
}

TEST(test_finite_differences) {
    static const struct Shape shape = {
        52, 2, 1, 3, "bigbird:different_layout_per_head=true,num_sliding_window_blocks=1", 0};
    const struct Rig *rig = *state;
    struct Masked m = masked_of(&shape);
    struct Layer l = {rig->device[0][0], &m, base_alloc(out_size(&m.c) * sizeof(float)),
                      base_alloc(m.c.nh * m.c.t * sizeof(float))};
    struct Run r;
    run_case(&r, l.oracle, false, F32, &m.c);
    const float *dqkv = run_result(&r, "dqkv");
    struct RigSlopes s = {layer_loss, &l, 0x1p-5f, 1e-4, 1};
    rig_expect_slopes(&s, "dqkv", m.c.qkv, dqkv, qkv_size(&m.c));
    run_close(&r);
    free(l.out);
    free(l.lse);
    masked_free(&m);
}

// ---- bit by bit ----

static void full_body(struct Device *device, bool skew, enum Dtype d, void *context) {
    struct Case dense = ((struct Masked *)context)->c;
    dense.layout.begin = NULL;
    struct Run all, none;
    run_case(&none, device, skew, d, &dense);
    run_case(&all, device, skew, d, &((struct Masked *)context)->c);
    expect_same(&all, &none, d, &dense, same_all(true, true), "a layout of all cells");
    run_close(&all);
    run_close(&none);
}

TEST(test_all_cells) {
    static const struct Shape full[] = {{134, 2, 1, 64, "fixed:num_local_blocks=99", 0},
                                        {134, 2, 1, 9, "fixed:num_local_blocks=99", 0},
                                        {200, 1, 1, 64, "fixed:num_local_blocks=99", 100}};
    for (size_t i = 0; i < sizeof full / sizeof full[0]; i++) {
        struct Masked m = masked_of(&full[i]);
        each(*state, full_body, &m);
        masked_free(&m);
    }
}

// A shorter sequence with a longer one's layout, as samples have it: its queries have the bits that
// they have in the longer one. One head, so that rows of lse lie alike.
static void prefix_body(struct Device *device, bool skew, enum Dtype d, void *context) {
    struct Case whole = ((struct Masked *)context)->c, begin = whole;
    static const size_t lengths[] = {1, 40, 64, 100, 129, 200};
    struct Run all, some;
    run_case(&all, device, skew, d, &whole);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        begin.t = lengths[i];
        run_case(&some, device, skew, d, &begin);
        expect_same(&some, &all, d, &begin, same_all(true, false), "the beginning of a sequence");
        run_close(&some);
    }
    run_close(&all);
}

TEST(test_prefix) {
    static const struct Shape long_ones[] = {{270, 1, 1, 64, "bigbird", 0},
                                             {260, 1, 1, 9, "fixed:num_local_blocks=2", 50}};
    for (size_t i = 0; i < sizeof long_ones / sizeof long_ones[0]; i++) {
        struct Masked m = masked_of(&long_ones[i]);
        each(*state, prefix_body, &m);
        masked_free(&m);
    }
}

AROUND_ALL(rig_setup, rig_teardown);
