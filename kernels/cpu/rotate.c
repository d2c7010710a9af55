// Rotary position embedding of queries and keys, with the norm of each head that Qwen3 has.
//
// A head (HS channels, some hundred bytes) is processed at once: its pairs (i, i + HS / 2) are two
// runs of vectors. cos and sin of a position, adjacent in the table, are separated once for each
// row and serve all its heads from the L1 cache: that should save each head two shuffles and two
// loads of some twenty instructions for 32 elements. With a norm the head is read twice (backward:
// three times), the later times from the L1 cache, and the chain of its sum, root and division
// dominates.
//
// So without norms the kernel should wait only for memory, and with them almost. Measured on one
// Zen 4 core, bf16, 16 + 2 x 8 heads of 128: forward and backward 29 and 36 GB/s in the cache (14
// and 19 if each head separates the angles), 12 from memory, like gelu_forward; with norms 16 and
// 11 in the cache, 11 and 8.6 from memory.
//
// Backward, with dn the gradient dy rotated back, n = x rstd and g = dn weight:
//   dx = rstd (g - n mean(g n)),   dweight = sum over rows and heads of dn n
// The sums go in two steps as in norm.c: a fixed number of chunks of rows, each summed in order
// into scratch, then the chunks in order.
//
// Su et al., "RoFormer", 2021; the norm: Qwen Team, "Qwen3 Technical Report", 2025. Called through
// the kernel table. Read next: attention.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_array.h"
#include "kernels/cpu/vec_transpose.h"

enum {
    CHUNKS = 64,        // of rows
    MAX_CHANNELS = 1024 // of a head
};

// The vectors at pairs i .. of a head with `half` pairs: its first and its second channels.
struct Pairs {
    Vec first, second;
};

VEC_INLINE struct Pairs rotate_read(const void *head, enum Dtype d, size_t i, size_t half) {
    return (struct Pairs){vec_read(head, d, i, half), vec_read(head, d, half + i, 2 * half)};
}

VEC_INLINE void rotate_write(void *head, enum Dtype d, size_t i, size_t half, struct Pairs p) {
    vec_write(head, d, i, half, p.first);
    vec_write(head, d, half + i, 2 * half, p.second);
}

// Splits a row of the table, where cos and sin alternate, into all cos and then all sin.
VEC_INLINE void rotate_angles(const float *table, size_t half, float *angles) {
    CHECK(half <= MAX_CHANNELS / 2, "heads of %zu channels, at most %d", 2 * half, MAX_CHANNELS);
    for (size_t i = 0; i < half; i += VEC_LANES) {
        Vec low = vec_read(table, F32, 2 * i, 2 * half), high = vec_set(0);
        if (2 * i + VEC_LANES < 2 * half)
            high = vec_read(table, F32, 2 * i + VEC_LANES, 2 * half);
        rotate_write(angles, F32, i, half,
                     (struct Pairs){vec_evens(low, high), vec_odds(low, high)});
    }
}

VEC_INLINE struct Pairs rotate_turn(struct Pairs n, struct Pairs angle) {
    return (struct Pairs){vec_fma(n.first, angle.first, -(n.second * angle.second)),
                          vec_fma(n.second, angle.first, n.first * angle.second)};
}

VEC_INLINE struct Pairs rotate_turn_back(struct Pairs dy, struct Pairs angle) {
    return (struct Pairs){vec_fma(dy.first, angle.first, dy.second * angle.second),
                          vec_fma(dy.second, angle.first, -(dy.first * angle.second))};
}

VEC_INLINE struct Pairs rotate_product(struct Pairs a, struct Pairs b) {
    return (struct Pairs){a.first * b.first, a.second * b.second};
}

