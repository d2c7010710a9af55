// What is known when a step ends, for those who tell of it: the trainer fills it in
// (zero/run/trainer.c), the teller prints and logs it (data/log/teller.c).
#ifndef KERNELS_LOG_STEP_H
#define KERNELS_LOG_STEP_H
#include <stdint.h>

struct LogStep {
    uint64_t step; // counted from 1
    float loss;    // mean over the step's tokens, nats
    float grad_norm, lr;
    double tokens_per_s, step_ms;
    float loss_scale; // what the loss was multiplied by; 0: nothing, and no word of it
};

#endif
