// The plain GELU: x times a smooth step from 0 to 1.
//
//   GELU(x) = x * h(x),  h(x) = (1 + tanh(u(x))) / 2,  u(x) = sqrt(2/pi) (x + 0.044715 x^3)
//
// (Hendrycks, Gimpel 2016; GPT-2 uses this tanh form, not the one with erf.) Called through the kernel
// table, and by the epilogues of ref_matmul.c. Read ref_norm.c next.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ref.h"

#include <math.h>

static const double GELU_SCALE = 0.79788456080286535588; // sqrt(2 / pi)
static const double GELU_CUBIC = 0.044715;

double oracle_gelu(double x) {
    double u = GELU_SCALE * (x + GELU_CUBIC * x * x * x);
    return 0.5 * x * (1.0 + tanh(u));
}

// By the product rule h + x h', where tanh' = 1 - tanh^2.
double oracle_gelu_slope(double x) {
    double u = GELU_SCALE * (x + GELU_CUBIC * x * x * x);
    double du = GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * x * x);
    double th = tanh(u);
    return 0.5 * (1.0 + th) + 0.5 * x * (1.0 - th * th) * du;
}

void oracle_gelu_forward(struct Cpu *cpu, const struct GeluForward *a) {
    (void)cpu;
    for (size_t i = 0; i < a->n; i++)
        dtype_store(a->y, a->dtype, i, (float)oracle_gelu(dtype_load(a->x, a->dtype, i)));
}
