// What the places of tensor parallelism exchange while they compute (Shoeybi et al. 2019,
// "Megatron-LM", section 3): the model asks for it by these names, and knows nothing else of ranks.
//
// Each place has a part of every matrix, and all work on the same tokens. An exchange is queued on
// the compute queue, between the kernels that make what it moves and those that read it. All places
// queue the same ones, in the same order. What a sum gives has the same bits on all of them.
//
// Called by model/megatron.c and model/ends.c; made by zero/tensor/across.c.
#ifndef KERNELS_ACROSS_H
#define KERNELS_ACROSS_H
#include "kernels/base.h"
#include "kernels/dtype.h"

struct Across {
    size_t place, places;
    // y[0 .. n) = its sum over the places, as all_reduce makes it (comm.h). There is memory
    // for across_room elements at y; those past n are anything, before and after.
    void (*sum)(const struct Across *, void *y, size_t n, enum Dtype dtype);
    // whole: (places) parts of `bytes` bytes each, of which this place's is there.
    void (*gather)(const struct Across *, void *whole, size_t bytes);
    void *context;
};

// NULL: there is one place.
static inline size_t across_places(const struct Across *a) {
    return a ? a->places : 1;
}
static inline size_t across_room(size_t places, size_t n) {
    return round_up(n, places);
}

#endif
