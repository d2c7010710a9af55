// Layer norm and RMS norm, fused with the preceding addition of the residual stream.
//
// A row (one token's C channels) is a few KB, so it is walked several times: all but the first walk
// find it in the L1 cache, and the kernel waits only for memory. The variance is summed from x -
// mean in a walk of its own; sum(x^2) - mean^2 would lose its digits if the mean is large. RMS norm
// is layer norm around a mean of 0, with one walk less.
//
// Backward, with n = (x - mean) rstd the normalised row and g = dy * weight:
//   dx = rstd (g - mean(g) - n mean(g n)),   dweight = sum over rows of dy n,   dbias = sum of dy
// where RMS norm leaves out mean(g), which passed through the row's mean. The sums over rows go in
// two steps: a fixed number of chunks of rows, each summed in order into scratch, then the chunks
// in order. The result does not depend on which thread took which chunk.
//
// Called through the kernel table. Read next: attention.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_array.h"

enum { CHUNKS = 64 };

// Sets lanes past the end of the row to 0, for sums.
VEC_INLINE Vec norm_mask(Vec a, size_t i, size_t c) {
    return c - i >= VEC_LANES ? a : vec_select(vec_mask(c - i), a, vec_set(0));
}

VEC_INLINE float norm_mean(const void *x, enum Dtype d, size_t at, size_t c) {
    Vec sum = vec_set(0);
    for (size_t i = 0; i < c; i += VEC_LANES)
        sum += vec_read(x, d, at + i, at + c);
    return vec_sum(sum) / (float)c;
}

VEC_INLINE float norm_variance(const void *x, enum Dtype d, size_t at, size_t c, float mean) {
    Vec sum = vec_set(0);
    for (size_t i = 0; i < c; i += VEC_LANES) {
        Vec off = norm_mask(vec_read(x, d, at + i, at + c) - vec_set(mean), i, c);
        sum = vec_fma(off, off, sum);
    }
    return vec_sum(sum) / (float)c;
}

VEC_INLINE void norm_forward_row(const struct NormForward *a, enum Dtype d, size_t row) {
    size_t c = a->c, at = row * c, end = at + c;
    for (size_t i = at; a->delta && i < end; i += VEC_LANES)
        vec_write(a->sum, d, i, end, vec_read(a->x, d, i, end) + vec_read(a->delta, d, i, end));
    if (!a->y)
        return;
    const void *x = a->delta ? a->sum : a->x; // the stored, rounded sum
    float mean = a->mean ? norm_mean(x, d, at, c) : 0;
    float rstd = 1.0f / sqrtf(norm_variance(x, d, at, c, mean) + a->eps);
    for (size_t i = 0; i < c; i += VEC_LANES) {
        Vec n = (vec_read(x, d, at + i, end) - vec_set(mean)) * vec_set(rstd);
        Vec bias = a->bias ? vec_read(a->bias, d, i, c) : vec_set(0);
        vec_write(a->y, d, at + i, end, vec_fma(n, vec_read(a->weight, d, i, c), bias));
    }
    if (a->mean)
        a->mean[row] = mean;
    a->rstd[row] = rstd;
}

VEC_INLINE void norm_forward(struct Cpu *cpu, const struct NormForward *a, enum Dtype d) {
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t row = 0; row < a->rows; row++)
        norm_forward_row(a, d, row);
}

void CPU_NAME(norm_forward)(struct Cpu *cpu, const struct NormForward *a) {
    WITH_DTYPE(a->dtype, norm_forward(cpu, a, D));
}

// Adds to a row of dx, and what the row adds to dweight and dbias to its chunk's `sums`: c floats
// of each; NULL: nobody wants them.
VEC_INLINE void norm_backward_row(const struct NormBackward *a, enum Dtype d, size_t row,
                                  float *sums) {
    size_t c = a->c, at = row * c, end = at + c;
    Vec mean = vec_set(a->mean ? a->mean[row] : 0), rstd = vec_set(a->rstd[row]);
    Vec sum_g = vec_set(0), sum_gn = vec_set(0);
    for (size_t i = 0; i < c; i += VEC_LANES) {
        Vec dy = vec_read(a->dy, d, at + i, end);
        Vec n = (vec_read(a->x, d, at + i, end) - mean) * rstd;
        Vec g =
            dy * vec_read(a->weight, d, i, c); // 0 past the row's end, and so is its product with n
        sum_g += g;
        sum_gn = vec_fma(g, n, sum_gn);
        if (sums)
            vec_write(sums, F32, i, c, vec_fma(dy, n, vec_read(sums, F32, i, c)));
        if (a->dbias)
            vec_write(sums + c, F32, i, c, dy + vec_read(sums + c, F32, i, c));
    }
    Vec mean_g = vec_set(a->mean ? vec_sum(sum_g) / (float)c : 0);
    Vec mean_gn = vec_set(vec_sum(sum_gn) / (float)c);
    for (size_t i = 0; i < c; i += VEC_LANES) {
        Vec n = (vec_read(a->x, d, at + i, end) - mean) * rstd;
        Vec g = vec_read(a->dy, d, at + i, end) * vec_read(a->weight, d, i, c);
        Vec dx = (g - mean_g - n * mean_gn) * rstd;
        vec_write(a->dx, d, at + i, end, vec_read(a->dx, d, at + i, end) + dx);
    }
}

// Adds up one gradient, c elements from `first` on of each chunk's sums, over all chunks.
static void norm_add_chunks(struct Cpu *cpu, const struct NormBackward *a, size_t chunks,
                            size_t first, void *out) {
    const float *sums = a->work.mem;
    size_t c = a->c;
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t i = 0; i < c; i += VEC_LANES) {
        Vec sum = vec_set(0);
        for (size_t k = 0; k < chunks; k++)
            sum += vec_read(sums + 2 * c * k + first, F32, i, c);
        if (a->accumulate)
            sum += vec_read(out, a->grad_dtype, i, c);
        vec_write(out, a->grad_dtype, i, c, sum);
    }
}

VEC_INLINE void norm_backward(struct Cpu *cpu, const struct NormBackward *a, enum Dtype d) {
    size_t c = a->c, chunk_rows = size_max(ceil_div(a->rows, CHUNKS), 1);
    size_t chunks = ceil_div(a->rows, chunk_rows);
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t k = 0; k < chunks; k++) {
        float *sums = a->dweight ? (float *)a->work.mem + 2 * c * k : NULL;
        if (sums)
            memset(sums, 0, 2 * c * sizeof *sums);
        size_t end = size_min((k + 1) * chunk_rows, a->rows);
        for (size_t row = k * chunk_rows; row < end; row++)
            norm_backward_row(a, d, row, sums);
    }
    if (a->dweight)
        norm_add_chunks(cpu, a, chunks, 0, a->dweight);
    if (a->dbias)
        norm_add_chunks(cpu, a, chunks, c, a->dbias);
}

void CPU_NAME(norm_backward)(struct Cpu *cpu, const struct NormBackward *a) {
    WITH_DTYPE(a->dtype, norm_backward(cpu, a, D));
}

size_t CPU_NAME(norm_backward_work)(struct Cpu *cpu, const struct NormBackward *a) {
    (void)cpu;
    return a->dweight ? size_min(CHUNKS, a->rows) * 2 * a->c * sizeof(float) : 0;
}
