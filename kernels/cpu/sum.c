// Sums over whole buffers, for the norm of the gradient, and the step's end, which uses the norm.
//
// Chunks of fixed size are summed separately and added in order, in fp64: a gradient has 10^8
// elements, and the clip factor must not drift with its size.
//
// One thread does it, beside the threads of the compute queue: it is a single pass over memory, and
// a team of threads for the queue that calls it costs more than it saves (queue.c, give_up_team).
//
// Called through the kernel table. Read next: adamw.c, then ranks.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_array.h"

enum {
    CHUNK = 16384, // elements
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

VEC_INLINE double sum_all(const struct Sum *a, enum Dtype d, bool square) {
    double total = a->accumulate ? *a->out : 0;
    for (size_t i = 0; i < a->n; i += CHUNK)
        total += sum_chunk(dtype_at(a->x, d, i), d, square, size_min(CHUNK, a->n - i));
    return total;
}

void CPU_NAME(sum)(struct Cpu *cpu, const struct Sum *a) {
    (void)cpu;
    if (a->square)
        WITH_DTYPE(a->dtype, *a->out = sum_all(a, D, true));
    else
        WITH_DTYPE(a->dtype, *a->out = sum_all(a, D, false));
}

void CPU_NAME(step_clip)(struct Cpu *cpu, const struct StepClip *a) {
    (void)cpu;
    double squares = 0;
    for (size_t r = 0; r < a->ranks; r++)
        for (size_t i = 0; i < a->n; i++)
            squares += step_clip_square(a, r, i);
    step_state_end(a->state, squares);
}
