// The plain causal attention: each query looks at the keys at and before its own time.
//
//   s_ij = q_i · k_j / sqrt(HS)        j <= i
//   p_ij = exp(s_ij - lse_i)           lse_i = log(sum over j of exp(s_ij))
//   o_i  = sum over j of p_ij v_j
//
// The backward pass recomputes p from the saved lse (Dao, "FlashAttention-2", 2023, section 3.1):
//   dp_ij = do_i · v_j      d_i = do_i · o_i       ds_ij = p_ij (dp_ij - d_i)
//   dq_i = sum_j ds_ij k_j / sqrt(HS)   dk_j = sum_i ds_ij q_i / sqrt(HS)   dv_j = sum_i p_ij do_i
// Here every score is simply computed again where it is needed; the fast version (attention.c)
// works in tiles. Called through the kernel table. Read ref_ends.c next.
#include "kernels/cpu/cpu.h"

#include <math.h>

// The sizes that say where a vector of HS elements is. which: 0 query, 1 key, 2 value.
struct Heads {
    size_t t, nh, hs;
    enum Dtype dtype;
};

static size_t qkv_at(const struct Heads *s, size_t b, size_t t, size_t which, size_t head) {
    return (((b * s->t + t) * 3 + which) * s->nh + head) * s->hs;
}

static size_t out_at(const struct Heads *s, size_t b, size_t t, size_t head) {
    return ((b * s->t + t) * s->nh + head) * s->hs;
}

static double dot(const struct Heads *s, const void *x, size_t at, const void *y, size_t bt) {
    double sum = 0;
    for (size_t i = 0; i < s->hs; i++)
        sum += (double)dtype_load(x, s->dtype, at + i) * dtype_load(y, s->dtype, bt + i);
    return sum;
}

static double score(const struct Heads *s, const void *qkv, size_t b, size_t head, size_t i,
                    size_t j) {
    double qk = dot(s, qkv, qkv_at(s, b, i, 0, head), qkv, qkv_at(s, b, j, 1, head));
    return qk / sqrt((double)s->hs);
}

// One query: its log-sum-exp (with the largest score taken out, so that no exp overflows) and
// output.
static void forward_query(const struct AttentionForward *a, const struct Heads *s, size_t b,
                          size_t head, size_t i) {
    double most = -INFINITY, sum = 0;
    for (size_t j = 0; j <= i; j++)
        most = fmax(most, score(s, a->qkv, b, head, i, j));
    for (size_t j = 0; j <= i; j++)
        sum += exp(score(s, a->qkv, b, head, i, j) - most);
    double lse = most + log(sum);
    a->lse[(b * s->nh + head) * s->t + i] = (float)lse;

    double out[s->hs];
    for (size_t d = 0; d < s->hs; d++)
        out[d] = 0;
    for (size_t j = 0; j <= i; j++) {
        double p = exp(score(s, a->qkv, b, head, i, j) - lse);
        for (size_t d = 0; d < s->hs; d++)
            out[d] += p * dtype_load(a->qkv, s->dtype, qkv_at(s, b, j, 2, head) + d);
    }
    for (size_t d = 0; d < s->hs; d++)
        dtype_store(a->out, s->dtype, out_at(s, b, i, head) + d, (float)out[d]);
}

void oracle_attention_forward(struct Cpu *cpu, const struct AttentionForward *a) {
    (void)cpu;
    struct Heads s = {a->t, a->nh, a->hs, a->dtype};
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
    double dp = dot(s, a->dout, o, a->qkv, qkv_at(s, b, j, 2, head));
    double d = dot(s, a->dout, o, a->out, o);
    return (struct Pair){p, p * (dp - d)};
}

// The three gradients of one time, of one head: as a query it sums over the keys before it, as a
// key and as a value over the queries after it.
static void backward_time(const struct AttentionBackward *a, const struct Heads *s, size_t b,
                          size_t head, size_t time) {
    double dq[s->hs], dk[s->hs], dv[s->hs], scale = 1.0 / sqrt((double)s->hs);
    for (size_t d = 0; d < s->hs; d++)
        dq[d] = dk[d] = dv[d] = 0;
    for (size_t j = 0; j <= time; j++) {
        struct Pair g = pair_gradient(a, s, b, head, time, j);
        for (size_t d = 0; d < s->hs; d++)
            dq[d] += g.ds * scale * dtype_load(a->qkv, s->dtype, qkv_at(s, b, j, 1, head) + d);
    }
    for (size_t i = time; i < s->t; i++) {
        struct Pair g = pair_gradient(a, s, b, head, i, time);
        for (size_t d = 0; d < s->hs; d++) {
            dk[d] += g.ds * scale * dtype_load(a->qkv, s->dtype, qkv_at(s, b, i, 0, head) + d);
            dv[d] += g.p * dtype_load(a->dout, s->dtype, out_at(s, b, i, head) + d);
        }
    }
    for (size_t d = 0; d < s->hs; d++) {
        dtype_store(a->dqkv, s->dtype, qkv_at(s, b, time, 0, head) + d, (float)dq[d]);
        dtype_store(a->dqkv, s->dtype, qkv_at(s, b, time, 1, head) + d, (float)dk[d]);
        dtype_store(a->dqkv, s->dtype, qkv_at(s, b, time, 2, head) + d, (float)dv[d]);
    }
}

void oracle_attention_backward(struct Cpu *cpu, const struct AttentionBackward *a) {
    (void)cpu;
    struct Heads s = {a->t, a->nh, a->hs, a->dtype};
    for (size_t b = 0; b < a->b; b++)
        for (size_t head = 0; head < a->nh; head++)
            for (size_t time = 0; time < a->t; time++)
                backward_time(a, &s, b, head, time);
}

size_t oracle_attention_forward_work(struct Cpu *cpu, const struct AttentionForward *a) {
    (void)cpu;
    (void)a;
    return 0;
}

size_t oracle_attention_backward_work(struct Cpu *cpu, const struct AttentionBackward *a) {
    (void)cpu;
    (void)a;
    return 0;
}
