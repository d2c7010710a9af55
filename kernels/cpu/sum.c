// Sums over whole buffers, for the norm of the gradient, and what follows from the norm.
//
// Chunks of fixed size are summed apart and added in order, so the result does not depend on how
// many threads shared them out. Everything is summed in fp64: a gradient has 10^8 elements, and the
// clip factor must not drift with its size.
//
// Called through the kernel table. Read next: adamw.c, then ranks.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_array.h"

enum {
    CHUNK = 16384, // elements
    WAVE = 256,    // chunks that are summed before their sums are added
    LANES = 32     // separate sums in a chunk: enough that additions do not wait for each other
};

VEC_INLINE double sum_chunk(const void *x, enum Dtype d, bool square, size_t n) {
    double sums[LANES] = {0}, total = 0;
    float block[LANES];
    for (size_t i = 0; i < n; i += LANES) {
        for (size_t j = 0; j < LANES; j += VEC_LANES)
            vec_store_f32(block + j, i + j < n ? vec_read(x, d, i + j, n) : vec_set(0));
        for (size_t j = 0; j < LANES; j++)
            sums[j] += square ? (double)block[j] * block[j] : block[j];
    }
    for (size_t j = 0; j < LANES; j++)
        total += sums[j];
    return total;
}

VEC_INLINE void sum_wave(struct Cpu *cpu, const struct Sum *a, enum Dtype d, bool square,
                         size_t begin, size_t end, double *sums) {
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t i = begin; i < end; i += CHUNK)
        sums[(i - begin) / CHUNK] =
            sum_chunk(dtype_at(a->x, d, i), d, square, size_min(CHUNK, end - i));
}

void CPU_NAME(sum)(struct Cpu *cpu, const struct Sum *a) {
    double total = a->accumulate ? *a->out : 0, sums[WAVE];
    for (size_t begin = 0; begin < a->n; begin += (size_t)WAVE * CHUNK) {
        size_t end = size_min(begin + (size_t)WAVE * CHUNK, a->n);
        if (a->square)
            WITH_DTYPE(a->dtype, sum_wave(cpu, a, D, true, begin, end, sums));
        else
            WITH_DTYPE(a->dtype, sum_wave(cpu, a, D, false, begin, end, sums));
        for (size_t k = 0; k < ceil_div(end - begin, CHUNK); k++)
            total += sums[k];
    }
    *a->out = total;
}

void CPU_NAME(step_clip)(struct Cpu *cpu, const struct StepClip *a) {
    (void)cpu;
    double squares = 0;
    for (size_t r = 0; r < a->ranks; r++)
        for (size_t i = 0; i < a->n; i++)
            squares += a->squares[r * a->stride + i];
    step_state_end(a->state, squares);
}
