// How fast AdamW on the CPU is, against a loop that copies as many streams and computes nothing.
//
//   build/release/tests/bench_adamw [MILLIONS [DTYPE [MOMENTS [THREADS]]]]
//
// MILLIONS of parameters (default 256), gradients and parameters in DTYPE (bf16), moments in
// MOMENTS (fp32). It answers commands from standard input, so that a script can let programs take
// turns: "adamw", "copy" and "copy-past" (the same, but what is only written goes past the caches)
// each run once and print their milliseconds; at the end of the input it ends. The first line says
// "ready" and the bytes that one run must move.
//
// The copy reads and writes the same arrays: gradients are read, weights and moments read and
// written in place, 16-bit parameters written. It flips a sign, or the compiler would see that
// nothing changes; AdamW's bytes and streams without its divisions, root and roundings. Each thread
// takes one contiguous part.
//
// scripts/bench/bench_offload.sh drives it. Read next: kernels/cpu/adamw.c.
#include "kernels/cpu/instructions.h"
#include "kernels/kernels.h"

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct Bench {
    struct Device *device;
    struct AdamW adamw;
};

static void *buffer(struct Device *d, size_t bytes) {
    void *mem = d->ops->alloc(d, bytes);
    if (!mem) {
        fprintf(stderr, "bench_adamw: no memory for %zu MiB more: give fewer parameters\n",
                bytes >> 20);
        exit(2);
    }
    return mem;
}

// n positive elements, all different within a block; blocks are repeated.
static void *values(struct Device *d, enum Dtype dtype, size_t n) {
    char *mem = buffer(d, n * dtype_size(dtype));
    size_t block = size_min(n, 1 << 20), bytes = block * dtype_size(dtype);
    for (size_t i = 0; i < block; i++)
        dtype_store(mem, dtype, i, 0.001f + 0.01f * rng_uniform(1, i));
    for (size_t at = bytes; at < n * dtype_size(dtype); at += bytes)
        memcpy(mem + at, mem, size_min(bytes, n * dtype_size(dtype) - at));
    return mem;
}

// The arrays of a copy from some element on, and how many lines of 64 bytes 32 elements have.
struct Lines {
    char *master, *m, *v, *param;
    const char *grad;
    size_t blocks;      // of 32 elements
    int moments, grads; // lines a block; the fp32 master has 2, a 16-bit param as many as grad
    bool past;          // the caches
};

#define WITH_AVX512 __attribute__((target("avx512f"), always_inline)) static inline

WITH_AVX512 void flip(char *p) {
    __m512i sign = _mm512_set1_epi32((int)0x80000000u);
    _mm512_storeu_si512(p, _mm512_xor_si512(sign, _mm512_loadu_si512(p)));
}

// Inline, with constants for what a block is.
WITH_AVX512 void copy_loop(struct Lines l, int moments, int grads, bool past) {
    for (size_t i = 0; i < l.blocks; i++) {
        __m512i grad = _mm512_loadu_si512(l.grad + i * 64 * (size_t)grads);
        if (grads == 2)
            grad = _mm512_or_si512(grad, _mm512_loadu_si512(l.grad + i * 128 + 64));
        flip(l.master + i * 128);
        flip(l.master + i * 128 + 64);
        for (int j = 0; j < moments; j++) {
            flip(l.m + (i * (size_t)moments + (size_t)j) * 64);
            flip(l.v + (i * (size_t)moments + (size_t)j) * 64);
        }
        if (grads == 2)
            asm volatile("" : : "v"(grad)); // read, though fp32 weights are not written once more
        else if (past)
            _mm512_stream_si512((__m512i *)(l.param + i * 64), grad);
        else
            _mm512_storeu_si512(l.param + i * 64, grad);
    }
}

__attribute__((target("avx512f"))) static void copy_part(struct Lines l) {
    if (l.moments == 2 && l.grads == 2)
        copy_loop(l, 2, 2, false);
    else if (l.moments == 1 && l.grads == 2)
        copy_loop(l, 1, 2, false);
    else if (l.moments == 2 && l.past)
        copy_loop(l, 2, 1, true);
    else if (l.moments == 2)
        copy_loop(l, 2, 1, false);
    else if (l.past)
        copy_loop(l, 1, 1, true);
    else
        copy_loop(l, 1, 1, false);
    _mm_sfence();
}

