// GELU, the simplest of the fast kernels, and the pattern for all: an inline function of a dtype, a
// public function that compiles it for every dtype, and a loop over fixed pieces of the array that
// are divided among the threads. A piece does not depend on the number of threads.
//
// Called through the kernel table. The backward pass is the epilogue of a matmul (matmul_tile.c),
// which also uses vec_gelu of vec_math.h. Read next: norm.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_math.h"

enum { PIECE = 8192 }; // elements that one thread takes at a time

VEC_INLINE void gelu_forward(struct Cpu *cpu, const struct GeluForward *a, enum Dtype d) {
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t begin = 0; begin < a->n; begin += PIECE) {
        size_t end = size_min(begin + PIECE, a->n);
        for (size_t i = begin; i < end; i += VEC_LANES)
            vec_write(a->y, d, i, end, vec_gelu(vec_read(a->x, d, i, end), d));
    }
}

void CPU_NAME(gelu_forward)(struct Cpu *cpu, const struct GeluForward *a) {
    WITH_DTYPE(a->dtype, gelu_forward(cpu, a, D));
}
