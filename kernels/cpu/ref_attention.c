// The plain causal attention: each query reads the keys from its first one to its own time, and in
// sparse attention, of these, those in the cells of its layout.
//
//   s_ij = q_i · k_j / sqrt(HS)        first_i <= j <= i, (i, j) in a cell that is seen
//   p_ij = exp(s_ij - lse_i)           lse_i = log(sum over j of exp(s_ij))
//   o_i  = sum over j of p_ij v_j
//
// The backward pass recomputes p from the saved lse (Dao, "FlashAttention-2", 2023, section 3.1):
//   dp_ij = do_i · v_j      d_i = do_i · o_i       ds_ij = p_ij (dp_ij - d_i)
//   dq_i = sum_j ds_ij k_j / sqrt(HS)   dk_j = sum_i ds_ij q_i / sqrt(HS)   dv_j = sum_i p_ij do_i
// where a key and its value sum over all query heads that read them. Here every score is recomputed
// when it is needed; the fast version (attention.c) works in tiles. Called through the kernel
// table. Read ref_ends.c next.
#include "kernels/cpu/cpu.h"

#include <math.h>

// The sizes that locate vectors of HS elements, and the keys that each query sees.
struct Heads {
    size_t t, nh, nkv, hs;
    enum Dtype dtype;
    const int32_t *first;
    struct Layout layout;
};

// Return the first element of the query of query head `head`, and of the key and value it reads.
static size_t query_at(const struct Heads *s, size_t b, size_t t, size_t head) {
    return ((b * s->t + t) * (s->nh + 2 * s->nkv) + head) * s->hs;
}

static size_t key_at(const struct Heads *s, size_t b, size_t t, size_t head) {
    return query_at(s, b, t, s->nh + head / (s->nh / s->nkv));
}

static size_t value_at(const struct Heads *s, size_t b, size_t t, size_t head) {
    return query_at(s, b, t, s->nh + s->nkv + head / (s->nh / s->nkv));
}

static size_t first_key(const struct Heads *s, size_t b, size_t t) {
    return s->first ? (size_t)s->first[b * s->t + t] : 0;
}

// True if the query sees the key; the caller keeps j between its first key and itself.
static bool sees(const struct Heads *s, size_t head, size_t i, size_t j) {
    if (!s->layout.begin)
        return true;
    struct LayoutList list = layout_list(&s->layout, LAYOUT_KEYS, head, i);
    size_t cell =
        i % LAYOUT_OWN / LAYOUT_CELL * (LAYOUT_TILE / LAYOUT_CELL) + j % LAYOUT_TILE / LAYOUT_CELL;
    while (list.tile < list.end && list.tile->at < j / LAYOUT_TILE * LAYOUT_TILE)
        list.tile++;
    return list.tile < list.end && list.tile->at == j / LAYOUT_TILE * LAYOUT_TILE &&
           (list.tile->cells >> cell & 1);
}

static size_t out_at(const struct Heads *s, size_t b, size_t t, size_t head) {
    return ((b * s->t + t) * s->nh + head) * s->hs;
}

static double dot(const struct Heads *s, const void *x, size_t x_at, const void *y, size_t y_at) {
    double sum = 0;
    for (size_t i = 0; i < s->hs; i++)
        sum += (double)dtype_load(x, s->dtype, x_at + i) * dtype_load(y, s->dtype, y_at + i);
    return sum;
}

static double score(const struct Heads *s, const void *qkv, size_t b, size_t head, size_t i,
                    size_t j) {
    double qk = dot(s, qkv, query_at(s, b, i, head), qkv, key_at(s, b, j, head));
    return qk / sqrt((double)s->hs);
}

// Computes one query's log-sum-exp (relative to the largest score, so that no exp overflows) and
// output.
static void forward_query(const struct AttentionForward *a, const struct Heads *s, size_t b,
                          size_t head, size_t i) {
    double most = -INFINITY, sum = 0;
    for (size_t j = first_key(s, b, i); j <= i; j++)
        if (sees(s, head, i, j))
            most = fmax(most, score(s, a->qkv, b, head, i, j));
    for (size_t j = first_key(s, b, i); j <= i; j++)
        if (sees(s, head, i, j))
            sum += exp(score(s, a->qkv, b, head, i, j) - most);
    double lse = most + log(sum);
    a->lse[(b * s->nh + head) * s->t + i] = (float)lse;

    double out[s->hs];
    for (size_t d = 0; d < s->hs; d++)
        out[d] = 0;
    for (size_t j = first_key(s, b, i); j <= i; j++) {
        if (!sees(s, head, i, j))
            continue;
        double p = exp(score(s, a->qkv, b, head, i, j) - lse);
        for (size_t d = 0; d < s->hs; d++)
            out[d] += p * dtype_load(a->qkv, s->dtype, value_at(s, b, j, head) + d);
    }
    for (size_t d = 0; d < s->hs; d++)
        dtype_store(a->out, s->dtype, out_at(s, b, i, head) + d, (float)out[d]);
}

