// SwiGLU, y = silu(g) u, and its backward pass.
//
// A row of x is [g | u], so a thread walks three arrays at once (five in the backward pass), each
// in order. One e^x and one division an element, some 20 instructions for a vector of 16, take
// about as long as one core waits for its 6 bytes (10 in the backward pass) of bf16: the kernels
// should reach the elements a second of gelu_forward, which does the same arithmetic for 4 bytes,
// or what memory gives, whichever is less. Measured on one Zen 4 core, bf16: 2.3 G elements/s and
// 13.6 GB/s forward, 1.7 and 16.6 backward; gelu_forward 3.0 and 12.1. Both read an element before
// they write it, so dx may be x.
//
// Below g = -88 e^-g is near the end of fp32, and silu(g) is 0 to within 6e-37: g is clamped there,
// so that no e^-g is infinite and no product of it with 0 a NaN.
//
// Shazeer, "GLU Variants Improve Transformer", 2020. Called through the kernel table. Read next:
// rotate.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_math.h"

VEC_INLINE Vec swiglu_clamp(Vec g) { // NaN stays
    return vec_max(vec_set(-88.0f), g);
}

VEC_INLINE void swiglu_forward(struct Cpu *cpu, const struct SwigluForward *a, enum Dtype d) {
    size_t n = a->n;
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t row = 0; row < a->rows; row++) {
        const void *gate = dtype_at(a->x, d, 2 * n * row), *up = dtype_at(gate, d, n);
        void *y = dtype_at(a->y, d, n * row);
        for (size_t i = 0; i < n; i += VEC_LANES) {
            Vec g = swiglu_clamp(vec_read(gate, d, i, n));
            Vec silu = g / (vec_set(1.0f) + vec_exp_for(-g, d));
            vec_write(y, d, i, n, silu * vec_read(up, d, i, n));
        }
    }
}

void CPU_NAME(swiglu_forward)(struct Cpu *cpu, const struct SwigluForward *a) {
    WITH_DTYPE(a->dtype, swiglu_forward(cpu, a, D));
}

// silu' = s + g s (1 - s), with e = e^-g and s = 1 / (1 + e); 1 - s is computed as e s, which loses
// no digits for s near 1.
VEC_INLINE void swiglu_backward(struct Cpu *cpu, const struct SwigluBackward *a, enum Dtype d) {
    size_t n = a->n;
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t row = 0; row < a->rows; row++) {
        const void *gate = dtype_at(a->x, d, 2 * n * row), *up = dtype_at(gate, d, n);
        const void *dy = dtype_at(a->dy, d, n * row);
        void *dgate = dtype_at(a->dx, d, 2 * n * row), *dup = dtype_at(dgate, d, n);
        for (size_t i = 0; i < n; i += VEC_LANES) {
            Vec g = swiglu_clamp(vec_read(gate, d, i, n)), u = vec_read(up, d, i, n);
            Vec dout = vec_read(dy, d, i, n), e = vec_exp_for(-g, d);
            Vec s = vec_set(1.0f) / (vec_set(1.0f) + e), silu = g * s;
            vec_write(dgate, d, i, n, dout * u * vec_fma(silu, e * s, s));
            vec_write(dup, d, i, n, dout * silu);
        }
    }
}

void CPU_NAME(swiglu_backward)(struct Cpu *cpu, const struct SwigluBackward *a) {
    WITH_DTYPE(a->dtype, swiglu_backward(cpu, a, D));
}
