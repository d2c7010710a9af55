// Kernels of collectives on other ranks' memory: sum shards over ranks, and gather shards.
//
// A sum goes over the ranks in order for every element, in fp32, and is rounded once: so each ZeRO
// stage, which cuts the same sums into other pieces, gets the same bits. Both loops are bound by
// memory; the threads divide long runs.
//
// Called through the kernel table by zero/comm/thread.c, mpi.c and self.c. This is the last of
// the CPU kernels; read next: zero/step.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_array.h"

enum {
    PIECE = 8192,           // elements that one thread takes at a time
    PIECE_BYTES = 64 << 10, // bytes, if they are only copied
};

VEC_INLINE void sum_piece(const struct RankSum *a, enum Dtype d, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i += VEC_LANES) {
        size_t at = a->begin + i, stop = a->begin + end;
        Vec sum = vec_read(a->src[0], d, at, stop);
        if (a->accumulate)
            sum = vec_read(a->dst, d, i, end) + sum;
        for (size_t r = 1; r < a->ranks; r++)
            sum = sum + vec_read(a->src[r], d, at, stop);
        vec_write(a->dst, d, i, end, sum);
    }
}

void CPU_NAME(rank_sum)(struct Cpu *cpu, const struct RankSum *a) {
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t begin = 0; begin < a->n; begin += PIECE) {
        size_t end = size_min(begin + PIECE, a->n);
        WITH_DTYPE(a->dtype, sum_piece(a, D, begin, end));
    }
}

void CPU_NAME(rank_gather)(struct Cpu *cpu, const struct RankGather *a) {
    size_t pieces = ceil_div(a->bytes, PIECE_BYTES);
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t k = 0; k < a->ranks * pieces; k++) {
        size_t r = k / pieces, at = k % pieces * PIECE_BYTES;
        if (r != a->skip)
            memcpy((char *)a->dst + r * a->bytes + at,
                   (char *)a->src[r] + a->begin + r * a->step + at,
                   size_min(PIECE_BYTES, a->bytes - at));
    }
}
