// What the tests of whole training runs on CUDA share (test_gpu_train.c, test_gpu_offload.c): small
// settings, what a run makes, and that two runs made the same without a race.
#ifndef TESTS_LIB_GPU_RUNS_H
#define TESTS_LIB_GPU_RUNS_H
#include "tests/cusim/sim.h"
#include "tests/lib/outcome.h"

enum { LONG_STEPS = 10 };

// The tiny model on a GPU; one micro-batch, gradients in the model's dtype.
struct RankSettings gpu_settings(enum Dtype dtype, int ranks, int stage);

// A model that a GPU computes on its tensor cores, in 16 bits: heads of 64, bias and GELU's slope
// made by the products themselves. Two layers, two heads, one sequence of `tokens`: above 64 there
// is more than one tile of keys, above 128 more than one block of queries.
struct RankSettings wide_settings(enum Dtype dtype, int ranks, int stage, size_t tokens);

// As small as a model can be that has every kind of operation, in bf16 on two ranks: for tests in
// which the queues count, not the numbers.
struct RankSettings minute_settings(int stage, size_t layers);

// The steps as ./train makes them: each is queued before the result of the last is taken.
struct Outcome run_steps(const struct RankSettings *s, int steps);

void expect_no_race(const char *what);
// Also that nothing raced. `what` says how b's run, of settings s, differs from a's.
void expect_same(const struct Outcome *a, const struct Outcome *b, const struct RankSettings *s,
                 const char *what);

#endif
