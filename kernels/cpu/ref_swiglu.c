// The plain SwiGLU: a smooth gate times its input.
//
//   y = silu(g) u,  silu(g) = g s(g),  s(g) = 1 / (1 + e^-g)
//   dg = dy u silu'(g),  du = dy silu(g),  silu'(g) = s + g s',  s' = s (1 - s)
//
// (Shazeer, "GLU Variants Improve Transformer", 2020.) Called through the kernel table; the fast
// version is swiglu.c. Read ref_norm.c next.
#include "kernels/cpu/cpu.h"

#include <math.h>

static double sigmoid(double g) {
    return 1.0 / (1.0 + exp(-g));
}

void oracle_swiglu_forward(struct Cpu *cpu, const struct SwigluForward *a) {
    (void)cpu;
    for (size_t at = 0; at < a->rows * a->n; at++) {
        size_t gate = at / a->n * 2 * a->n + at % a->n;
        double g = dtype_load(a->x, a->dtype, gate), u = dtype_load(a->x, a->dtype, gate + a->n);
        dtype_store(a->y, a->dtype, at, (float)(g * sigmoid(g) * u));
    }
}

void oracle_swiglu_backward(struct Cpu *cpu, const struct SwigluBackward *a) {
    (void)cpu;
    for (size_t at = 0; at < a->rows * a->n; at++) {
        size_t gate = at / a->n * 2 * a->n + at % a->n;
        double g = dtype_load(a->x, a->dtype, gate), u = dtype_load(a->x, a->dtype, gate + a->n);
        double dy = dtype_load(a->dy, a->dtype, at), s = sigmoid(g);
        double slope = s + g * s * sigmoid(-g); // 1 - s, without the difference
        dtype_store(a->dx, a->dtype, gate, (float)(dy * u * slope));
        dtype_store(a->dx, a->dtype, gate + a->n, (float)(dy * g * s));
    }
}
