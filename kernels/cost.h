// What a kernel must do, told from its arguments alone: the same for every backend.
//
// A kernel is as good as it comes near to one of two speeds, that of the matrix units or that of
// the memory; which of them binds, and how near it is, needs the work that the mathematics asks
// for, not what some implementation happens to do. So
//
//   flops   operations of matrix products, two for a multiply-add. Of causal attention half of each
//           T x T product, as FlashAttention's benchmark counts: two products forward and five
//           backward, where the scores are made again because no T x T matrix is stored. All other
//           arithmetic is free beside the bytes that it needs, and is not counted.
//   bytes   each operand read once and each result written once, in the formats in which they are
//           stored. Scratch is not counted, nor what is read twice.
//
// How many launches a kernel takes is the backend's affair, and counted there. Traces carry both
// (kernels/trace.h); tests/bench/step_kernels.c compares them with what a GPU took, and adds them
// up to a step on paper.
#ifndef KERNELS_COST_H
#define KERNELS_COST_H
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COST_SHAPE_BYTES = 48 };

struct Cost {
    double flops, bytes;
    char shape[COST_SHAPE_BYTES]; // for people: "32768 x 3072 x 768 TN bias"; empty: none
};

// cost_matmul(a) and so on: every kernel has one. Pointers are not followed, only whether an
// optional operand is NULL is looked at.
#define X(op, Args) struct Cost cost_##op(const struct Args *a);
KERNEL_LIST(X)
#undef X

// That of the kernel with this name and its struct of operands; all 0 for a name that is none.
struct Cost cost_of(const char *name, const void *args);

#ifdef __cplusplus
}
#endif
#endif
