// How benchmarks take time: each figure is a median, so that a machine's hiccup does not count.
//
// A kernel on a GPU is shorter than the gap between two launches that are waited for, so its runs
// are queued in batches and a batch is timed as a whole. Used by bench_cuda.c,
// bench_attention.c and step_measure.c; bench_kernels.c takes the median alone.
#ifndef TESTS_BENCH_BENCH_TIME_H
#define TESTS_BENCH_BENCH_TIME_H
#include "kernels/device.h"

#include <stdlib.h>

enum { TIMED_BATCHES = 7, TIMED_MOST_RUNS = 4096 };

struct Timed {
    struct Device *device;
    void (*run)(void *context); // puts one run on the compute queue
    void *context;
    size_t turns;         // runs after which the first one's operands come again
    double batch_seconds; // about as long is a batch
};

static inline int bench_by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Of n values, which it sorts; n is odd.
static inline double bench_median(double *values, size_t n) {
    qsort(values, n, sizeof *values, bench_by_size);
    return values[n / 2];
}

static inline double bench_time_batch(const struct Timed *t, size_t runs) {
    double begin = base_seconds();
    for (size_t i = 0; i < runs; i++)
        t->run(t->context);
    device_sync_queue(t->device, QUEUE_COMPUTE);
    return (base_seconds() - begin) / (double)runs;
}

// Seconds of one run.
static inline double bench_time(const struct Timed *t) {
    double seconds[TIMED_BATCHES], first;
    bench_time_batch(t, t->turns); // loads the code
    first = bench_time_batch(t, 4 * t->turns);
    size_t runs = size_max(1, size_min(TIMED_MOST_RUNS, (size_t)(t->batch_seconds / first)));
    for (int i = 0; i < TIMED_BATCHES; i++)
        seconds[i] = bench_time_batch(t, runs);
    return bench_median(seconds, TIMED_BATCHES);
}

#endif
