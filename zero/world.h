// The ranks of this process, and the threads that they run on.
#ifndef ZERO_WORLD_H
#define ZERO_WORLD_H
#include "zero/comm.h"

// What a rank does, from its beginning to its end. group: NULL where there is one rank.
typedef void RankMain(void *context, int rank, struct ThreadGroup *group);

// Runs ranks 0 .. ranks - 1 side by side and returns when all have ended; rank 0 on the calling
// thread.
void world_run(int ranks, RankMain *main, void *context);

#endif
