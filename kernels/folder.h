// Folders: creating them so that they survive a power cut, and walking through one without
// following a link.
//
// POSIX guarantees a name only once the folder that holds it was synced. Used by data/ (cache,
// logs) and zero/ (checkpoints, lock). Read next: data/file.h, which is about files.
#ifndef KERNELS_FOLDER_H
#define KERNELS_FOLDER_H
#include "kernels/base.h"

#include <dirent.h>
#include <sys/types.h>

// Makes a folder and its missing parents; new ones get this mode, and the folder that holds each is
// forced to the disk. *made, unless made is NULL: how many were made. `flag` opens the error's line
// ("--out"). Errors: -ENOENT for an empty path, -ENOTDIR, -errno.
int folder_make(const char *path, const char *flag, mode_t mode, int *made, struct Error *e);

// Returns the folder that holds PATH, with a slash at its end if PATH has one; free() it.
char *folder_of(const char *path);

// Forces the names in a folder, or in its parent, to the disk. Errors: -errno.
int folder_sync(const char *path, struct Error *e);
int folder_sync_above(const char *path, struct Error *e);

// Returns the next name in it except . and ..; NULL at the end, or on an error. *err is 0, or after
// an error -errno: then the names so far are not all.
const char *folder_next(DIR *dir, int *err);

// Calls `each` with the descriptor `folder` and every name in it except . and .., until it returns
// false. Returns false if it did, with errno 0, or if the folder cannot be read, with its errno.
bool folder_for_all(int folder, bool (*each)(int folder, const char *name, void *context),
                    void *context);

// True if `name` in the folder is a regular file, and not a link to one; then *bytes, unless bytes
// is NULL, is its size.
bool folder_has_file(int folder, const char *name, uint64_t *bytes);

#endif
