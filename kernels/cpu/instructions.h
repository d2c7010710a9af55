// The instruction sets that the CPU's kernels are compiled for, and which of them this CPU runs.
//
// ZERO_CPU=avx2 in the environment, or the name of another, makes every CPU one that has nothing
// beyond: tests see with it what an older one does. oneDNN is bounded with it (matmul_dnnl.c).
//
// Used by table.c and matmul.c.
#ifndef KERNELS_CPU_INSTRUCTIONS_H
#define KERNELS_CPU_INSTRUCTIONS_H
#include "kernels/base.h"

// Each has all that stands before it.
enum Instructions {
    INSTRUCTIONS_BASE, // SSE2
    INSTRUCTIONS_AVX2, // with FMA and F16C
    INSTRUCTIONS_AVX512,
    INSTRUCTIONS_AVX512BF16,
    INSTRUCTIONS_AMX,
    NINSTRUCTIONS
};

// What ZERO_CPU bounds this process to; NINSTRUCTIONS where it is not set, or no name of one, which
// instructions_check reports with -EINVAL.
enum Instructions instructions_bound(void);
int instructions_check(struct Error *e);

// Whether this CPU, within the bound, and the system run kernels that were compiled for `set`.
bool instructions_run(enum Instructions set);

#endif
