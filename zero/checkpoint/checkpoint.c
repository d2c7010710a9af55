// Saving the ranks' state: see checkpoint.h.
//
// The ranks write side by side, and agree after each part before the next begins: rank 0 makes the
// folder, all write their files (write.c), rank 0 gives the folder its name. folders.c lists and
// removes folders; load.c loads, and file.c has the file format.
#include "kernels/atomic_file.h"
#include "kernels/folder.h"
#include "zero/state.h"
#include "zero/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- saving ----

// Returns the path at which a checkpoint is written before it gets its name.
static char *tmp_path_of(const char *folder) {
    return base_format("%s/writing", folder);
}

// Frees a path that is needed: removes a checkpoint of ours; renames anything that is not ours, or
// is being read, to a name beside `path`, where it is in nobody's way.
static void move_away(const char *what, const char *path) {
    if (checkpoint_remove(what) == 0)
        return;
    char *other = base_format("%s.other", path);
    checkpoint_remove(other);
    renameat2(AT_FDCWD, what, AT_FDCWD, other, RENAME_NOREPLACE);
    free(other);
}

// Gives the finished folder its name. If the name is taken (this step again, after a resume from an
// older one), the two are exchanged, so that the step always has a checkpoint.
static int move_in_place(const char *tmp, const char *path, struct Error *e) {
    int found = folder_exchange(tmp, path);
    if (found > 0)
        move_away(tmp, path);
    return found < 0 ? error_io(e, found, E_CHECKPOINT_WRITE, "cannot rename %s to %s", tmp, path)
                     : 0;
}

int checkpoint_clear(const char *folder, struct Error *e) {
    char *tmp = tmp_path_of(folder);
    int err = checkpoint_remove(tmp);
    if (err == -EEXIST)
        error_set(e, err, E_CHECKPOINT_IN_THE_WAY,
                  "%s is in the way of a checkpoint: it is a file or a link, or it holds files "
                  "that are not a checkpoint's; move it away",
                  tmp);
    else if (err)
        error_io(e, err, E_CHECKPOINT_WRITE, "cannot remove %s", tmp);
    free(tmp);
    return err;
}

static int refuse_folder(const char *what, const char *folder, struct Error *e) {
    return error_io(e, -errno, E_CHECKPOINT_WRITE, "cannot %s folder %s", what, folder);
}

static int begin_tmp(struct CheckpointSave *s, struct Error *e) {
    bool made = mkdir(s->folder, 0777) == 0;
    if (!made && errno != EEXIST)
        return refuse_folder("create", s->folder, e);
    s->home = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->home < 0)
        return refuse_folder("open", s->folder, e);
    int err = made ? folder_sync_above(s->folder, e) : 0;
    if (!err)
        err = checkpoint_clear(s->folder, e);
    return err || mkdir(s->tmp_path, 0777) == 0 ? err : refuse_folder("create", s->tmp_path, e);
}

