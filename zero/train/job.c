// The ranks of a process: see job.h. Next: trainer.c.
#include "zero/train/job.h"

#include <stdlib.h>

struct JobRank {
    const struct Job *job;
    struct RankSettings settings;
    struct Trainer trainer;
};

// Opens the rank, finds its weights, and does its work.
static int run_rank(struct JobRank *r, struct Error *e) {
    const struct Job *j = r->job;
    struct Trainer *t = &r->trainer;
    int err = trainer_open(t, &r->settings, e);
    if (err)
        return err;
    char *identity = j->identity(j->text, t->rank.device->kernels->name);
    err = trainer_start(t, j->seed, identity, e);
    return err ? err : j->work(t, e);
}

static void rank_main(void *all, int rank, struct ThreadGroup *group) {
    struct JobRank *first = all, *r = first + (rank - first->job->world->first);
    struct Error e = {0};
    r->settings.rank = rank;
    r->settings.group = group;
    trainer_keep_error(&r->trainer, run_rank(r, &e), &e);
    trainer_close(&r->trainer);
}

int job_run(const struct Job *j, struct Error *e) {
    int ranks = j->world->count, err = 0;
    struct JobRank *all = base_alloc_zeroed((size_t)ranks * sizeof *all);
    for (int r = 0; r < ranks; r++)
        all[r] = (struct JobRank){j, j->settings, j->trainer};
    world_run(j->world, rank_main, all);
    for (int r = 0; r < ranks; r++) {
        err = err ? err : all[r].trainer.code;
        *e = e->text[0] ? *e : all[r].trainer.error;
    }
    free(all);
    return err;
}
