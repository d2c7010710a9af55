// The plain dropout. Called through the kernel table. Read ref_ends.c next.
#include "kernels/cpu/cpu.h"

void oracle_dropout(struct Cpu *cpu, const struct Dropout *a) {
    (void)cpu;
    for (size_t row = 0; row < a->rows; row++)
        for (size_t col = 0; col < a->cols; col++) {
            size_t i = row * a->cols + col;
            dtype_store(a->y, a->dtype, i,
                        dtype_load(a->x, a->dtype, i) * dropout_factor(a, row, col));
        }
}
