// From --out and --resume to a checkpoint: see resume.h. Next: checkpoint.c.
#include "zero/run/resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What a run that goes on from that step, or trains on, is refused for.
static int check_step(const struct Resume *r, uint64_t step, struct Error *e) {
    if (step > r->steps)
        return error_set(e, -EINVAL, "--steps %llu: the checkpoint is of step %llu already",
                         (unsigned long long)r->steps, (unsigned long long)step);
    if (r->newest > step)
        return error_set(
            e, -EEXIST,
            "--resume %s: --out %s holds a later checkpoint, of step %llu; expected another "
            "--out, or --resume auto",
            r->which, r->out, (unsigned long long)r->newest);
    return 0;
}

// The step of the checkpoint that is named. Of one that cannot be read resume_load will say why.
static uint64_t step_of(const char *folder) {
    char *path = checkpoint_rank_path(folder, 0);
    struct CheckpointHead head;
    struct Error ignored;
    int fd;
    uint64_t step = 0;
    if (checkpoint_file_open(path, false, &fd, &head, &ignored) == 0) {
        step = head.step;
        checkpoint_head_free(&head);
        close(fd);
    }
    free(path);
    return step;
}

int resume_check(struct Resume *r, struct Error *e) {
    char *path;
    r->folder = base_format("%s/checkpoints", r->out);
    int found = checkpoint_find(r->folder, UINT64_MAX, &path, &r->newest, e);
    if (found < 0)
        return found;
    if (found)
        free(path);
    if (found && !r->which)
        return error_set(e, -EEXIST,
                         "--out %s holds a checkpoint of step %llu: add --resume auto, or choose "
                         "another folder",
                         r->out, (unsigned long long)r->newest);
    bool newest = r->which && strcmp(r->which, "auto") == 0;
    if (!found && r->sample_only && newest)
        return error_set(e, -ENOENT, "--sample-only: --out %s holds no checkpoint", r->out);
    uint64_t step = r->sample_only || !r->which ? 0 : newest ? r->newest : step_of(r->which);
    return step ? check_step(r, step, e) : 0;
}

// A sample needs the weights alone, so any checkpoint of this shape will do.
int resume_load(const struct Resume *r, struct Zero *z, const char *identity, struct Error *e) {
    if (!r->which)
        return 0;
    int err = checkpoint_resume(z, r->folder, r->which, r->sample_only ? NULL : identity, e);
    if (err || r->sample_only || !z->step)
        return err;
    // A damaged one lets "auto" fall back behind the newest, which is what it is for.
    if (strcmp(r->which, "auto") != 0)
        err = check_step(r, z->step, e);
    if (err)
        return err;
    if (z->dp->rank == 0)
        log_line(LOG_NORMAL, "resumed after step %llu, on %d ranks, %zu micro-batches a step",
                 (unsigned long long)z->step, z->dp->size, z->plan.nmicro);
    return 0;
}