static void copy(const struct Bench *b, bool past) {
    const struct AdamW *a = &b->adamw;
    size_t threads = (size_t)b->device->threads;
#pragma omp parallel for schedule(static) num_threads(b->device->threads)
    for (size_t t = 0; t < threads; t++) {
        size_t begin = a->n / 32 * t / threads * 32, end = a->n / 32 * (t + 1) / threads * 32;
        copy_part((struct Lines){
            .master = dtype_at(a->master, F32, begin),
            .m = dtype_at(a->m, a->moments_dtype, begin),
            .v = dtype_at(a->v, a->moments_dtype, begin),
            .param = a->param ? dtype_at(a->param, a->param_dtype, begin) : NULL,
            .grad = dtype_at(a->grad, a->grad_dtype, begin),
            .blocks = (end - begin) / 32,
            .moments = (int)dtype_size(a->moments_dtype) / 2,
            .grads = (int)dtype_size(a->grad_dtype) / 2,
            .past = past,
        });
    }
}

static void adamw(const struct Bench *b) {
    b->device->kernels->adamw(b->device->queue[QUEUE_COMPUTE], &b->adamw);
    device_sync_queue(b->device, QUEUE_COMPUTE);
}

// Copies turn signs, and of a negative v there is no root, whose NaN might take another time: after
// an odd number of them there is one more, which is not timed.
static int answer(const struct Bench *b, const char *command) {
    double begin = base_seconds();
    if (strcmp(command, "adamw") == 0)
        adamw(b);
    else if (strcmp(command, "copy") == 0 || strcmp(command, "copy-past") == 0)
        copy(b, command[4] != 0);
    else
        return -1;
    printf("%.3f\n", (base_seconds() - begin) * 1e3);
    fflush(stdout);
    if (command[0] == 'c')
        copy(b, false);
    return 0;
}

static enum Dtype dtype_of(const char *name) {
    for (enum Dtype d = F32; d < F16; d++)
        if (strcmp(name, dtype_name(d)) == 0)
            return d;
    fprintf(stderr, "bench_adamw: dtype %s: expected fp32 or bf16\n", name);
    exit(2);
}

static void bench_open(struct Bench *b, size_t n, enum Dtype d, enum Dtype moments) {
    static struct StepState state = {.lr = 1e-4f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.95f,
                                     .eps = 1e-8f,
                                     .weight_decay = 0.1f,
                                     .correction = {1, 1},
                                     .grad_scale = 1};
    struct AdamW *a = &b->adamw;
    *a = (struct AdamW){.n = n, .n_decay = n, .grad_dtype = d, .param_dtype = d};
    a->moments_dtype = moments;
    a->master = values(b->device, F32, n);
    a->m = values(b->device, moments, n);
    a->v = values(b->device, moments, n);
    a->grad = values(b->device, d, n);
    a->param = d == F32 ? NULL : values(b->device, d, n);
    a->state = &state;
}

int main(int argc, char **argv) {
    long millions = argc > 1 ? atol(argv[1]) : 256;
    enum Dtype d = dtype_of(argc > 2 ? argv[2] : "bf16");
    enum Dtype moments = dtype_of(argc > 3 ? argv[3] : "fp32");
    int threads = argc > 4 ? atoi(argv[4]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    struct Bench b;
    struct Error e = {0};
    if (millions < 1 || threads < 1) {
        fprintf(stderr, "bench_adamw: %ld million parameters, %d threads: give numbers from 1 on\n",
                millions, threads);
        return 2;
    }
    if (!instructions_usable(INSTRUCTIONS_AVX512)) {
        fprintf(stderr,
                "bench_adamw: the copy loop is written for AVX-512, which this CPU lacks\n");
        return 2;
    }
    if (device_open_cpu(&b.device, threads, NULL, &e)) {
        fprintf(stderr, "bench_adamw: %s\n", e.text);
        return 2;
    }
    bench_open(&b, (size_t)millions * 1000000 / 64 * 64, d, moments);
    // The last 4: a gradient and a parameter of 16 bits, or a gradient of 32.
    size_t each = 8 + 4 * dtype_size(moments) + 4;
    printf("ready %zu\n", b.adamw.n * each);
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (answer(&b, line)) {
            fprintf(stderr, "bench_adamw: '%s': expected adamw, copy or copy-past\n", line);
            return 2;
        }
    }
    device_close(b.device);
    return 0;
}
