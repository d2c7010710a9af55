// The ranks of this process, each on a thread of its own, from opening to closing.
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
    struct Trainer trainer;       // of which each rank begins with a copy
    uint64_t seed;                // of fresh weights
    // What a resumed run may not change, given the name of the kernels. free() it; of any thread.
    char *(*identity)(const void *text, const char *kernels);
    const void *text;
    int (*work)(struct Trainer *, struct Error *); // of a rank that has its weights
};

// Runs all ranks of this process to their end. Errors: that of the lowest rank that has a line to
// say.
int job_run(const struct Job *j, struct Error *e);

#endif