VEC_INLINE Vec rotate_rstd(const void *x, enum Dtype d, size_t hs, float eps) {
    Vec sum = vec_set(0);
    for (size_t i = 0; i < hs; i += VEC_LANES) {
        Vec v = vec_read(x, d, i, hs);
        sum = vec_fma(v, v, sum);
    }
    return vec_set(1.0f / sqrtf(vec_sum(sum) / (float)hs + eps));
}

VEC_INLINE void rotate_forward_head(const struct RotateForward *a, enum Dtype d, const void *x,
                                    void *y, const float *angles, const void *weight) {
    size_t half = a->hs / 2;
    Vec rstd = weight ? rotate_rstd(x, d, a->hs, a->eps) : vec_set(1);
    for (size_t i = 0; i < half; i += VEC_LANES) {
        struct Pairs n = rotate_read(x, d, i, half);
        if (weight) {
            n = rotate_product(n, (struct Pairs){rstd, rstd});
            n = rotate_product(n, rotate_read(weight, d, i, half));
        }
        rotate_write(y, d, i, half, rotate_turn(n, rotate_read(angles, F32, i, half)));
    }
}

VEC_INLINE void rotate_forward(struct Cpu *cpu, const struct RotateForward *a, enum Dtype d) {
    size_t hs = a->hs, turned = a->nh + a->nkv, heads = turned + a->nkv;
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t row = 0; row < a->b * a->t; row++) {
        float angles[MAX_CHANNELS];
        rotate_angles(a->table + row_position(a->starts, row, a->t) * hs, hs / 2, angles);
        const void *x = dtype_at(a->x, d, row * heads * hs);
        void *y = dtype_at(a->y, d, row * heads * hs);
        for (size_t head = 0; head < turned; head++)
            rotate_forward_head(a, d, dtype_at(x, d, head * hs), dtype_at(y, d, head * hs), angles,
                                head < a->nh ? a->q_norm : a->k_norm);
        if (y != x)
            memcpy(dtype_at(y, d, turned * hs), dtype_at(x, d, turned * hs),
                   a->nkv * hs * dtype_size(d));
    }
}

void CPU_NAME(rotate_forward)(struct Cpu *cpu, const struct RotateForward *a) {
    WITH_DTYPE(a->dtype, rotate_forward(cpu, a, D));
}

// Turns dy into dx, for a head without a norm.
VEC_INLINE void rotate_back_head(enum Dtype d, void *dy, const float *angles, size_t half) {
    for (size_t i = 0; i < half; i += VEC_LANES) {
        struct Pairs angle = rotate_read(angles, F32, i, half);
        rotate_write(dy, d, i, half, rotate_turn_back(rotate_read(dy, d, i, half), angle));
    }
}

// Turns dy into dx, for a head with a norm. sums: hs floats, to which dn n is added; or NULL.
VEC_INLINE void rotate_back_normed(const struct RotateBackward *a, enum Dtype d, const void *x,
                                   void *dy, const float *angles, const void *weight, float *sums) {
    size_t half = a->hs / 2;
    Vec rstd = rotate_rstd(x, d, a->hs, a->eps), sum_gn = vec_set(0);
    struct Pairs scale = {rstd, rstd};
    for (size_t i = 0; i < half; i += VEC_LANES) { // lanes past the end are 0
        struct Pairs angle = rotate_read(angles, F32, i, half);
        struct Pairs dn = rotate_turn_back(rotate_read(dy, d, i, half), angle);
        struct Pairs n = rotate_product(rotate_read(x, d, i, half), scale);
        struct Pairs dnn = rotate_product(dn, n);
        struct Pairs gn = rotate_product(dnn, rotate_read(weight, d, i, half));
        sum_gn += gn.first + gn.second;
        if (!sums)
            continue;
        struct Pairs sum = rotate_read(sums, F32, i, half);
        sum.first += dnn.first;
        sum.second += dnn.second;
        rotate_write(sums, F32, i, half, sum);
    }
    Vec mean_gn = vec_set(vec_sum(sum_gn) / (float)a->hs);
    for (size_t i = 0; i < half; i += VEC_LANES) {
        struct Pairs angle = rotate_read(angles, F32, i, half);
        struct Pairs dn = rotate_turn_back(rotate_read(dy, d, i, half), angle);
        struct Pairs n = rotate_product(rotate_read(x, d, i, half), scale);
        struct Pairs g = rotate_product(dn, rotate_read(weight, d, i, half));
        g.first -= n.first * mean_gn;
        g.second -= n.second * mean_gn;
        rotate_write(dy, d, i, half, rotate_product(g, scale));
    }
}

