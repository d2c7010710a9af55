// The kernel table of CUDA: every launcher of cuda.h, as the last row of its operation's variants
// (variants.h), timed if there is a trace, and named if its kernels fail. A launcher of several
// kernels names its later parts itself (span_part).
#include "kernels/cuda/spans.h"
#include "kernels/tier_check.h"

#define X(op, Args)                                                                                \
    static void generic_##op(struct Stream *s, const void *a) {                                    \
        cuda_##op(s, a);                                                                           \
    }
KERNEL_LIST(X)
#undef X

const struct Variant cuda_generic[NCUDA_OP] = {
#define X(op, Args) {"generic", CUDA_OP_##op, 0, NULL, generic_##op},
    KERNEL_LIST(X)
#undef X
};

#define X(op, Args)                                                                                \
    static void launch_##op(struct Stream *s, const struct Args *a) {                              \
        tier_check_launch(&s->cuda->device, #op, a);                                               \
        span_begin(s, #op, a);                                                                     \
        if (span_is_on(s))                                                                         \
            span_part(s, #op, cost_##op(a));                                                       \
        launch_begin(s, #op);                                                                      \
        variants_launch(s, CUDA_OP_##op, a);                                                       \
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
