// The kernel table of CUDA: every launcher of cuda.h, timed where somebody traces, and named where
// its kernels fail.
#include "kernels/cuda/spans.h"

#define X(op, Args)                                                                                \
    static void launch_##op(struct Stream *s, const struct Args *a) {                              \
        span_begin(s, #op);                                                                        \
        launch_begin(s, #op);                                                                      \
        cuda_##op(s, a);                                                                           \
        launch_end(s);                                                                             \
        span_end(s);                                                                               \
    }
KERNEL_LIST(X)
#undef X

const struct Kernels cuda_kernels = {.name = "cuda",
#define X(op, Args) .op = launch_##op,
                                     KERNEL_LIST(X)
#undef X
#define X(op, Args) .op##_work = cuda_##op##_work,
                                         KERNEL_WORK_LIST(X)
#undef X
};
