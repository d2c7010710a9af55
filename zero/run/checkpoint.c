// Saving the ranks' state, and the folders of checkpoints: see checkpoint.h.
//
// The ranks write side by side, and agree after each part before the next begins: rank 0 makes the
// folder, all write their files, rank 0 gives the folder its name. Loading is in checkpoint_load.c,
// the file format in checkpoint_file.c.
#include "zero/state.h"
#include "zero/run/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- names ----

char *checkpoint_rank_path(const char *folder, int rank) {
    return base_format("%s/rank-%04d.state", folder, rank);
}

char *checkpoint_path(const char *folder, uint64_t step) {
    return base_format("%s/step-%08llu", folder, (unsigned long long)step);
}

// The step of a folder named step-N, or false.
static bool step_of(const char *name, uint64_t *step) {
    unsigned long long n;
    int end = 0;
    if (sscanf(name, "step-%llu%n", &n, &end) != 1 || name[end] != '\0' || end < 13)
        return false;
    *step = n;
    return true;
}

static int sync_folder(const char *path, struct Error *e) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fd < 0 || fsync(fd) != 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return err ? error_set(e, err, "cannot force folder %s to the disk: %s", path, strerror(-err))
               : 0;
}

static int make_folder(const char *path, struct Error *e) {
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return 0;
    return error_set(e, -errno, "cannot create folder %s: %s", path, strerror(errno));
}

