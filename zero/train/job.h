// Runs the ranks of this process, each on a thread of its own, from opening to closing.
//
// All start alike; what they do once they have their weights is the caller's. A rank that fails
// before there is a group fails on all alike; after that trainer.c ends the job or stops it.
//
// Called by train.c. Read next: trainer.h.
#ifndef ZERO_TRAIN_JOB_H
#define ZERO_TRAIN_JOB_H
#include "zero/comm/world.h"
#include "zero/train/trainer.h"

struct Job {
    const struct World *world;
    struct RankSettings settings; // of all ranks; each has its number, and the group
    struct Trainer trainer;       // each rank begins with a copy of it
    uint64_t seed;                // of fresh weights
    // Returns what a resumed run may not change. kernels: their name. free() it; thread-safe.
    char *(*identity)(const void *text, const char *kernels);
    const void *text;
    int (*work)(struct Trainer *, struct Error *); // of a rank that has its weights
};

// Runs all ranks of this process to their end. Errors: the first code, and line, that a rank has.
int job_run(const struct Job *j, struct Error *e);

#endif
