// The kernel table of CUDA: every launcher of cuda.h in its place.
#include "kernels/cuda/cuda.h"

const struct Kernels cuda_kernels = {.name = "cuda",
#define X(op, Args) .op = cuda_##op,
                                     KERNEL_LIST(X)
#undef X
#define X(op, Args) .op##_work = cuda_##op##_work,
                                         KERNEL_WORK_LIST(X)
#undef X
};
