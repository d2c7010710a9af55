// Folders: see folder.h.
#include "zero/run/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int folder_sync(const char *path, struct Error *e) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Some file systems cannot sync a folder and say EINVAL: they have no weaker promise to keep.
    int err = fd < 0 || (fsync(fd) != 0 && errno != EINVAL) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return err ? error_set(e, err, "cannot force folder %s to the disk: %s", path, strerror(-err))
               : 0;
}

int folder_sync_above(const char *path, struct Error *e) {
    char *above = base_format("%s/..", path);
    int err = folder_sync(above, e);
    free(above);
    return err;
}

int folder_make(const char *flag, const char *folder, bool *made, struct Error *e) {
    char *path = base_format("%s/", folder);
    struct Error why = {{0}};
    int err = 0;
    *made = false;
    for (char *slash = strchr(path + 1, '/'); slash && !err; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        *made = mkdir(path, 0777) == 0;
        if (*made)
            err = folder_sync_above(path, &why);
        else if (errno != EEXIST)
            err = error_set(&why, -errno, "cannot make the folder: %s", strerror(errno));
        *slash = '/';
    }
    free(path);
    return err ? error_set(e, err, "%s %s: %s", flag, folder, why.text) : 0;
}
