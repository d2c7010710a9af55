// The plain GELU: x times a smooth step h(x) from 0 to 1.
//
//   GELU(x) = x * h(x),  h = (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u))
//   u = sqrt(2/pi) (x + 0.044715 x^3)
//
// (Hendrycks, Gimpel 2016; GPT-2 uses this tanh form, not the one with erf.) This uses the form
// with exp: 1 + tanh(u) loses its digits for negative u. Called through the kernel table, and by
// the epilogues of ref_matmul.c. Read ref_norm.c next.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ref.h"

#include <math.h>

static const double GELU_SCALE = 0.79788456080286535588; // sqrt(2 / pi)
static const double GELU_CUBIC = 0.044715;

static double smooth_step(double x) {
    return 1.0 / (1.0 + exp(-2.0 * GELU_SCALE * (x + GELU_CUBIC * x * x * x)));
}

double oracle_gelu(double x) {
    return x * smooth_step(x);
}

// By the product rule h + x h', where h' = 2 h (1 - h) u'.
double oracle_gelu_slope(double x) {
    double h = smooth_step(x), du = GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * x * x);
    return h + x * 2.0 * h * (1.0 - h) * du;
}

void oracle_gelu_forward(struct Cpu *cpu, const struct GeluForward *a) {
    (void)cpu;
    for (size_t i = 0; i < a->n; i++)
        dtype_store(a->y, a->dtype, i, (float)oracle_gelu(dtype_load(a->x, a->dtype, i)));
}
