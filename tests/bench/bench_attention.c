// How fast attention is on a GPU, in TFLOP/s, against figures of other programs.
//
//   make MODE=gpu build/gpu/tests/bench_attention && build/gpu/tests/bench_attention [GPU [T HS]]
//
// T and HS: a shape of the list below, alone and in the 16-bit formats.
//
// One line a shape and format: the forward pass, the backward pass, and both in turn. Operations
// are counted as FlashAttention's benchmark counts them: 2 matrix products forward and 5 backward,
// half of each because of the causal mask; what a kernel computes beyond that, such as the scores
// that the backward pass computes twice, is its own affair. bench_time.h takes the times, in
// batches of about BATCH_SECONDS. Tokens are 16,384 in each shape, heads such that there are 2,048
// channels, as in the FlashAttention papers; numbers are random.
#include "tests/bench/bench_time.h"

#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 16384, CHANNELS = 2048 };
static const double BATCH_SECONDS = 0.05;

struct Shape {
    size_t t, hs;
};

static const struct Shape shapes[] = {{1024, 64}, {4096, 64}, {1024, 128}, {4096, 128}};
enum { NSHAPES = sizeof shapes / sizeof shapes[0] };

struct Bench {
    struct Device *device;
    struct AttentionForward forward;
    struct AttentionBackward backward;
};

static void run_forward(void *bench) {
    struct Bench *b = bench;
    b->device->kernels->attention_forward(b->device->queue[QUEUE_COMPUTE], &b->forward);
}
static void run_backward(void *bench) {
    struct Bench *b = bench;
    b->device->kernels->attention_backward(b->device->queue[QUEUE_COMPUTE], &b->backward);
}
static void run_both(void *bench) {
    run_forward(bench);
    run_backward(bench);
}

static void *memory(struct Bench *b, size_t bytes) {
    void *mem = b->device->ops->alloc(b->device, bytes);
    CHECK(mem, "the GPU has no memory for %zu bytes", bytes);
    return mem;
}

// n normal values of format d.
static void *normal(struct Bench *b, enum Dtype d, size_t n, uint64_t seed) {
    const struct Kernels *k = b->device->kernels;
    struct Stream *s = b->device->queue[QUEUE_COMPUTE];
    float *values = memory(b, n * sizeof *values);
    k->fill_normal(s, &(struct FillNormal){.n = n, .dst = values, .seed = seed, .std = 1});
    if (d == F32)
        return values;
    void *mem = memory(b, n * dtype_size(d));
    k->cast(s, &(struct Cast){.n = n, .dst_dtype = d, .dst = mem, .src = values});
    device_sync_queue(b->device, QUEUE_COMPUTE);
    b->device->ops->free(b->device, values, n * sizeof *values);
    return mem;
}

static double time_of(struct Bench *b, void (*run)(void *bench)) {
    return bench_time(&(struct Timed){b->device, run, b, 1, BATCH_SECONDS});
}

static void print_times(struct Bench *b) {
    const struct AttentionForward *f = &b->forward;
    double product = (double)(f->b * f->nh * f->t * f->t * f->hs); // half of 2 T T HS
    double forward = time_of(b, run_forward), backward = time_of(b, run_backward);
    double both = time_of(b, run_both);
    printf("%-5s %5zu %4zu %4zu %3zu | %9.1f %6.1f | %9.1f %6.1f | %9.1f %6.1f\n",
           dtype_name(f->dtype), f->t, f->hs, f->b, f->nh, forward * 1e6,
           2 * product / forward / 1e12, backward * 1e6, 5 * product / backward / 1e12, both * 1e6,
           7 * product / both / 1e12);
    fflush(stdout);
}

static void bench_shape(struct Device *device, const struct Shape *s, enum Dtype d) {
    struct Bench b = {.device = device};
    size_t batch = TOKENS / s->t, nh = CHANNELS / s->hs, n = TOKENS * CHANNELS;
    size_t bytes = n * dtype_size(d), lse_bytes = TOKENS * nh * sizeof(float);
    struct AttentionForward f = {
        .b = batch, .t = s->t, .nh = nh, .nkv = nh, .hs = s->hs, .dtype = d};
    f.qkv = normal(&b, d, 3 * n, 1);
    f.out = memory(&b, bytes);
    f.lse = memory(&b, lse_bytes);
    struct AttentionBackward g = {
        .b = batch, .t = s->t, .nh = nh, .nkv = nh, .hs = s->hs, .dtype = d};
    g.qkv = f.qkv;
    g.out = f.out;
    g.lse = f.lse;
    g.dout = normal(&b, d, n, 2);
    g.dqkv = memory(&b, 3 * bytes);
    size_t work_bytes = device->kernels->attention_backward_work(device, &g);
    g.work = (struct Work){memory(&b, work_bytes), work_bytes};
    b.forward = f;
    b.backward = g;
    print_times(&b);
    device->ops->free(device, (void *)f.qkv, 3 * bytes);
    device->ops->free(device, f.out, bytes);
    device->ops->free(device, f.lse, lse_bytes);
    device->ops->free(device, (void *)g.dout, bytes);
    device->ops->free(device, g.dqkv, 3 * bytes);
    device->ops->free(device, g.work.mem, work_bytes);
}

// The shape of the list that two arguments name; NULL: there is none.
static const struct Shape *find_shape(char **argv) {
    for (size_t i = 0; i < NSHAPES; i++)
        if (shapes[i].t == strtoul(argv[0], NULL, 10) && shapes[i].hs == strtoul(argv[1], NULL, 10))
            return &shapes[i];
    return NULL;
}

int main(int argc, char **argv) {
    struct Device *device;
    struct Error e = {0};
    const struct Shape *only = argc == 4 ? find_shape(argv + 2) : NULL;
    if (argc > 4 || argc == 3 || (argc == 4 && !only)) {
        fprintf(stderr, "usage: bench_attention [GPU [T HS]]; T 1024 or 4096, HS 64 or 128\n");
        return 2;
    }
    if (device_open_cuda(&device, argc > 1 ? atoi(argv[1]) : 0, &e)) {
        fprintf(stderr, "bench_attention: %s\n", e.text);
        return 2;
    }
    printf(
        "causal attention        |   forward (us, TFLOP/s) |        backward |            both\n");
    printf("dtype     T   HS    B  NH |\n");
    for (size_t i = 0; i < NSHAPES; i++)
        for (enum Dtype d = BF16; d < NDTYPE && (!only || only == &shapes[i]); d++)
            bench_shape(device, &shapes[i], d);
    if (!only)
        bench_shape(device, &shapes[0], F32); // the plain kernels
    device_close(device);
    return 0;
}
