// The folders of checkpoints: names them, finds the newest, and removes old ones. See checkpoint.h.
//
// A folder is ours if it is a folder and not a link to one, and holds only regular files with names
// of our own; only such a folder is ever removed, file by file. Files or links that somebody else
// has put there stay, and the folder with them.
//
// A process that reads a checkpoint holds a lock on its first file meanwhile (checkpoint_hold):
// another process that prunes skips it.
#include "kernels/folder.h"
#include "zero/checkpoint/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- names ----

char *checkpoint_rank_path(const char *folder, int rank) {
    return base_format("%s/rank-%04d.state", folder, rank);
}

char *checkpoint_path(const char *folder, uint64_t step) {
    return base_format("%s/step-%08llu", folder, (unsigned long long)step);
}

// Reads the step of a folder named step-N. False: it has another name.
static bool step_of(const char *name, uint64_t *step) {
    unsigned long long n;
    int end = 0;
    if (sscanf(name, "step-%llu%n", &n, &end) != 1 || name[end] != '\0' || end < 13)
        return false;
    *step = n;
    return true;
}

// Returns the rank of a file named rank-R.state, or -1.
static int rank_of(const char *name) {
    char again[32];
    int rank = -1;
    if (sscanf(name, "rank-%d.state", &rank) != 1)
        return -1;
    snprintf(again, sizeof again, "rank-%04d.state", rank);
    return strcmp(name, again) == 0 ? rank : -1;
}

static bool find_lowest(int folder, const char *name, void *lowest) {
    int *least = lowest, rank = rank_of(name);
    if (rank >= 0 && (*least < 0 || rank < *least) && folder_has_file(folder, name, NULL))
        *least = rank;
    return true;
}

int checkpoint_lowest(int folder) {
    int least = -1;
    folder_for_all(folder, find_lowest, &least);
    return least;
}

int checkpoint_file_look(const char *folder, struct CheckpointHead *head, struct Error *e) {
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), lowest = 0, fd = -1;
    if (at >= 0) {
        lowest = checkpoint_lowest(at);
        close(at);
    }
    char *path = checkpoint_rank_path(folder, lowest > 0 ? lowest : 0);
    int err = checkpoint_file_open(AT_FDCWD, path, &fd, head, e);
    if (!err)
        close(fd);
    else
        *head = (struct CheckpointHead){0};
    free(path);
    return err;
}

bool checkpoint_is_below(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && path[n] == '/';
}

// ---- locks of readers ----

// Locks the open file, not for the process: ranks that are threads hold a lock each. False: another
// lock excludes this one. type: F_RDLCK or F_WRLCK.
static bool set_file_lock(int fd, short type) {
    struct flock all = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &all) == 0 || (errno != EAGAIN && errno != EACCES);
}

// Opens the first file or, if that is on another disk, the lowest rank's; -1: neither.
static int open_lowest(int folder, int flags) {
    char name[32];
    int fd = openat(folder, "rank-0000.state", flags), lowest = -1;
    if (fd >= 0 || errno != ENOENT)
        return fd;
    lowest = checkpoint_lowest(folder);
    snprintf(name, sizeof name, "rank-%04d.state", lowest);
    errno = ENOENT;
    return lowest > 0 ? openat(folder, name, flags) : -1;
}

int checkpoint_hold(int folder) {
    int fd = open_lowest(folder, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && !set_file_lock(fd, F_RDLCK)) { // it is being removed
        close(fd);
        return -1;
    }
    return fd;
}

// True if nobody reads the checkpoint, and until *held is closed nobody can; also if an unfinished
// one lacks all files (*held: -1). False if that cannot be found out.
static bool is_unread(int folder, int *held) {
    *held = open_lowest(folder, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return *held < 0 ? errno == ENOENT : set_file_lock(*held, F_WRLCK);
}

// ---- removing ----

static bool is_ours(int folder, const char *name, void *unused) {
    (void)unused;
    return (rank_of(name) >= 0 || checkpoint_is_mark(name)) && folder_has_file(folder, name, NULL);
}

static bool remove_file(int folder, const char *name, void *unused) {
    return is_ours(folder, name, unused) && unlinkat(folder, name, 0) == 0;
}

// Opens a folder. Errors: -EEXIST if it is no folder, or a link to one, and so not ours; -errno.
static int open_ours(const char *path, int *folder) {
    *folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*folder >= 0)
        return 0;
    return errno == ENOTDIR || errno == ELOOP ? -EEXIST : -errno;
}

int checkpoint_remove(const char *path) {
    int held = -1, folder, err = open_ours(path, &folder);
    if (err)
        return err == -ENOENT ? 0 : err;
    errno = 0;
    bool gone = folder_for_all(folder, is_ours, NULL) && is_unread(folder, &held) &&
                folder_for_all(folder, remove_file, NULL) && rmdir(path) == 0;
    static const int reported[] = {EMFILE, ENFILE, ENOMEM, EIO, EACCES, EPERM, EROFS, EBUSY};
    err = gone ? 0 : -EEXIST;
    for (size_t i = 0; !gone && i < sizeof reported / sizeof reported[0]; i++)
        if (errno == reported[i])
            err = -errno;
    if (held >= 0)
        close(held);
    close(folder);
    return err;
}

static bool is_refused(const struct CheckpointRefused *refused, uint64_t step) {
    size_t i = 0;
    while (refused && i < refused->n && refused->step[i] != step)
        i++;
    return refused && i < refused->n;
}

// Does not count damaged ones, which would push out one that can be resumed from.
void checkpoint_prune(const char *folder, uint64_t newest, struct CheckpointKeep keep) {
    struct Error ignored;
    uint64_t before = newest + 1, step;
    char *path;
    for (size_t kept = 0;
         keep.newest && checkpoint_find(folder, before, &path, &step, &ignored) == 1;) {
        if (kept >= keep.newest && step != keep.best)
            checkpoint_remove(path);
        else
            kept += !is_refused(keep.refused, step);
        free(path);
        before = step;
    }
}

// ---- finding ----

int checkpoint_find(const char *folder, uint64_t before, char **path, uint64_t *step,
                    struct Error *e) {
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT)
        return 0;
    if (!dir)
        return error_io(e, -errno, E_CHECKPOINT_READ, "cannot read folder %s", folder);
    bool found = false;
    int err = 0;
    for (const char *name; (name = folder_next(dir, &err));) {
        uint64_t n;
        if (!step_of(name, &n) || n >= before || (found && n <= *step))
            continue;
        found = true;
        *step = n;
    }
    closedir(dir);
    if (err)
        return error_io(e, err, E_CHECKPOINT_READ, "cannot read folder %s", folder);
    if (found)
        *path = checkpoint_path(folder, *step);
    return found;
}

int checkpoint_newest(const char *const *folders, uint64_t before, char **path, uint64_t *step,
                      struct Error *e) {
    int found = 0;
    *path = NULL;
    for (; *folders && found >= 0; folders++) {
        char *here;
        uint64_t n;
        found = checkpoint_find(*folders, before, &here, &n, e);
        bool newer = found == 1 && (!*path || n > *step);
        if (newer || found < 0) {
            free(*path);
            *path = newer ? here : NULL;
            *step = newer ? n : 0;
        } else if (found) {
            free(here);
        }
    }
    return found < 0 ? found : *path != NULL;
}
