// Folders that must still be there after a power cut: POSIX promises a name only once the folder
// that holds it was forced to the disk.
#ifndef ZERO_RUN_FOLDER_H
#define ZERO_RUN_FOLDER_H
#include "kernels/base.h"

// Makes a folder and those above it, each of which is forced to the disk. *made: it was not there.
// `flag` begins the error's line. Errors: -errno.
int folder_make(const char *flag, const char *path, bool *made, struct Error *e);

// Forces the names in a folder, or in the one above it, to the disk. Errors: -errno.
int folder_sync(const char *path, struct Error *e);
int folder_sync_above(const char *path, struct Error *e);

#endif
