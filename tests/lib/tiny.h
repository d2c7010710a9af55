// A tiny rank and some steps of training, for tests that compare whole runs.
#ifndef TESTS_LIB_TINY_H
#define TESTS_LIB_TINY_H
#include "zero/rank/rank.h"
#include "zero/settings/schedule.h"
#include "zero/weights/weights.h"
#include "zero/comm/world.h"

// Odd sizes on purpose: 2 layers, 3 heads, 36 channels, sequences of 17, vocabulary 61.
struct RankSettings tiny_settings(enum Dtype dtype);

// The same with a model of another family: grouped queries, a window, heads tied and untied.
enum { TINY_FAMILIES = 7 };
struct RankSettings tiny_family(int i, enum Dtype dtype);
const char *tiny_family_name(int i);

// The same run otherwise, i from 0 on: its stage, recomputation, tiers and prefetch, of which no
// bit may depend.
struct RankSettings tiny_changed(struct RankSettings s, int i);

// Fails the test with the error's line.
void tiny_open(struct Rank *r, const struct RankSettings *s, uint64_t seed);

struct TinyStep {
    double loss; // mean
    float grad_norm;
    bool skipped, stop;
};

// The samples of an endless sequence, each a function of its number. packed: of several documents;
// half their targets do not count, and none of every fourth sample.
struct BatchSource tiny_source(const struct Rank *r);
int tiny_read(void *config, uint64_t first, size_t n, const struct Batch *batch, struct Error *e);

// One step on such samples; lr from 1e-3 to 0 over 1000 steps,
// so that one step's settings are not the next one's; AdamW's usual constants, clip 1.
struct TinyStep tiny_step(struct Rank *r);
void tiny_queue_step(struct Rank *r); // its two halves
struct TinyStep tiny_take_step(struct Rank *r);
// The same steps as ./train makes them: each is queued before the result of the last is taken.
void tiny_steps(struct Rank *r, int steps, struct TinyStep *out);

// The mean loss of samples 0 .. samples - 1 of the same tokens.
float tiny_validate(struct Rank *r, uint64_t samples);

// Runs s->ranks ranks as threads; each opens its rank (seed 1), calls `body`, and closes it. Only
// rank 0 may fail a test: the others' threads are unknown to cmocka.
// In a process that has joined a launcher's job it is one rank of them; s->ranks is the job's size.
typedef void RankBody(void *context, struct Rank *r);
void tiny_ranks(const struct RankSettings *s, RankBody *body, void *context);
void tiny_join(const struct World *w);    // w: of world_open
bool tiny_is_first(const struct Rank *r); // of this process

// The weights' hash after `steps` steps of a fresh rank, which is closed again.
uint64_t tiny_run(const struct RankSettings *s, uint64_t seed, int steps);

// Whether NVMe tiers can lie in disk_folder (test.h).
bool tiny_has_disk(void);

// True in a build with -fsanitize=thread, where a race on purpose would end the test.
bool tests_under_thread_sanitizer(void);

#endif
