// The work of a kernel, computed from its arguments alone: the same for every backend.
//
// A kernel is judged by how near it comes to one of two speeds, that of the matrix units or that of
// the memory; which one limits it, and how near it is, depends on the work that the mathematics
// needs, not on the work that an implementation happens to do. So
//
//   flops   operations of matrix products, two for a multiply-add. For causal attention half of
//           each T x T product, as FlashAttention's benchmark counts: two products forward and five
//           backward, where scores are recomputed because no T x T matrix is stored. All other
//           arithmetic is free beside the bytes that it needs, and is not counted.
//   bytes   each operand read once and each result written once, in their storage formats.
//           Scratch and repeated reads are not counted.
//
// The number of launches depends on the backend, and is counted there. Traces carry both
// (kernels/trace.h); tests/bench/step_kernels.c compares them with a GPU's measured times, and adds
// them up to a predicted step.
#ifndef KERNELS_COST_H
#define KERNELS_COST_H
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COST_SHAPE_BYTES = 48 };

struct Cost {
    double flops, bytes;
    char shape[COST_SHAPE_BYTES]; // to be printed: "32768 x 3072 x 768 TN bias"; empty: none
};

// cost_matmul(a) and so on: every kernel has one. They follow no pointers, and only test whether an
// optional operand is NULL.
#define X(op, Args) struct Cost cost_##op(const struct Args *a);
KERNEL_LIST(X)
#undef X

// Returns the cost of the kernel of this name with its struct of operands; all 0 if there is none.
struct Cost cost_of(const char *name, const void *args);

#ifdef __cplusplus
}
#endif
#endif
