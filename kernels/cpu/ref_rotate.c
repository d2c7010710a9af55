// The plain rotary position embedding, after an RMS norm of each head if the model has one.
//
// Channels i and j = i + HS / 2 of a query or key are a point in the plane, which is turned by an
// angle that grows with the position:
//
//   y_i = n_i cos - n_j sin,  y_j = n_j cos + n_i sin
//
// The product of a query and a key then depends on the distance of their positions alone. Backward
// turns the other way, as a rotation's transpose is its inverse. (Su et al., "RoFormer", 2021.)
// With a norm, n = x rstd weight, and the gradient dn of n goes through it as in ref_norm.c.
//
// Called through the kernel table; the fast version is rotate.c. Read ref_swiglu.c next.
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>

// One head of one row: its first element, its row of the table, and its norm.
struct RotateHead {
    size_t at, hs;
    enum Dtype dtype;
    const float *table;
    const void *x, *norm;
    float eps;
};

static double head_rstd(const struct RotateHead *h) {
    double squares = 0;
    for (size_t i = 0; i < h->hs; i++)
        squares += pow(dtype_load(h->x, h->dtype, h->at + i), 2);
    return 1.0 / sqrt(squares / (double)h->hs + h->eps);
}

// n_i of the head.
static double normed(const struct RotateHead *h, double rstd, size_t i) {
    double x = dtype_load(h->x, h->dtype, h->at + i);
    return h->norm ? x * rstd * dtype_load(h->norm, h->dtype, i) : x;
}

static void forward_head(const struct RotateHead *h, void *y) {
    double rstd = h->norm ? head_rstd(h) : 1;
    for (size_t i = 0, j = h->hs / 2; j < h->hs; i++, j++) {
        double cosine = h->table[2 * i], sine = h->table[2 * i + 1];
        double ni = normed(h, rstd, i), nj = normed(h, rstd, j);
        dtype_store(y, h->dtype, h->at + i, (float)(ni * cosine - nj * sine));
        dtype_store(y, h->dtype, h->at + j, (float)(nj * cosine + ni * sine));
    }
}

void oracle_rotate_forward(struct Cpu *cpu, const struct RotateForward *a) {
    (void)cpu;
    CHECK(a->hs % 2 == 0, "heads of %zu channels", a->hs);
    size_t heads = a->nh + 2 * a->nkv;
    for (size_t k = 0; k < a->b * a->t * heads; k++) {
        size_t row = k / heads, head = k % heads;
        const void *norm = head < a->nh ? a->q_norm : a->k_norm;
        const float *angles = a->table + row_position(a->starts, row, a->t) * a->hs;
        struct RotateHead h = {k * a->hs, a->hs, a->dtype, angles, a->x, norm, a->eps};
        if (head < a->nh + a->nkv)
            forward_head(&h, a->y);
        else if (a->y != a->x)
            memcpy(dtype_at(a->y, a->dtype, h.at), dtype_at(a->x, a->dtype, h.at),
                   a->hs * dtype_size(a->dtype));
    }
}

// Returns dn_i: channel i of dy rotated back.
static double rotate_channel_back(const struct RotateHead *h, const void *dy, size_t i) {
    size_t half = h->hs / 2, pair = i % half;
    double first = dtype_load(dy, h->dtype, h->at + pair);
    double second = dtype_load(dy, h->dtype, h->at + pair + half);
    double cosine = h->table[2 * pair], sine = h->table[2 * pair + 1];
    return i < half ? first * cosine + second * sine : second * cosine - first * sine;
}

// With g = dn weight and the normalised x^ = x rstd: dx = rstd (g - x^ mean(g x^)). Adds dn x^ to
// `sums` (NULL: not needed).
static void backward_head(const struct RotateHead *h, void *dy, double *sums) {
    double rstd = h->norm ? head_rstd(h) : 1, mean = 0;
    double *dx = base_alloc(h->hs * sizeof *dx);
    for (size_t i = 0; i < h->hs; i++) {
        dx[i] = rotate_channel_back(h, dy, i);
        if (!h->norm)
            continue;
        double n = dtype_load(h->x, h->dtype, h->at + i) * rstd;
        if (sums)
            sums[i] += dx[i] * n;
        dx[i] *= dtype_load(h->norm, h->dtype, i);
        mean += dx[i] * n / (double)h->hs;
    }
    for (size_t i = 0; i < h->hs; i++) {
        if (h->norm)
            dx[i] = rstd * (dx[i] - dtype_load(h->x, h->dtype, h->at + i) * rstd * mean);
        dtype_store(dy, h->dtype, h->at + i, (float)dx[i]);
    }
    free(dx);
}

static void store_sums(const struct RotateBackward *a, const double *sums, void *out) {
    for (size_t i = 0; out && i < a->hs; i++) {
        double old = a->accumulate ? dtype_load(out, a->grad_dtype, i) : 0;
        dtype_store(out, a->grad_dtype, i, (float)(old + sums[i]));
    }
}

void oracle_rotate_backward(struct Cpu *cpu, const struct RotateBackward *a) {
    (void)cpu;
    CHECK(a->hs % 2 == 0, "heads of %zu channels", a->hs);
    size_t heads = a->nh + 2 * a->nkv;
    double *sums = base_alloc_zeroed(2 * a->hs * sizeof *sums); // of q_norm, k_norm
    for (size_t k = 0; k < a->b * a->t * heads; k++) {
        size_t row = k / heads, head = k % heads;
        bool is_key = head >= a->nh;
        if (head >= a->nh + a->nkv)
            continue;
        const float *angles = a->table + row_position(a->starts, row, a->t) * a->hs;
        struct RotateHead h = {k * a->hs, a->hs, a->dtype, angles, a->x, a->q_norm, a->eps};
        if (is_key)
            h.norm = a->k_norm;
        backward_head(&h, a->dy, sums + is_key * a->hs);
    }
    store_sums(a, sums, a->dq_norm);
    store_sums(a, sums + a->hs, a->dk_norm);
    free(sums);
}
