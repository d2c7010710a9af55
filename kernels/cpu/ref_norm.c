// The plain layer norm and RMS norm, fused with the preceding residual addition.
//
//   s = x + delta                 the residual stream, stored
//   n_i = (s_i - mean) * rstd     mean and variance over the C channels of one row
//   y_i = n_i * weight_i + bias_i
//
// RMS norm is the same with a mean of 0: the variance around 0 is the mean of squares. (Ba, Kiros,
// Hinton, "Layer Normalization", 2016; Zhang, Sennrich, "Root Mean Square Layer Normalization",
// 2019.) Called through the kernel table; the fast
// version is norm.c. Read ref_attention.c next.
#include "kernels/cpu/cpu.h"

#include <math.h>

// Stores the sum of row r, and returns its address: in `sum`, or in x if nothing is added.
static const void *residual_row(const struct NormForward *a, size_t r) {
    if (!a->delta)
        return dtype_at(a->x, a->dtype, r * a->c);
    for (size_t i = r * a->c; i < (r + 1) * a->c; i++) {
        float sum = dtype_load(a->x, a->dtype, i) + dtype_load(a->delta, a->dtype, i);
        dtype_store(a->sum, a->dtype, i, sum);
    }
    return dtype_at(a->sum, a->dtype, r * a->c);
}

void oracle_norm_forward(struct Cpu *cpu, const struct NormForward *a) {
    (void)cpu;
    for (size_t r = 0; r < a->rows; r++) {
        const void *row = residual_row(a, r);
        if (!a->y)
            continue;
        double mean = 0, variance = 0;
        for (size_t i = 0; a->mean && i < a->c; i++)
            mean += dtype_load(row, a->dtype, i);
        mean /= (double)a->c;
        for (size_t i = 0; i < a->c; i++) {
            double centred = dtype_load(row, a->dtype, i) - mean;
            variance += centred * centred;
        }
        double rstd = 1.0 / sqrt(variance / (double)a->c + a->eps);
        for (size_t i = 0; i < a->c; i++) {
            double n = (dtype_load(row, a->dtype, i) - mean) * rstd;
            double y = n * dtype_load(a->weight, a->dtype, i);
            y += a->bias ? dtype_load(a->bias, a->dtype, i) : 0;
            dtype_store(a->y, a->dtype, r * a->c + i, (float)y);
        }
        if (a->mean)
            a->mean[r] = (float)mean;
        a->rstd[r] = (float)rstd;
    }
}

// Returns the normalised value of row r, channel i, from the forward pass's statistics.
static double normalised(const struct NormBackward *a, size_t r, size_t i) {
    double x = dtype_load(a->x, a->dtype, r * a->c + i);
    return (x - (a->mean ? a->mean[r] : 0)) * a->rstd[r];
}

// With g = dy * weight: dx = rstd * (g - mean(g) - n * mean(g * n)). The two means are the
// gradients through the row's mean and variance; without them dx would be that of a plain scaling.
// RMS norm has no mean, so no gradient goes through it.
static void backward_row(const struct NormBackward *a, size_t r) {
    double mean_g = 0, mean_gn = 0;
    for (size_t i = 0; i < a->c; i++) {
        double g =
            (double)dtype_load(a->dy, a->dtype, r * a->c + i) * dtype_load(a->weight, a->dtype, i);
        mean_g += g / (double)a->c;
        mean_gn += g * normalised(a, r, i) / (double)a->c;
    }
    for (size_t i = 0; i < a->c; i++) {
        size_t at = r * a->c + i;
        double g = (double)dtype_load(a->dy, a->dtype, at) * dtype_load(a->weight, a->dtype, i);
        double centred = a->mean ? g - mean_g : g;
        double dx = (centred - normalised(a, r, i) * mean_gn) * a->rstd[r];
        dtype_store(a->dx, a->dtype, at, (float)(dtype_load(a->dx, a->dtype, at) + dx));
    }
}

void oracle_norm_backward(struct Cpu *cpu, const struct NormBackward *a) {
    (void)cpu;
    for (size_t i = 0; i < a->c && a->dweight; i++) {
        double dweight = a->accumulate ? dtype_load(a->dweight, a->grad_dtype, i) : 0;
        double dbias = a->accumulate && a->dbias ? dtype_load(a->dbias, a->grad_dtype, i) : 0;
        for (size_t r = 0; r < a->rows; r++) {
            double dy = dtype_load(a->dy, a->dtype, r * a->c + i);
            dweight += dy * normalised(a, r, i);
            dbias += dy;
        }
        dtype_store(a->dweight, a->grad_dtype, i, (float)dweight);
        if (a->dbias)
            dtype_store(a->dbias, a->grad_dtype, i, (float)dbias);
    }
    for (size_t r = 0; r < a->rows; r++)
        backward_row(a, r);
}
