// The ranks of a job: those that are threads of this process, and the processes that mpirun or srun
// has started beside it.
//
// A job is one process with --ranks threads, or, under a launcher, one rank in each process. What
// processes find out one by one (a bad flag, a missing file) they agree upon here, before their
// ranks have a group; after that, zero_agree (zero.h) does it.
#ifndef ZERO_COMM_WORLD_H
#define ZERO_COMM_WORLD_H
#include "zero/comm/comm.h"

struct World {
    bool launched;            // by mpirun or srun: the launcher sets the size
    int size;                 // ranks of the job
    int first, count;         // this process's: first .. first + count - 1
    int node_rank, node_size; // this process among those of its machine,
    int node_first;           // the first of which has this rank
    double timeout_s;         // launched: how long a process that is stopped is waited for
};

// This process alone, with so many ranks.
static inline struct World world_of_threads(int ranks) {
    return (struct World){.size = ranks, .count = ranks, .node_size = 1};
}

// How many processes the launcher has started; 0: there is none.
int world_launched(void);

// Joins the launcher's job, if there is one; else the world is one rank. world_close is due in any
// case. Errors: -ENOTSUP; -EINVAL where the launcher and MPI do not know each other.
int world_open(struct World *w, double timeout_s, struct Error *e);
void world_close(struct World *w); // waits for the other processes

// Makes this process's ranks the whole world, unless a launcher has set it; *ranks becomes its
// size. Errors: -EINVAL where the user asked for a number beside a launcher.
int world_set_ranks(struct World *w, size_t *ranks, bool asked, struct Error *e);

// 0 if every process says 0. Else an error on every process: that of the lowest rank that has a
// line to say, and only there its line stays in e. Waits for all.
int world_agree(const struct World *w, int err, struct Error *e);

// The least of what the processes say, and what rank 0's says. Each waits for all.
uint64_t world_least(const struct World *w, uint64_t mine);
uint64_t world_of_first(const struct World *w, uint64_t mine);
// all[r] becomes what rank r's process says, where each rank is a process; else all[0] is `mine`.
void world_share(const struct World *w, uint64_t mine, uint64_t *all);

// Each process gets what the first of its machine has in n words.
void world_of_node(const struct World *w, uint64_t *words, size_t n);

// The cores that each rank has, at least 1. A launcher may bind a process to fewer; it counts all
// of the machine's (`cores`: those that this process may use), since the number of threads is part
// of the numerics.
size_t world_cores(const struct World *w, size_t cores);

// What a rank does, from its beginning to its end. group: NULL where this process has one rank.
typedef void RankMain(void *context, int rank, struct ThreadGroup *group);

// Runs this process's ranks side by side and returns when all have ended; the first on the calling
// thread.
void world_run(const struct World *w, RankMain *main, void *context);

#endif
