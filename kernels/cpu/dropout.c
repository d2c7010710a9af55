// Dropout, or a plain scale: one walk over rows, a row to a thread. Called through the kernel
// table. Read next: norm.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_math.h"

VEC_INLINE void dropout(struct Cpu *cpu, const struct Dropout *a, enum Dtype d) {
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t row = 0; row < a->rows; row++) {
        size_t begin = row * a->cols, end = begin + a->cols;
        for (size_t i = begin; i < end; i += VEC_LANES) {
            float factor[VEC_LANES];
            for (size_t k = 0; k < VEC_LANES; k++)
                factor[k] = a->p > 0 ? dropout_factor(a, row, i - begin + k) : a->scale;
            Vec y = vec_read(a->x, d, i, end) * vec_load_f32(factor);
            vec_write(a->y, d, i, end, y);
        }
    }
}

void CPU_NAME(dropout)(struct Cpu *cpu, const struct Dropout *a) {
    WITH_DTYPE(a->dtype, dropout(cpu, a, D));
}
