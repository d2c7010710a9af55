// Of a run's validations, the one with the lowest loss: what a checkpoint keeps of them. Judged by
// zero/train/best.c.
#ifndef KERNELS_JUDGED_H
#define KERNELS_JUDGED_H
#include <stdint.h>

struct Best {
    uint64_t step;    // 0: there was none
    uint64_t samples; // sequences of a validation; 0: none is judged
    float loss;
    uint32_t worse; // validations since
};

#endif
