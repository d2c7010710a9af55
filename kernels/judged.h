// The validation of a run with the lowest loss, as checkpoints keep it. Judged by
// zero/train/best.c.
#ifndef KERNELS_JUDGED_H
#define KERNELS_JUDGED_H
#include <stdint.h>

struct Best {
    uint64_t step;    // 0: there was none
    uint64_t samples; // sequences of a validation; 0: nothing is judged
    float loss;
    uint32_t worse; // validations since then that count, none of them better
};

#endif
