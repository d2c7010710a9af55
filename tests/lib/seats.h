// Ranks of a grid as threads, with the groups and state of a run, and no model: for tests of what
// happens to state between steps where places have parts of each tensor. Nothing is trained here.
// What an element's state is follows from its array and its index in the whole model.
#ifndef TESTS_LIB_SEATS_H
#define TESTS_LIB_SEATS_H
#include "zero/state.h"

#include <stdatomic.h>

struct SeatsJob;
typedef void SeatsWork(struct SeatsJob *job, struct Zero *z);

struct SeatsJob {
    struct ModelConfig c;
    int tp, dp, replicas, stage;
    enum Dtype dtype;
    SeatsWork *work;
    const char *folder; // of checkpoints
    void *context;
    // What the ranks found.
    _Atomic uint64_t wrong, seen;
    uint64_t hash; // rank 0's
    int err;
    struct Error e;
};

// Of 24 heads, which go into 2, 3 and 4 parts, at stage 3.
struct SeatsJob seats_job(enum FamilyKind kind, bool untied, size_t vocab, int tp, int dp);

// Each rank opens its seat, with initial values, does the work, and closes it. Fails the test where
// one noted an error or found elements wrong.
void seats_run(struct SeatsJob *job, SeatsWork *work);
// The same, whatever they noted.
void seats_try(struct SeatsJob *job, SeatsWork *work);
void seats_note(struct SeatsJob *job, struct Zero *z, int err, const struct Error *e);

float seats_value(enum State what, uint64_t index);
// Sets this rank's part of the first arrays; counts what is not so set.
void seats_fill(struct Zero *z, enum State arrays);
void seats_expect(struct SeatsJob *job, struct Zero *z, enum State arrays);

#endif