// sums: this chunk's, for q_norm and then for k_norm.
VEC_INLINE void rotate_backward_row(const struct RotateBackward *a, enum Dtype d, size_t row,
                                    float *sums) {
    size_t hs = a->hs, heads = a->nh + 2 * a->nkv;
    float angles[MAX_CHANNELS];
    rotate_angles(a->table + row_position(a->starts, row, a->t) * hs, hs / 2, angles);
    for (size_t head = 0; head < a->nh + a->nkv; head++) {
        bool is_key = head >= a->nh;
        const void *weight = is_key ? a->k_norm : a->q_norm;
        void *dy = dtype_at(a->dy, d, (row * heads + head) * hs);
        if (weight)
            rotate_back_normed(a, d, dtype_at(a->x, d, (row * heads + head) * hs), dy, angles,
                               weight,
                               (is_key ? a->dk_norm : a->dq_norm) ? sums + is_key * hs : NULL);
        else
            rotate_back_head(d, dy, angles, hs / 2);
    }
}

// Adds up one gradient over all chunks, whose sums for it begin at `first`.
static void rotate_add_chunks(const struct RotateBackward *a, size_t chunks, size_t first,
                              void *out) {
    const float *sums = (const float *)a->work.mem + first;
    size_t hs = a->hs;
    for (size_t i = 0; i < hs; i += VEC_LANES) {
        Vec sum = vec_set(0);
        for (size_t k = 0; k < chunks; k++)
            sum += vec_read(sums + 2 * hs * k, F32, i, hs);
        if (a->accumulate)
            sum += vec_read(out, a->grad_dtype, i, hs);
        vec_write(out, a->grad_dtype, i, hs, sum);
    }
}

VEC_INLINE void rotate_backward(struct Cpu *cpu, const struct RotateBackward *a, enum Dtype d) {
    size_t rows = a->b * a->t, chunk_rows = ceil_div(rows, CHUNKS);
    size_t chunks = rows ? ceil_div(rows, chunk_rows) : 0;
    bool sums_wanted = a->dq_norm || a->dk_norm;
    CHECK(a->work.bytes >= CPU_NAME(rotate_backward_work)(cpu, a), "%zu bytes", a->work.bytes);
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t k = 0; k < chunks; k++) {
        float *sums = sums_wanted ? (float *)a->work.mem + 2 * a->hs * k : NULL;
        if (sums)
            memset(sums, 0, 2 * a->hs * sizeof *sums);
        size_t end = size_min((k + 1) * chunk_rows, rows);
        for (size_t row = k * chunk_rows; row < end; row++)
            rotate_backward_row(a, d, row, sums);
    }
    if (a->dq_norm)
        rotate_add_chunks(a, chunks, 0, a->dq_norm);
    if (a->dk_norm)
        rotate_add_chunks(a, chunks, a->hs, a->dk_norm);
}

void CPU_NAME(rotate_backward)(struct Cpu *cpu, const struct RotateBackward *a) {
    WITH_DTYPE(a->dtype, rotate_backward(cpu, a, D));
}

size_t CPU_NAME(rotate_backward_work)(struct Cpu *cpu, const struct RotateBackward *a) {
    (void)cpu;
    if (!a->dq_norm && !a->dk_norm)
        return 0;
    return size_min(CHUNKS, a->b * a->t) * 2 * a->hs * sizeof(float);
}
