// Folders: making them so that they are still there after a power cut, and walking through one
// without following a link.
//
// POSIX promises a name only once the folder that holds it was forced to the disk. Used by data/
// (cache, logs) and zero/ (checkpoints, lock). Read next: data/file.h, which is about files.
#ifndef KERNELS_FOLDER_H
#define KERNELS_FOLDER_H
#include "kernels/base.h"

#include <dirent.h>
#include <sys/types.h>

// Makes a folder and those above it, as far as they are not there; what is made has this mode, and
// the folder that holds it is forced to the disk. *made, unless made is NULL: how many that was.
// `flag` opens the error's line ("--out"). Errors: -ENOENT for an empty path, -ENOTDIR,
// -errno.
int folder_make(const char *path, const char *flag, mode_t mode, int *made, struct Error *e);

// The folder that holds PATH, with a slash behind it where PATH has one; free() it.
char *folder_of(const char *path);

// Forces the names in a folder, or in the one above it, to the disk. Errors: -errno.
int folder_sync(const char *path, struct Error *e);
int folder_sync_above(const char *path, struct Error *e);

// The next name in it but . and ..; NULL: there is none, or *err, else 0, is -errno: what was read
// before is not all then.
const char *folder_next(DIR *dir, int *err);

// Calls `each` with the descriptor `folder` and every name in it but . and .., until it returns
// false. False: it did, or the folder cannot be read, which errno, else 0, says.
bool folder_for_all(int folder, bool (*each)(int folder, const char *name, void *context),
                    void *context);

// Is `name` in the folder a regular file, and no link to one? Then *bytes, unless it is NULL, is
// its size.
bool folder_has_file(int folder, const char *name, uint64_t *bytes);

#endif
