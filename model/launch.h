// Launches of the model's kernels: on the compute queue, with the model's scratch.
//
// Before the first step the same code runs once with m->sizing set. Then a launch starts nothing: a
// kernel that needs scratch is asked how much, and the largest answer becomes the size of the
// workspace. So the workspace fits exactly what the model does, with no second list of shapes to
// keep in step.
#ifndef MODEL_LAUNCH_H
#define MODEL_LAUNCH_H
#include "model/model.h"

// Launches a kernel without scratch.
#define LAUNCH(m, op, ...)                                                                         \
    do {                                                                                           \
        if (!(m)->sizing)                                                                          \
            (m)->device->kernels->op((m)->device->queue[QUEUE_COMPUTE], &__VA_ARGS__);             \
    } while (0)

// Launches a kernel with scratch: `args` is a variable whose .work is filled here.
#define LAUNCH_WITH_WORK(m, op, args)                                                              \
    do {                                                                                           \
        if ((m)->sizing) {                                                                         \
            size_t bytes = (m)->device->kernels->op##_work((m)->device, &(args));                  \
            (m)->work.bytes = size_max((m)->work.bytes, bytes);                                    \
        } else {                                                                                   \
            (args).work = (m)->work;                                                               \
            (m)->device->kernels->op((m)->device->queue[QUEUE_COMPUTE], &(args));                  \
        }                                                                                          \
    } while (0)

// Return an operand of a product: a row-major matrix, whose rows begin ld elements apart; or its
// transpose.
static inline struct Mat mat(const void *data, enum Dtype dtype, size_t ld) {
    return (struct Mat){.data = (void *)data, .dtype = dtype, .ld = ld};
}
static inline struct Mat mat_transposed(const void *data, enum Dtype dtype, size_t ld) {
    return (struct Mat){.data = (void *)data, .dtype = dtype, .ld = ld, .transposed = true};
}

// True for rows of generation, at most one of each sequence, whose products have few_rows. Training
// and validation have no cache: their bits stay those of whole products.
static inline bool is_few_rows(const struct Acts *acts, size_t rows) {
    return acts->cache && rows <= size_min(acts->b, MATMUL_FEW_ROWS);
}

#endif
