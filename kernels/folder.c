// Folders: see folder.h.
#include "kernels/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? base_format("%.*s", (int)(slash - path) + 1, path) : base_format(".");
}

int folder_sync(const char *path, struct Error *e) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Some file systems cannot sync a folder and say EINVAL: they have no weaker promise to keep.
    int err = fd < 0 || (fsync(fd) != 0 && errno != EINVAL) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return err ? error_io(e, err, E_FILE_WRITE, "cannot flush folder %s to disk", path) : 0;
}

int folder_sync_above(const char *path, struct Error *e) {
    char *above = base_format("%s/..", path);
    int err = folder_sync(above, e);
    free(above);
    return err;
}

// Makes one folder in an existing folder.
static int make_one(const char *path, const char *flag, mode_t mode, int *made, struct Error *e) {
    struct Error why = {0};
    if (mkdir(path, mode) != 0)
        return errno == EEXIST
                   ? 0
                   : error_io(e, -errno, E_FILE_WRITE, "%s: cannot make the folder %s", flag, path);
    ++*made;
    int err = folder_sync_above(path, &why);
    return err ? error_set(e, err, why.id, "%s %s: %s", flag, path, why.text) : 0;
}

int folder_make(const char *path, const char *flag, mode_t mode, int *made, struct Error *e) {
    if (!*path)
        return error_set(e, -ENOENT, E_NOT_A_FOLDER,
                         "%s: the folder's name is empty; give a folder", flag);
    char *copy = base_format("%s/", path);
    int count = 0, err = 0;
    for (char *slash = strchr(copy + 1, '/'); slash && !err; slash = strchr(slash + 1, '/')) {
        if (slash[-1] == '/')
            continue;
        *slash = 0;
        err = make_one(copy, flag, mode, &count, e);
        *slash = '/';
    }
    free(copy);
    struct stat st;
    if (!err && (stat(path, &st) || !S_ISDIR(st.st_mode)))
        err = error_set(e, -ENOTDIR, E_NOT_A_FOLDER, "%s: %s is not a folder; give another path",
                        flag, path);
    if (made)
        *made = count;
    return err;
}

static bool is_dot(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

const char *folder_next(DIR *dir, int *err) {
    struct dirent *d;
    do {
        errno = 0;
        d = readdir(dir);
    } while (d && is_dot(d->d_name));
    *err = d ? 0 : -errno;
    return d ? d->d_name : NULL;
}

bool folder_for_all(int folder, bool (*each)(int folder, const char *name, void *context),
                    void *context) {
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); // closedir closes it
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    bool all = dir != NULL;
    int err = all ? 0 : -errno;
    if (!dir && again >= 0)
        close(again);
    for (const char *name; all && (name = folder_next(dir, &err));)
        all = each(folder, name, context);
    if (dir)
        closedir(dir);
    errno = -err;
    return all && !err;
}

bool folder_has_file(int folder, const char *name, uint64_t *bytes) {
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
        return false;
    if (bytes)
        *bytes = (uint64_t)st.st_size;
    return true;
}
