// A tiny rank and some steps of training, for tests that compare whole runs.
#ifndef TESTS_TINY_H
#define TESTS_TINY_H
#include "zero/rank.h"
#include "zero/schedule.h"

// Odd sizes on purpose: 2 layers, 3 heads, 36 channels, sequences of 17, vocabulary 61.
struct RankSettings tiny_settings(enum Dtype dtype);

// Fails the test with the error's line.
void tiny_open(struct Rank *r, const struct RankSettings *s, uint64_t seed);

struct TinyStep {
    double loss; // mean
    float grad_norm;
    bool skipped;
};

// One step on tokens that are a function of z->step; lr 1e-3, AdamW's usual constants, clip 1.
struct TinyStep tiny_step(struct Rank *r);

// The weights' hash after `steps` steps of a fresh rank, which is closed again.
uint64_t tiny_run(const struct RankSettings *s, uint64_t seed, int steps);

// True in a build with -fsanitize=thread, where a race on purpose would end the test.
bool tests_under_thread_sanitizer(void);

#endif
