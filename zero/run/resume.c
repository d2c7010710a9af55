// From --out and --resume to a checkpoint: see resume.h. Next: checkpoint.c.
#include "zero/run/resume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Who holds the newest checkpoint.
static const char *newest_flag(const struct Resume *r) {
    return r->newest_also ? "--save-also" : "--out";
}

static const char *newest_home(const struct Resume *r) {
    return r->newest_also ? r->asked.also : r->asked.out;
}

// What a run that goes on from that step, or trains on, is refused for.
static int check_step(const struct Resume *r, uint64_t step, struct Error *e) {
    if (step > r->asked.steps)
        return error_set(e, -EINVAL, "--steps %llu: the checkpoint is of step %llu already",
                         (unsigned long long)r->asked.steps, (unsigned long long)step);
    if (r->newest > step)
        return error_set(
            e, -EEXIST,
            "--resume %s: %s %s holds a later checkpoint, of step %llu; expected another "
            "%s, or --resume auto",
            r->asked.which, newest_flag(r), newest_home(r), (unsigned long long)r->newest,
            newest_flag(r));
    return 0;
}

// What the checkpoint in the folder begins with; checkpoint_head_free is due. Of one that cannot be
// read, nothing. Errors: checkpoint_file_open's.
static int read_head(const char *folder, struct CheckpointHead *head, struct Error *e) {
    char *path = checkpoint_rank_path(folder, 0);
    int fd, err = checkpoint_file_open(AT_FDCWD, path, &fd, head, e);
    if (!err)
        close(fd);
    else
        *head = (struct CheckpointHead){0};
    free(path);
    return err;
}

// The step of the checkpoint that the user named.
static int read_step(const struct Resume *r, uint64_t *step, struct Error *e) {
    struct CheckpointHead head;
    struct Error cause;
    int err = read_head(r->asked.which, &head, &cause);
    *step = head.step;
    checkpoint_head_free(&head);
    if (err == -ENOENT || err == -ENOTDIR)
        return error_set(e, err,
                         "--resume %s: no checkpoint; expected auto, or a folder such as "
                         "%s/step-00000100",
                         r->asked.which, r->folder[0]);
    return err ? error_set(e, err, "--resume %s: %s", r->asked.which, cause.text) : 0;
}

// Whether one of the lines is `name value`.
static bool says(const char *identity, const char *name, const char *value) {
    char *line = base_format("\n%s %s\n", name, value);
    bool found = strstr(identity, line) != NULL;
    free(line);
    return found;
}

// What the run of the checkpoint was computed with. False: nothing is known, for it cannot be read,
// or its hash, which nobody has checked yet, will turn out to be wrong.
static bool look_into(const char *folder, struct SettingsUse *use) {
    struct CheckpointHead head;
    struct Error ignored; // resume_check will say it, and of the newest one resume_load
    bool found = false;
    (void)read_head(folder, &head, &ignored);
    const char *text = head.identity ? head.identity : "";
    bool cuda = says(text, "--device", "cuda"), cpu = strstr(text, "\n--kernels ") != NULL;
    for (enum Dtype d = F32; cuda != cpu && d < NDTYPE; d++)
        if (says(text, "--dtype", dtype_name(d))) {
            use->chosen = (struct Chosen){.device = cuda ? DEVICE_CUDA : DEVICE_CPU,
                                          .dtype = {d, d},
                                          .from = "the checkpoint's"};
            found = true;
        }
    checkpoint_head_free(&head);
    return found;
}

// OUT/checkpoints and ALSO/checkpoints.
static void name_folders(struct Resume *r) {
    const char *home[] = {r->asked.out, r->asked.also};
    for (int i = 0, n = 0; i < 2; i++)
        if (home[i] && !r->folder[n])
            r->folder[n++] = base_format("%s/checkpoints", home[i]);
}

static const char *const *folders_of(const struct Resume *r) {
    return (const char *const *)r->folder;
}

