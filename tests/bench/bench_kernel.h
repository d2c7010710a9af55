// Kernels one at a time, for benchmarks: a device, operands, and the seconds of one call.
#ifndef TESTS_BENCH_BENCH_KERNEL_H
#define TESTS_BENCH_BENCH_KERNEL_H
#include "kernels/device.h"
#include "kernels/kernels.h"
#include "tests/bench/bench_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_BUFFERS = 64 };

struct Bench {
    struct Device *device;
    enum Dtype dtype;
    int buffers;
    void *buffer[MAX_BUFFERS];
    size_t buffer_bytes[MAX_BUFFERS];
};

typedef void BenchRun(struct Device *, const void *args);

// queue_OP puts kernel OP on the compute queue: one function per kernel, all of one type.
#define X(op, Args)                                                                                \
    __attribute__((unused)) static void queue_##op(struct Device *d, const void *args) {           \
        d->kernels->op(d->queue[QUEUE_COMPUTE], args);                                             \
    }
KERNEL_LIST(X)
#undef X

static inline void *buffer_raw(struct Bench *b, size_t bytes) {
    CHECK(b->buffers < MAX_BUFFERS, "more than %d buffers", MAX_BUFFERS);
    void *mem = b->device->ops->alloc(b->device, bytes);
    CHECK(mem, "no memory for %zu bytes", bytes);
    b->buffer_bytes[b->buffers] = bytes;
    return b->buffer[b->buffers++] = mem;
}

// n elements, small and all different from zero.
static inline void *buffer(struct Bench *b, enum Dtype d, size_t n) {
    void *mem = buffer_raw(b, n * dtype_size(d));
    for (size_t i = 0; i < n; i++)
        dtype_store(mem, d, i, 0.01f + 0.001f * (float)(i * 2654435761u >> 7 & 1023));
    return mem;
}

static inline struct Work scratch(struct Bench *b, size_t bytes) {
    return (struct Work){buffer_raw(b, bytes), bytes};
}

static inline void buffers_free(struct Bench *b) {
    while (b->buffers--)
        b->device->ops->free(b->device, b->buffer[b->buffers], b->buffer_bytes[b->buffers]);
    b->buffers = 0;
}

static inline double time_once(struct Device *d, BenchRun *run, const void *args) {
    double begin = base_seconds();
    run(d, args);
    device_sync_queue(d, QUEUE_COMPUTE);
    return base_seconds() - begin;
}

// `name [threads] [table]`, as main has it. Returns the threads; 0: that is no such line, which was
// said.
static inline int bench_open(struct Bench *b, const char *name, int argc, char **argv) {
    struct Error e = {0};
    int threads = argc > 1 ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (threads < 1) {
        fprintf(stderr, "%s: %s threads: give a number from 1 on\n", name, argv[1]);
        return 0;
    }
    if (device_open_cpu(&b->device, threads, argc > 2 ? argv[2] : NULL, &e) == 0)
        return threads;
    fprintf(stderr, "%s: %s\n", name, e.text);
    return 0;
}

#endif
