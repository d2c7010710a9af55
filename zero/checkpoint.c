// Saving and loading a rank's state: see checkpoint.h. The file format is in checkpoint_file.c.
#include "zero/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_ELEMENTS = 1 << 20, NSTATE = 3 };

// ---- names ----

static char *rank_path(const char *folder, int rank) {
    return base_format("%s/rank-%04d.state", folder, rank);
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

// ---- the state of one group, as master, m, v ----

static void state_of(struct Zero *z, int g, float *out[NSTATE]) {
    out[0] = zero_master(z, g);
    out[1] = z->state[g].m.mem;
    out[2] = z->state[g].v.mem;
}

static int write_array(struct Zero *z, struct CheckpointWriter *w, const float *src, size_t n,
                       float *chunk, struct Error *e) {
    int err = 0;
    for (size_t i = 0; i < n && !err; i += CHUNK_ELEMENTS) {
        size_t count = size_min(CHUNK_ELEMENTS, n - i);
        device_copy(z->device, QUEUE_OUT, chunk, src + i, count * sizeof *chunk);
        device_sync_queue(z->device, QUEUE_OUT);
        err = checkpoint_file_append(w, chunk, count * sizeof *chunk, e);
    }
    return err;
}

static int read_array(struct Zero *z, int fd, const char *path, float *dst, size_t n, float *chunk,
                      struct Error *e) {
    int err = 0;
    for (size_t i = 0; i < n && !err; i += CHUNK_ELEMENTS) {
        size_t count = size_min(CHUNK_ELEMENTS, n - i);
        err = checkpoint_file_read(fd, path, chunk, count * sizeof *chunk, e);
        if (err)
            break;
        device_copy(z->device, QUEUE_IN, dst + i, chunk, count * sizeof *chunk);
        device_sync_queue(z->device, QUEUE_IN);
    }
    return err;
}

static void head_of(const struct Zero *z, const char *identity, struct CheckpointHead *h) {
    *h = (struct CheckpointHead){
        z->step, (uint32_t)z->dp->rank,      (uint32_t)z->dp->size, (uint32_t)z->params->ngroup,
        NULL,    base_format("%s", identity)};
    h->group = base_alloc_zeroed(h->ngroup * sizeof *h->group);
    for (int g = 0; g < z->params->ngroup; g++)
        h->group[g] = (struct CheckpointGroup){z->params->group[g].padded, zero_master_begin(z, g),
                                               zero_master_numel(z, g)};
}

static int write_rank(struct Zero *z, const char *path, const char *identity, struct Error *e) {
    struct CheckpointHead head;
    head_of(z, identity, &head);
    struct CheckpointWriter *w;
    int err = checkpoint_file_create(&w, path, &head, e);
    checkpoint_head_free(&head);
    if (err)
        return err;
    float *chunk = base_alloc(CHUNK_ELEMENTS * sizeof *chunk);
    for (int g = 0; g < z->params->ngroup && !err; g++) {
        float *state[NSTATE];
        state_of(z, g, state);
        for (int i = 0; i < NSTATE && !err; i++)
            err = write_array(z, w, state[i], zero_master_numel(z, g), chunk, e);
    }
    free(chunk);
    if (err)
        checkpoint_file_abandon(w);
    return err ? err : checkpoint_file_finish(w, e);
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

int checkpoint_save(struct Zero *z, const char *folder, const char *identity, size_t keep,
                    struct Error *e) {
    char *path = base_format("%s/step-%08llu", folder, (unsigned long long)z->step);
    char *aside = base_format("%s/writing", folder);
    char *file = rank_path(aside, z->dp->rank);
    for (int q = 0; q < NQUEUE; q++)
        device_sync_queue(z->device, (enum Queue)q);
    int err = make_folder(folder, e);
    remove_checkpoint(aside); // of a run that died here
    if (!err)
        err = make_folder(aside, e);
    if (!err)
        err = write_rank(z, file, identity, e);
    if (!err)
        err = sync_folder(aside, e);
    if (!err)
        err = move_in_place(aside, path, e);
    if (!err)
        err = sync_folder(folder, e);
    if (err)
        remove_checkpoint(aside);
    else
        remove_old(folder, z->step, keep);
    free(path);
    free(aside);
    free(file);
    return err;
}

// ---- finding and loading ----

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
        *path = base_format("%s/step-%08llu", folder, (unsigned long long)*step);
    return found;
}

// The first line in which two identities differ, as an error.
static int compare_identity(const char *path, const char *stored, const char *wanted,
                            struct Error *e) {
    while (*stored || *wanted) {
        size_t s = strcspn(stored, "\n"), w = strcspn(wanted, "\n");
        if (s != w || memcmp(stored, wanted, s) != 0)
            return error_set(e, -EINVAL,
                             "checkpoint %s is of another run: it has \"%.*s\", not \"%.*s\"", path,
                             (int)s, stored, (int)w, wanted);
        stored += s + (stored[s] == '\n');
        wanted += w + (wanted[w] == '\n');
    }
    return 0;
}

static int check_groups(const struct Zero *z, const char *path, const struct CheckpointHead *h,
                        struct Error *e) {
    bool same = h->ngroup == (uint32_t)z->params->ngroup && h->size == (uint32_t)z->dp->size;
    for (int g = 0; same && g < z->params->ngroup; g++)
        same = h->group[g].padded == z->params->group[g].padded &&
               h->group[g].begin == zero_master_begin(z, g) &&
               h->group[g].count == zero_master_numel(z, g);
    return same ? 0 : error_set(e, -EINVAL, "checkpoint %s is of a model of another shape", path);
}

int checkpoint_load(struct Zero *z, const char *path, const char *identity, struct Error *e) {
    char *file = rank_path(path, z->dp->rank);
    struct CheckpointHead head;
    int fd, err = checkpoint_file_open(file, &fd, &head, e);
    if (err)
        goto out_path;
    if (identity)
        err = compare_identity(path, head.identity, identity, e);
    if (!err)
        err = check_groups(z, path, &head, e);
    float *chunk = base_alloc(CHUNK_ELEMENTS * sizeof *chunk);
    for (int q = 0; q < NQUEUE; q++)
        device_sync_queue(z->device, (enum Queue)q);
    for (int g = 0; g < z->params->ngroup && !err; g++) {
        float *state[NSTATE];
        state_of(z, g, state);
        for (int i = 0; i < NSTATE && !err; i++)
            err = read_array(z, fd, file, state[i], zero_master_numel(z, g), chunk, e);
    }
    free(chunk);
    if (!err) {
        zero_store_params(z);
        z->step = head.step;
    }
    close(fd);
    checkpoint_head_free(&head);
out_path:
    free(file);
    return err;
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
    char *path;
    int found, err = 0;
    while ((found = checkpoint_find(folder, step, &path, &step, e)) == 1) {
        err = checkpoint_load(z, path, identity, e);
        free(path);
        if (err != -EBADMSG && err != -ENOENT && err != -ENOTDIR)
            return err;
        log_line(LOG_NORMAL, "%s; trying the one before", e->text);
    }
    return found < 0 ? found : err;
}
