// The ranks of a job: those that are threads of this process, and the processes that mpirun or srun
// has started beside it.
//
// A job is one process with --ranks threads, or, under a launcher, one rank in each process. Before
// their ranks have a group, processes agree here on what each finds alone (a bad flag, a missing
// file); after that, zero_agree (zero/engine.h) does it.
#ifndef ZERO_COMM_WORLD_H
#define ZERO_COMM_WORLD_H
#include "zero/comm/comm.h"

struct World {
    bool launched;            // by mpirun or srun: the launcher sets the size
    int size;                 // ranks of the job
    int first, count;         // this process's ranks: first .. first + count - 1
    int node_rank, node_size; // this process among those of its machine
    int node_first;           // the rank of the first of these
    double timeout_s;         // launched: how long to wait for a process that is stopped
};

// Returns a world of this process alone, with so many ranks.
static inline struct World world_of_threads(int ranks) {
    return (struct World){.size = ranks, .count = ranks, .node_size = 1};
}

// Returns how many processes the launcher has started; 0: there is no launcher.
int world_launched(void);

// Joins the launcher's job, if there is one; else the world is one rank. Call world_close in any
// case. Errors: -ENOTSUP; -EINVAL where the launcher and MPI do not know each other.
int world_open(struct World *w, double timeout_s, struct Error *e);
void world_close(struct World *w); // waits for the other processes

// Makes this process's ranks the whole world, unless a launcher has set it; *ranks becomes its
// size. Errors: -EINVAL if the user gave a number (user_set) under a launcher.
int world_set_ranks(struct World *w, size_t *ranks, bool user_set, struct Error *e);

// Returns 0 if every process passes 0. Else an error on every process: that of the lowest rank with
// an error line, which stays in e only there. Waits for all.
int world_agree(const struct World *w, int err, struct Error *e);

// The least of all processes' values, and rank 0's value. Each waits for all.
uint64_t world_least(const struct World *w, uint64_t mine);
uint64_t world_broadcast(const struct World *w, uint64_t mine);
// all[r] becomes the value of rank r's process, if each rank is a process; else all[0] is `mine`.
void world_share(const struct World *w, uint64_t mine, uint64_t *all);

// Gives each process the n words of the first process of its machine.
void world_broadcast_in_node(const struct World *w, uint64_t *words, size_t n);

// Returns the cores that each rank has, at least 1. A launcher may bind a process to fewer; this
// counts all of the machine's (`cores`: those that this process may use), since the number of
// threads is part of the numerics.
size_t world_cores(const struct World *w, size_t cores);

// The whole life of a rank. group: NULL if this process has one rank.
typedef void RankMain(void *context, int rank, struct ThreadGroup *group);

// Runs this process's ranks side by side and returns when all have ended; the first one runs on the
// calling thread.
void world_run(const struct World *w, RankMain *main, void *context);

#endif