// True if the folder has its name: another run may own that now, and has the right to write there.
static bool is_at_home(const struct CheckpointSave *s) {
    struct stat mine, named;
    return s->home >= 0 && fstat(s->home, &mine) == 0 && stat(s->folder, &named) == 0 &&
           mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

static int finish_tmp(const struct CheckpointSave *s, struct Error *e) {
    int err = folder_sync(s->tmp_path, e);
    if (!err)
        err = move_in_place(s->tmp_path, s->path, e);
    return err ? err : folder_sync(s->folder, e);
}

int checkpoint_begin(struct CheckpointSave *s, struct Zero *z, const char *folder,
                     const struct LocalDisk *disk, struct Error *e) {
    *s = (struct CheckpointSave){.step = z->step,
                                 .disk = disk,
                                 .is_writer = local_disk_is_writer(disk, z->all->rank),
                                 .home = -1,
                                 .folder = base_format("%s", folder),
                                 .path = checkpoint_path(folder, z->step),
                                 .tmp_path = tmp_path_of(folder)};
    zero_finish(z);
    struct Error why;
    if (shared_check(z, &why) &&
        z->all->rank == 0) // the first TP rank's is saved, and the run goes on
        log_line(LOG_NORMAL, "step %llu: %s", (unsigned long long)s->step, why.text);
    int err = s->is_writer ? begin_tmp(s, e) : 0;
    if (disk_is_local(disk)) {
        uint64_t word = zero_share(z, local_disk_word())[0];
        if (s->is_writer && !err)
            err = checkpoint_mark(s->tmp_path, word, disk, e);
    }
    return zero_agree(z, err);
}

int checkpoint_end(struct CheckpointSave *s, int err, struct Error *e) {
    bool home = s->is_writer && is_at_home(s);
    if (s->is_writer && !err)
        err = home ? finish_tmp(s, e)
                   : error_set(e, -ESTALE, E_FOLDER_REPLACED,
                               "folder %s was replaced or removed while step %llu was saved into "
                               "it; leave it in place",
                               s->folder, (unsigned long long)s->step);
    if (home && err)
        checkpoint_remove(s->tmp_path);
    s->named = home && !err;
    s->ended = true;
    return err;
}

void checkpoint_close(struct CheckpointSave *s, int err) {
    if (disk_is_local(s->disk) && err && s->named && is_at_home(s))
        checkpoint_remove(s->path);
    if (s->home >= 0)
        close(s->home);
    free(s->folder);
    free(s->path);
    free(s->tmp_path);
    *s = (struct CheckpointSave){.home = -1};
}

int checkpoint_save(struct Zero *z, const char *folder, const char *identity,
                    const struct LocalDisk *disk, struct Error *e) {
    struct CheckpointSave s;
    int err = checkpoint_begin(&s, z, folder, disk, e);
    if (!err)
        err = zero_agree(z, checkpoint_write(z, s.tmp_path, identity, e));
    err = zero_agree(z, checkpoint_end(&s, err, e));
    checkpoint_close(&s, err);
    return err;
}

// ---- resuming ----

// Finds the newest checkpoint before *step that any rank sees in the two folders (or one); all
// ranks get the same answer. Returns what checkpoint_newest does.
static int find_together(struct Zero *z, const char *const *folders, char **path, uint64_t *step,
                         struct Error *e) {
    uint64_t mine, newest = 0;
    int found = checkpoint_newest(folders, *step, path, &mine, e);
    int err = zero_agree(z, found < 0 ? found : 0);
    bool in_second_folder = found == 1 && !checkpoint_is_below(*path, folders[0]);
    free(found == 1 ? *path : NULL);
    *path = NULL;
    // Of two with one step, the first's.
    const uint64_t *all = zero_share(z, found == 1 ? mine << 1 | !in_second_folder : 0);
    for (int r = 0; r < z->all->size; r++)
        newest = all[r] > newest ? all[r] : newest;
    if (err || !newest)
        return err;
    *step = newest >> 1;
    *path = checkpoint_path(folders[!(newest & 1)], *step);
    return 1;
}

// True if an error concerns this one checkpoint, which is damaged, being removed, or on bad
// sectors, so that the one before may be intact.
static bool concerns_one_checkpoint(int err) {
    static const int codes[] = {EBADMSG, ENOENT, ENOTDIR, EIO, EACCES, EPERM, ELOOP, ESTALE, ENXIO};
    bool found = false;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        found = found || err == -codes[i];
    return found;
}

// Loads the newest that is intact. *path: its folder; NULL: there was none, or an error.
static int load_newest(struct Zero *z, const char *const *folders, CheckpointLoad *load,
                       const char *identity, struct CheckpointRefused *refused, char **path,
                       struct Error *e) {
    uint64_t step = UINT64_MAX;
    struct Error newer = {0}; // of the one that was tried before
    int found, err = 0;
    *path = NULL;
    while ((found = find_together(z, folders, path, &step, e)) == 1) {
        if (newer.text[0])
            log_line(LOG_NORMAL, "%s: trying the one before", newer.text);
        e->text[0] = 0;
        err = load(z, *path, identity, e);
        if (!err)
            return 0;
        free(*path);
        *path = NULL;
        if (!concerns_one_checkpoint(err))
            return err;
        if (refused && refused->n < sizeof refused->step / sizeof refused->step[0])
            refused->step[refused->n++] = step;
        newer = *e;
    }
    return found < 0 ? found : err;
}

int checkpoint_resume(struct Zero *z, const char *const *folders, const char *which,
                      const char *identity, struct CheckpointRefused *refused, struct Error *e) {
    if (strcmp(which, "auto") != 0)
        return checkpoint_load(z, which, identity, e);
    char *path;
    int err = load_newest(z, folders, checkpoint_load, identity, refused, &path, e);
    free(path);
    return err;
}

int checkpoint_resume_weights(struct Zero *z, const char *const *folders, const char *identity,
                              char **path, struct Error *e) {
    int err = load_newest(z, folders, checkpoint_load_weights, identity, NULL, path, e);
    if (err || *path)
        return err;
    return error_set(
        e, -ENOENT, E_CHECKPOINT_MISSING,
        "%s no longer holds a checkpoint; put its checkpoints back, or choose another folder",
        folders[0]);
}
