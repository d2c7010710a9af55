// Files and folders that appear complete: written under a temporary name, synced, then renamed.
//
// A file that other programs or a later run depend on (config.json, a log that is cut) is never
// changed in place. A reader sees the old text or the new one, whenever the process or the machine
// dies. Nobody can predict a temporary name, and it is created new, never through a link; while its
// maker lives it is locked, so that a later run can remove the files of a dead one.
//
// All writers of such files share these steps: data/file.h (whole files), data/cache.h (folders of
// the cache), data/hf/ and data/llmc/ (exports), data/text/part.h (downloads), zero/checkpoint/.
#ifndef KERNELS_ATOMIC_FILE_H
#define KERNELS_ATOMIC_FILE_H
#include "kernels/base.h"

// Locks an open file or folder that was just made, which shows that its maker lives. False: another
// run took it for a dead maker's, and removes it or has removed it. If the file system has no
// locks, nothing is locked and nothing is taken.
bool file_hold(int fd);

// The opposite: locks a file or folder of this user whose maker is dead, for the caller to remove.
// False: the maker lives, or that is unknown.
bool file_take(int fd);

// A temporary file or folder, which becomes `path`.
struct AtomicFile {
    int fd;         // open, and locked
    char *path;     // NULL for a folder
    char *tmp_path; // PATH.XXXXXX.tmp; for a folder PATH.XXXXXX
};

// True if `name` is a temporary name of the file `base` (both without a folder); and true if `end`
// is what a temporary name appends to that of the file or folder.
bool atomic_file_is_tmp(const char *name, const char *base);
bool atomic_is_tmp_end(const char *end, bool folder);

// Makes the temporary file, and removes those of dead runs. Exactly one of commit and abandon must
// follow; both release everything. A commit that fails also abandons: the old file is unchanged.
int atomic_file_open(struct AtomicFile *a, const char *path, struct Error *e);
int atomic_file_commit(struct AtomicFile *a, struct Error *e);
void atomic_file_abandon(struct AtomicFile *a);

// Replaces a whole file: opens, writes and commits it. Errors: -errno.
int file_replace(const char *path, const void *bytes, size_t n, struct Error *e);

// Makes a temporary folder for its user only. The caller renames or removes it, then calls
// atomic_folder_close. Errors: -errno, without a message.
int atomic_folder_open(struct AtomicFile *a, const char *path);
void atomic_folder_close(struct AtomicFile *a);

// ---- the steps; errors: -errno, without a message ----

// Forces an open file to the disk and closes it. Network file systems report a full disk only on
// close.
int file_close_synced(int fd);

// The same for the temporary file `tmp_path`, which becomes `path`. *fd becomes a second
// descriptor of the file, which keeps the lock.
int file_rename_synced(int *fd, const char *tmp_path, const char *path);

// Writes a new file `name` in the open folder, forced to the disk. AT_FDCWD: name is a path.
int file_put(int folder, const char *name, const void *bytes, size_t n);

// Renames a folder to `path`. A folder that was there is at tmp_path afterwards; the name always
// refers to one or the other, if the file system supports that. If it does not, and the last rename
// fails, the old folder stays at path.XXXXXX. Returns 1 if there was one, else 0.
int folder_exchange(const char *tmp_path, const char *path);

// Forces a file's name to the disk, with the folder that holds it. Errors: -errno, with a message.
int file_sync_name(const char *path, struct Error *e);

#endif
