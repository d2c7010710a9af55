// The instruction sets that the CPU's kernels are compiled for, and those that this CPU runs.
//
// ZERO_CPU=avx2 in the environment, or another name, hides everything beyond that set: tests use it
// to see what an older CPU does. It bounds oneDNN, too (matmul_dnnl.c).
//
// Used by table.c and matmul.c.
#ifndef KERNELS_CPU_INSTRUCTIONS_H
#define KERNELS_CPU_INSTRUCTIONS_H
#include "kernels/base.h"

// Each includes all sets before it.
enum Instructions {
    INSTRUCTIONS_BASE, // SSE2
    INSTRUCTIONS_AVX2, // with FMA and F16C
    INSTRUCTIONS_AVX512,
    INSTRUCTIONS_AVX512BF16,
    INSTRUCTIONS_AMX,
    NINSTRUCTIONS
};

// The set that ZERO_CPU limits this process to; NINSTRUCTIONS if it is not set or not a valid name,
// which instructions_check reports with -EINVAL.
enum Instructions instructions_bound(void);
int instructions_check(struct Error *e);

// True if this CPU, within the limit, and the system run kernels that were compiled for `set`.
bool instructions_usable(enum Instructions set);

#endif
