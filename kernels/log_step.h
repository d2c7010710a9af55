// What is known when a step ends, for those who tell of it: the trainer fills it in
// (zero/train/trainer.c), the teller prints and logs it (data/log/console.c).
#ifndef KERNELS_LOG_STEP_H
#define KERNELS_LOG_STEP_H
#include <stdint.h>

struct LogStep {
    uint64_t step; // counted from 1
    float loss;    // mean over the step's tokens, nats
    float grad_norm, lr;
    double tokens_per_s, step_ms;
    float loss_scale;     // what the loss was multiplied by; 0: nothing, and no word of it
    double light, mfu;    // shares of the measured speed, and of --peak-tflops; 0: not known
    uint64_t tokens_seen; // by all ranks, since the run was fresh
};

// Something else about a step that has ended: numbers by name, or a word.
struct LogValue {
    const char *name;
    double value;
};
struct LogNote {
    uint64_t step;
    const char *what; // such as "breakdown"
    const struct LogValue *value;
    int n;
    const char *word; // NULL: the values
};

#endif