void oracle_attention_forward(struct Cpu *cpu, const struct AttentionForward *a) {
    (void)cpu;
    struct Heads s = {a->t, a->nh, a->nkv, a->hs, a->dtype, a->first, a->layout};
    for (size_t b = 0; b < a->b; b++)
        for (size_t head = 0; head < a->nh; head++)
            for (size_t i = 0; i < a->t; i++)
                forward_query(a, &s, b, head, i);
}

struct Pair {
    double p, ds; // p_ij and ds_ij of a query i and a key j
};

static struct Pair pair_gradient(const struct AttentionBackward *a, const struct Heads *s, size_t b,
                                 size_t head, size_t i, size_t j) {
    double lse = a->lse[(b * s->nh + head) * s->t + i];
    double p = exp(score(s, a->qkv, b, head, i, j) - lse);
    size_t o = out_at(s, b, i, head);
    double dp = dot(s, a->dout, o, a->qkv, value_at(s, b, j, head));
    double d = dot(s, a->dout, o, a->out, o);
    return (struct Pair){p, p * (dp - d)};
}

// The gradient of a query: a sum over the keys that it sees.
static void backward_query(const struct AttentionBackward *a, const struct Heads *s, size_t b,
                           size_t head, size_t i) {
    double dq[s->hs], scale = 1.0 / sqrt((double)s->hs);
    for (size_t d = 0; d < s->hs; d++)
        dq[d] = 0;
    for (size_t j = first_key(s, b, i); j <= i; j++) {
        if (!sees(s, head, i, j))
            continue;
        struct Pair g = pair_gradient(a, s, b, head, i, j);
        for (size_t d = 0; d < s->hs; d++)
            dq[d] += g.ds * scale * dtype_load(a->qkv, s->dtype, key_at(s, b, j, head) + d);
    }
    for (size_t d = 0; d < s->hs; d++)
        dtype_store(a->dqkv, s->dtype, query_at(s, b, i, head) + d, (float)dq[d]);
}

// The gradients of a key and its value: sums over the queries that see them, in all query heads
// that read this key head.
static void backward_key(const struct AttentionBackward *a, const struct Heads *s, size_t b,
                         size_t key_head, size_t j) {
    double dk[s->hs], dv[s->hs], scale = 1.0 / sqrt((double)s->hs);
    size_t group = s->nh / s->nkv, first_head = key_head * group;
    for (size_t d = 0; d < s->hs; d++)
        dk[d] = dv[d] = 0;
    for (size_t head = first_head; head < first_head + group; head++)
        for (size_t i = j; i < s->t; i++) {
            if (first_key(s, b, i) > j || !sees(s, head, i, j))
                continue;
            struct Pair g = pair_gradient(a, s, b, head, i, j);
            for (size_t d = 0; d < s->hs; d++) {
                dk[d] += g.ds * scale * dtype_load(a->qkv, s->dtype, query_at(s, b, i, head) + d);
                dv[d] += g.p * dtype_load(a->dout, s->dtype, out_at(s, b, i, head) + d);
            }
        }
    for (size_t d = 0; d < s->hs; d++) {
        dtype_store(a->dqkv, s->dtype, key_at(s, b, j, first_head) + d, (float)dk[d]);
        dtype_store(a->dqkv, s->dtype, value_at(s, b, j, first_head) + d, (float)dv[d]);
    }
}

void oracle_attention_backward(struct Cpu *cpu, const struct AttentionBackward *a) {
    (void)cpu;
    struct Heads s = {a->t, a->nh, a->nkv, a->hs, a->dtype, a->first, a->layout};
    for (size_t b = 0; b < a->b; b++)
        for (size_t time = 0; time < a->t; time++) {
            for (size_t head = 0; head < a->nh; head++)
                backward_query(a, &s, b, head, time);
            for (size_t head = 0; head < a->nkv; head++)
                backward_key(a, &s, b, head, time);
        }
}
