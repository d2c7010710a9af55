// From --out and --resume to a checkpoint: see resume.h. Next: checkpoint.c.
#include "zero/run/resume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    if (!found && r->sample_only && strcmp(r->which, "auto") == 0)
        return error_set(e, -ENOENT, "--sample-only: --out %s holds no checkpoint", r->out);
    return 0;
}

// A sample needs the weights alone, so any checkpoint of this shape will do.
int resume_load(const struct Resume *r, struct Zero *z, const char *identity, struct Error *e) {
    if (!r->which)
        return 0;
    int err = checkpoint_resume(z, r->folder, r->which, r->sample_only ? NULL : identity, e);
    if (err || r->sample_only || !z->step)
        return err;
    if (z->step > r->steps)
        return error_set(e, -EINVAL, "--steps %llu: the checkpoint is of step %llu already",
                         (unsigned long long)r->steps, (unsigned long long)z->step);
    if (r->newest > z->step && strcmp(r->which, "auto") != 0)
        return error_set(
            e, -EEXIST,
            "--resume %s: --out %s holds a later checkpoint, of step %llu; expected another "
            "--out, or --resume auto",
            r->which, r->out, (unsigned long long)r->newest);
    if (z->dp->rank == 0)
        log_line(LOG_NORMAL, "resumed after step %llu, on %d ranks, %zu micro-batches a step",
                 (unsigned long long)z->step, z->dp->size, z->plan.nmicro);
    return 0;
}