void resume_close(struct Resume *r) {
    for (int i = 0; r->folder[i]; i++)
        free(r->folder[i]);
    r->folder[0] = r->folder[1] = NULL;
    for (int i = 0; i < 2; i++) {
        run_lock_release(&r->linked[i]);
        run_lock_release(&r->lock[i]);
    }
}

void resume_look(const struct Resume *resume, struct SettingsUse *use) {
    struct Resume r = *resume;
    use->resumed = r.asked.which != NULL;
    if (!r.asked.which)
        return;
    name_folders(&r);
    char *path;
    bool newest = strcmp(r.asked.which, "auto") == 0,
         found = !newest && look_into(r.asked.which, use);
    struct Error ignored;
    uint64_t step = UINT64_MAX;
    while (newest && !found &&
           checkpoint_newest(folders_of(&r), step, &path, &step, &ignored) == 1) {
        found = look_into(path, use);
        free(path);
    }
    resume_close(&r);
}

// Two folders may hold links to one folder of checkpoints.
static int claim_linked(struct RunLock *l, const char *folder, const char *flag, struct Error *e) {
    struct stat st;
    bool link = lstat(folder, &st) == 0 && S_ISLNK(st.st_mode);
    return link ? run_lock_take(l, folder, flag, e) : 0;
}

static int claim(struct Resume *r, struct Error *e) {
    static const char *const flag[] = {"--out", "--save-also"};
    const char *home[] = {r->asked.out, r->asked.also};
    int err = 0;
    for (int i = 0; i < 2 && home[i] && !err; i++) {
        err = run_lock_take(&r->lock[i], home[i], flag[i], e);
        if (!err)
            err = claim_linked(&r->linked[i], r->folder[i], flag[i], e);
    }
    return err;
}

bool resume_is_fresh(const struct Resume *r) {
    return !r->newest && (!r->asked.which || strcmp(r->asked.which, "auto") == 0);
}

int resume_check(struct Resume *r, struct Error *e) {
    char *path;
    name_folders(r);
    int claimed = r->asked.first && !r->asked.only ? claim(r, e) : 0;
    if (claimed || (r->asked.only && !r->asked.which))
        return claimed;
    int found = checkpoint_newest(folders_of(r), UINT64_MAX, &path, &r->newest, e);
    if (found < 0)
        return found;
    r->newest_also = found && !checkpoint_is_below(path, r->folder[0]);
    if (found)
        free(path);
    if (found && !r->asked.which)
        return error_set(e, -EEXIST,
                         "%s %s holds a checkpoint of step %llu: add --resume auto, or choose "
                         "another folder",
                         newest_flag(r), newest_home(r), (unsigned long long)r->newest);
    bool newest = r->asked.which && strcmp(r->asked.which, "auto") == 0;
    if (!found && r->asked.only && newest)
        return error_set(e, -ENOENT, "%s: --out %s holds no checkpoint", r->asked.only,
                         r->asked.out);
    if (!found && newest && r->asked.first)
        log_line(LOG_NORMAL, "--resume auto: --out %s holds no checkpoint: from step 0",
                 r->asked.out);
    uint64_t step = newest ? r->newest : 0;
    int err = r->asked.which && !newest ? read_step(r, &step, e) : 0;
    return err || r->asked.only || !step ? err : check_step(r, step, e);
}

// A sample needs the weights alone, so any checkpoint of this shape will do.
int resume_load(struct Resume *r, struct Zero *z, const char *identity, struct Error *e) {
    if (!r->asked.which)
        return 0;
    int err = checkpoint_resume(z, folders_of(r), r->asked.which, r->asked.only ? NULL : identity,
                                &r->refused, e);
    if (err || r->asked.only || !z->step)
        return err;
    // A damaged one lets "auto" fall back behind the newest, which is what it is for.
    if (strcmp(r->asked.which, "auto") != 0)
        err = check_step(r, z->step, e);
    if (err)
        return err;
    if (z->all->rank == 0)
        log_line(LOG_NORMAL, "resumed after step %llu (ranks %d, micro-batches %zu)",
                 (unsigned long long)z->step, z->all->size, z->plan.nmicro);
    return 0;
}
