// The rig that kernels are tested in: every table this CPU runs, operands between guard zones,
// comparison.
//
// A test of a kernel is a function of a struct Run: it takes operands from the run (input_...,
// output_..., scratch), queues the kernel on run->device, and that is all. rig_check runs it on the
// oracle and on every other table with one and with two threads, and compares all outputs with the
// oracle's.
//
// Every operand lies between guard zones of 0xff bytes: NaN in any format, -1 as a token. A kernel
// that reads past an end computes with NaN; one that writes there, or into an input, is named. In
// skewed runs operands begin one element past a multiple of 64 bytes, since parameters lie without
// gaps in a group.
#ifndef TESTS_LIB_RIG_H
#define TESTS_LIB_RIG_H
#include "kernels/kernels.h"
#include "tests/lib/values.h"

enum { MAX_TABLES = 6, MAX_OPERANDS = 20 };

// The devices: table 0 is the oracle. [0] has one thread, [1] two. On a GPU both are the same; in
// its simulator the threads of a block take turns in another order.
struct Rig {
    int ntable;
    const char *name[MAX_TABLES];
    struct Device *device[MAX_TABLES][2];
    struct Values *values; // tests/fixtures/torch/kernels.val
};

// Opens all devices. rig_cpu.c: every table this CPU runs; rig_cuda.c: the oracle and CUDA. Which
// of them is linked, the Makefile's MODE decides. 0, or -1 and a message.
int rig_open_devices(struct Rig *rig);
// Which order of threads the next kernels have, from 0 on, where that can be chosen.
void rig_set_order(int order);

// cmocka's group setup and teardown: *state is a struct Rig.
int rig_setup(void **state);
int rig_teardown(void **state);

struct Operand {
    const char *name; // NULL: an input or scratch
    enum Dtype dtype; // of outputs
    size_t n, size_bytes;
    double slack;      // see output_poison
    char *device_mem;  // with the guard zones
    char *start, *end; // host copies of the same, as it was uploaded and as the kernel left it
    size_t at_bytes;   // where the operand begins between its guard zones
};

struct Run {
    struct Device *device;
    bool skew;
    int noperand;
    struct Operand operand[MAX_OPERANDS];
};

void run_init(struct Run *r, struct Device *device, bool skew);
void run_close(struct Run *r);

// The queue of its kernels.
static inline struct Stream *compute(const struct Run *r) {
    return r->device->queue[QUEUE_COMPUTE];
}

// Operands, on the device. Random values (of that mean and standard deviation; 0 and 1 for outputs)
// depend on how many operands were taken before, not on the table.
void *input_random(struct Run *r, enum Dtype d, size_t n, float mean, float std);
void *input_values(struct Run *r, enum Dtype d, size_t n, const float *values);
void *input_bytes(struct Run *r, size_t bytes, const void *values); // tokens, states, ...
struct Work scratch(struct Run *r, size_t bytes);

// Outputs begin as poison, or with values where the kernel adds to them. `slack` is how far an
// element may lie from the oracle's: slack * 2^-24 of the largest element, besides a few fp32 units
// of the element itself, or one step where it is stored as bf16 or fp16. In fp32 it grows as the
// square root of a sum's length.
void *output_poison(struct Run *r, const char *name, enum Dtype d, size_t n, double slack);
void *output_random(struct Run *r, const char *name, enum Dtype d, size_t n, double slack);
void *output_values(struct Run *r, const char *name, enum Dtype d, size_t n, double slack,
                    const float *values);

// An output of another type, at a multiple of 64 bytes even in skewed runs. Compared only bit by
// bit.
void *output_bytes(struct Run *r, const char *name, size_t bytes, const void *values);

// Waits for the kernels, fetches all operands, and checks that guard zones and inputs are as they
// were.
void run_finish(struct Run *r);
// The stored bytes of an output after run_finish.
const void *run_result(const struct Run *r, const char *name);

// How far a number may be from its rounded self: dtype_unit of it (2^-24 in fp32, 2^-8 in bf16,
// 2^-11 in fp16), or dtype_least where it is denormal.
double dtype_unit(enum Dtype d);
double dtype_least(enum Dtype d);
// The bits that x is stored as.
uint32_t dtype_bits(enum Dtype d, float x);

// Fails the test unless every element of output `name` lies within slack * dtype_unit * (largest
// element) of `want`. `what` says who computed `want`.
void run_expect(const struct Run *r, const char *name, const char *what, const float *want,
                double slack);

// body(run, dtype, shape) on every table, all dtypes, skewed and not, one thread and two; the
// outputs against the oracle's, and those with two threads bit by bit against those with one, if
// `same_bits`.
typedef void RigBody(struct Run *r, enum Dtype d, const void *shape);
void rig_check(const struct Rig *rig, RigBody *body, const void *shape, bool same_bits);

// body on every table, all dtypes, skewed; body calls run_finish and checks the outputs itself.
void rig_each(const struct Rig *rig, RigBody *body, const void *shape);

// Slopes of f(context) by the central four-point rule with step h: their error is h^4 / 30 times
// the fifth derivative, so that fp32 outputs allow a step large enough to drown their rounding.
struct RigSlopes {
    double (*f)(void *context);
    void *context;
    float h;
    double near;  // of the largest gradient
    size_t every; // of so many elements one is looked at; 0: all
};
// Fails the test where a gradient of n elements is not f's slope in x.
void rig_expect_slopes(const struct RigSlopes *s, const char *name, float *x, const float *gradient,
                       size_t n);

// x as it is kept in a format.
static inline float stored(enum Dtype d, float x) {
    uint32_t place;
    dtype_store(&place, d, 0, x);
    return dtype_load(&place, d, 0);
}

// A loss of x whose gradient is dx.
static inline double rig_dot(const float *x, const float *dx, size_t n) {
    double loss = 0;
    for (size_t i = 0; i < n; i++)
        loss += (double)x[i] * (double)dx[i];
    return loss;
}

#endif
