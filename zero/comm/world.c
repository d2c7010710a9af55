// Joining a job, agreeing with its other processes, and starting this process's ranks: see world.h.
#include "zero/comm/world.h"

#include "zero/comm/mpi.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- joining ----

static int env_number(const char *variable) {
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

// Reads what launchers leave in the environment. Slurm's comes last: srun may have started mpirun's
// own helpers. A shell in a Slurm job is a step of one task, and no launch.
static bool read_launcher(int *size, int *rank) {
    static const struct {
        const char *size, *rank;
        int least;
    } launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", 1},
                     {"PMI_SIZE", "PMI_RANK", 1},
                     {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", 2}};
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        *size = env_number(launchers[i].size);
        *rank = env_number(launchers[i].rank);
        if (*size >= launchers[i].least)
            return true;
    }
    return false;
}

int world_launched(void) {
    int size, rank;
    return read_launcher(&size, &rank) ? size : 0;
}

int world_open(struct World *w, double timeout_s, struct Error *e) {
    *w = (struct World){.size = 1, .count = 1, .node_size = 1};
    int size, rank;
    if (!read_launcher(&size, &rank))
        return 0;
    struct MpiRank mpi;
    int err = mpi_start(&mpi, rank, timeout_s, e);
    if (!err)
        *w = (struct World){.launched = true,
                            .size = mpi.size,
                            .first = mpi.rank,
                            .count = 1,
                            .node_rank = mpi.node_rank,
                            .node_size = mpi.node_size,
                            .node_first = mpi.node_first,
                            .timeout_s = timeout_s};
    if (!err && size != mpi.size)
        err = error_set(e, -EINVAL, E_MPI,
                        "the launcher started %d processes, but MPI counts %d: try srun --mpi=pmix "
                        "(srun --mpi=list lists the choices), or mpirun",
                        size, mpi.size);
    if (!err && mpi.size > 1024)
        err = error_set(e, -EINVAL, E_RANKS,
                        "the launcher started %d processes: start at most 1024", mpi.size);
    if (err && rank > 0)
        *e = (struct Error){0}; // rank 0 reports it
    return err;
}

void world_close(struct World *w) {
    if (w->launched)
        mpi_stop(w->first, w->timeout_s);
    *w = (struct World){0};
}

int world_set_ranks(struct World *w, size_t *ranks, bool user_set, struct Error *e) {
    if (w->launched && user_set)
        return error_set(
            e, -EINVAL, E_RANKS,
            "--ranks %zu: the launcher has already started %d ranks; leave out --ranks", *ranks,
            w->size);
    if (!w->launched)
        w->size = w->count = (int)*ranks;
    *ranks = (size_t)w->size;
    return 0;
}

size_t world_cores(const struct World *w, size_t cores) {
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    if (w->launched && all > 0)
        return size_max(1, (size_t)all / (size_t)w->node_size);
    return size_max(1, cores / (size_t)w->count);
}

// ---- agreeing ----

int world_agree(const struct World *w, int err, struct Error *e) {
    enum { HAS_TEXT = 1 };
    if (!w->launched)
        return err;
    uint64_t *all = base_alloc_zeroed((size_t)w->size * sizeof *all);
    uint64_t mine = (uint64_t)-err << 1 | (e->text[0] ? HAS_TEXT : 0);
    mpi_share(&mine, 1, all, w->timeout_s);
    int reporter = -1;
    err = 0;
    for (int r = w->size - 1; r >= 0; r--) {
        if (all[r] & HAS_TEXT)
            reporter = r;
        if (all[r] >> 1)
            err = -(int)(all[r] >> 1);
    }
    if (reporter >= 0)
        err = all[reporter] >> 1 ? -(int)(all[reporter] >> 1) : err ? err : -EIO;
    free(all);
    if (reporter != w->first)
        *e = (struct Error){0};
    return err;
}

void world_share(const struct World *w, uint64_t mine, uint64_t *all) {
    all[0] = mine;
    if (w->launched)
        mpi_share(&mine, 1, all, w->timeout_s);
}

uint64_t world_least(const struct World *w, uint64_t mine) {
    if (!w->launched)
        return mine;
    uint64_t *all = base_alloc_zeroed((size_t)w->size * sizeof *all);
    world_share(w, mine, all);
    for (int r = 0; r < w->size; r++)
        mine = all[r] < mine ? all[r] : mine;
    free(all);
    return mine;
}

uint64_t world_broadcast(const struct World *w, uint64_t mine) {
    return world_least(w, w->first ? UINT64_MAX : mine);
}

void world_broadcast_in_node(const struct World *w, uint64_t *words, size_t n) {
    if (!w->launched)
        return;
    uint64_t *all = base_alloc_zeroed((size_t)w->size * n * sizeof *all);
    mpi_share(words, n, all, w->timeout_s);
    memcpy(words, all + (size_t)w->node_first * n, n * sizeof *words);
    free(all);
}

// ---- this process's ranks ----

struct RankInfo {
    RankMain *main;
    void *context;
    int rank;
    struct ThreadGroup *group;
    pthread_t thread;
};

static void *run_rank(void *info) {
    struct RankInfo *s = info;
    base_set_rank(s->rank);
    s->main(s->context, s->rank, s->group);
    return NULL;
}

void world_run(const struct World *w, RankMain *main, void *context) {
    struct ThreadGroup *group = w->count > 1 ? thread_group_open(w->count) : NULL;
    struct RankInfo *ranks = base_alloc_zeroed((size_t)w->count * sizeof *ranks);
    for (int i = w->count - 1; i >= 0; i--) {
        ranks[i] = (struct RankInfo){main, context, w->first + i, group, 0};
        int err = i > 0 ? pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) : 0;
        if (err)
            base_out_of_threads(err, "a rank");
    }
    run_rank(&ranks[0]);
    for (int i = 1; i < w->count; i++)
        pthread_join(ranks[i].thread, NULL);
    if (group)
        thread_group_close(group);
    free(ranks);
}