// Removes a checkpoint's folder: the files in it, then itself. What is missing is no error.
static void remove_checkpoint(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char *file = base_format("%s/%s", path, d->d_name);
        if (d->d_name[0] != '.')
            unlink(file);
        free(file);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

// ---- this rank's file ----

static int write_array(struct Zero *z, struct CheckpointWriter *w, int g, enum State what,
                       size_t begin, size_t n, float *chunk, struct Error *e) {
    int err = 0;
    for (size_t i = 0; i < n && !err; i += STATE_CHUNK) {
        size_t count = size_min(STATE_CHUNK, n - i);
        zero_read_state(z, g, what, begin + i, count, chunk);
        err = checkpoint_file_append(w, chunk, count * sizeof *chunk, e);
    }
    return err;
}

static void head_of(const struct Zero *z, const char *identity, struct CheckpointHead *h) {
    *h = (struct CheckpointHead){.step = z->step,
                                 .updates = z->updates,
                                 .loss_scale = z->loss_scale,
                                 .rank = (uint32_t)z->dp->rank,
                                 .size = (uint32_t)z->dp->size,
                                 .ngroup = (uint32_t)z->params->ngroup,
                                 .narray = zero_is_late(z) ? NSTATE_LATE : NSTATE,
                                 .identity = base_format("%s", identity)};
    h->choices_bytes = (uint32_t)device_get_choices(z->device, NULL, 0);
    h->choices = h->choices_bytes ? base_alloc(h->choices_bytes) : NULL;
    if (h->choices)
        device_get_choices(z->device, h->choices, h->choices_bytes);
    h->group = base_alloc_zeroed(h->ngroup * sizeof *h->group);
    for (int g = 0; g < z->params->ngroup; g++) {
        size_t n = zero_shard_numel(z, g), numel = z->params->group[g].numel;
        size_t begin = size_min(n * (size_t)z->dp->rank, numel);
        h->group[g] = (struct CheckpointGroup){numel, begin, size_min(n, numel - begin)};
    }
}

static int write_groups(struct Zero *z, struct CheckpointWriter *w,
                        const struct CheckpointHead *head, struct Error *e) {
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    int err = 0;
    for (int g = 0; g < z->params->ngroup && !err; g++) {
        const struct CheckpointGroup *part = &head->group[g];
        size_t skip = part->count ? part->begin - zero_owned_begin(z, g) : 0;
        for (enum State what = 0; what < head->narray && !err; what++)
            err = write_array(z, w, g, what, skip, part->count, chunk, e);
    }
    device_free_host(z->device, chunk);
    return err;
}

static int write_rank(struct Zero *z, const char *folder, const char *identity, struct Error *e) {
    char *path = checkpoint_rank_path(folder, z->dp->rank);
    struct CheckpointHead head;
    head_of(z, identity, &head);
    struct CheckpointWriter *w;
    int err = checkpoint_file_create(&w, path, &head, e);
    if (!err && (err = write_groups(z, w, &head, e)))
        checkpoint_file_abandon(w);
    else if (!err)
        err = checkpoint_file_finish(w, e);
    checkpoint_head_free(&head);
    free(path);
    return err;
}

// ---- saving ----

static void remove_old(const char *folder, uint64_t newest, size_t keep) {
    struct Error ignored;
    uint64_t before = newest + 1, step;
    char *path;
    for (size_t seen = 1; checkpoint_find(folder, before, &path, &step, &ignored) == 1; seen++) {
        if (keep && seen > keep)
            remove_checkpoint(path);
        free(path);
        before = step;
    }
}

// Gives the finished folder its name. Where the name is taken (this step again, after a resume from
// an older one), the two change places, so that at no time the step has no checkpoint.
static int move_in_place(const char *aside, const char *path, struct Error *e) {
    if (renameat2(AT_FDCWD, aside, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        remove_checkpoint(aside);
        return 0;
    }
    if (errno != ENOENT)
        remove_checkpoint(path); // a file system that cannot exchange
    if (rename(aside, path) == 0)
        return 0;
    return error_set(e, -errno, "cannot rename %s to %s: %s", aside, path, strerror(errno));
}

static int begin_aside(const char *folder, const char *aside, struct Error *e) {
    int err = make_folder(folder, e);
    remove_checkpoint(aside); // of a run that died here
    return err ? err : make_folder(aside, e);
}

static int finish_aside(const char *folder, const char *aside, const char *path, struct Error *e) {
    int err = sync_folder(aside, e);
    if (!err)
        err = move_in_place(aside, path, e);
    return err ? err : sync_folder(folder, e);
}

int checkpoint_save(struct Zero *z, const char *folder, const char *identity, size_t keep,
                    struct Error *e) {
    char *path = checkpoint_path(folder, z->step);
    char *aside = base_format("%s/writing", folder);
    bool first = z->dp->rank == 0;
    zero_finish(z);
    int err = zero_agree(z, first ? begin_aside(folder, aside, e) : 0);
    if (!err)
        err = zero_agree(z, write_rank(z, aside, identity, e));
    if (!err)
        err = zero_agree(z, first ? finish_aside(folder, aside, path, e) : 0);
    if (first && err)
        remove_checkpoint(aside);
    else if (first)
        remove_old(folder, z->step, keep);
    free(path);
    free(aside);
    return err;
}

// ---- finding ----

int checkpoint_find(const char *folder, uint64_t before, char **path, uint64_t *step,
                    struct Error *e) {
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT)
        return 0;
    if (!dir)
        return error_set(e, -errno, "cannot read folder %s: %s", folder, strerror(errno));
    bool found = false;
    for (struct dirent *d; (d = readdir(dir));) {
        uint64_t n;
        if (!step_of(d->d_name, &n) || n >= before || (found && n <= *step))
            continue;
        found = true;
        *step = n;
    }
    closedir(dir);
    if (found)
        *path = checkpoint_path(folder, *step);
    return found;
}

// The newest checkpoint before *step, as rank 0 sees the folder; all ranks get its answer. As
// checkpoint_find.
static int find_together(struct Zero *z, const char *folder, char **path, uint64_t *step,
                         struct Error *e) {
    uint64_t *all = base_alloc_zeroed((size_t)z->dp->size * sizeof *all), mine = UINT64_MAX;
    char *own = NULL;
    int found = z->dp->rank == 0 ? checkpoint_find(folder, *step, &own, &mine, e) : 0;
    int err = zero_agree(z, found < 0 ? found : 0);
    zero_share(z, found == 1 ? mine : UINT64_MAX, all);
    *step = all[0];
    free(own);
    free(all);
    if (err || *step == UINT64_MAX)
        return err;
    *path = checkpoint_path(folder, *step);
    return 1;
}

int checkpoint_resume(struct Zero *z, const char *folder, const char *which, const char *identity,
                      struct Error *e) {
    if (strcmp(which, "auto") != 0) {
        int code = checkpoint_load(z, which, identity, e);
        return code != -ENOENT && code != -ENOTDIR
                   ? code
                   : error_set(e, code,
                               "--resume %s: no checkpoint; expected auto, or a folder such as "
                               "%s/step-00000100",
                               which, folder);
    }
    uint64_t step = UINT64_MAX;
    char *path = NULL;
    int found, err = 0;
    while ((found = find_together(z, folder, &path, &step, e)) == 1) {
        err = checkpoint_load(z, path, identity, e);
        free(path);
        if (err != -EBADMSG && err != -ENOENT && err != -ENOTDIR)
            return err;
        if (e->text[0])
            log_line(LOG_NORMAL, "%s; trying the one before", e->text);
    }
    return found < 0 ? found : err;
}
