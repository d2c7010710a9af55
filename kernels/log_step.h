// The results of a step, to be reported: zero/train/trainer.c fills them in, data/log/console.c
// prints and logs them.
#ifndef KERNELS_LOG_STEP_H
#define KERNELS_LOG_STEP_H
#include <stdint.h>

struct LogStep {
    uint64_t step; // counted from 1
    float loss;    // mean over the step's tokens, nats
    float grad_norm, lr;
    double tokens_per_s, step_ms;
    float loss_scale;     // the factor of the loss; 0: none, and it is not reported
    double light, mfu;    // shares of the measured speed, and of --peak-tflops; 0: unknown
    uint64_t tokens_seen; // by all ranks, since the run's first step
};

// A note on a step that has ended: numbers by name, or a word.
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
