// Files and folders that appear whole: written under a temporary name, forced to the disk, renamed.
//
// A file that other programs or a later run depend on (config.json, a log that is cut) is never
// changed in place. Whoever opens the file sees the old text or the new one, whenever the process
// or the machine dies. A temporary name is one that nobody can foresee, and is made new, never
// through a link; while its maker lives it is locked, so that a later run can remove what a dead
// one left.
//
// All writers of this kind share these steps: data/file.h (whole files), data/cache.h (folders of
// the cache), data/hf/ and data/llmc/ (exports), data/text/part.h (downloads), zero/checkpoint/.
#ifndef KERNELS_ATOMIC_FILE_H
#define KERNELS_ATOMIC_FILE_H
#include "kernels/base.h"

// Marks an open file or folder that was just made as one whose maker lives. False: another run has
// taken it for a dead one's, and removes it. Where the file system has no locks, nothing is marked
// and nothing is taken.
bool file_hold(int fd);

// The opposite: takes a file or folder whose maker is dead. False: it lives, or nobody can tell.
bool file_take(int fd);

// A file or folder in the making, which becomes `path`.
struct AtomicFile {
    int fd;         // open, and locked
    char *path;     // NULL of a folder
    char *tmp_path; // PATH.XXXXXX.tmp; of a folder PATH.XXXXXX
};

// Is `name` the temporary one of the file `base` (both without a folder)? And is this what a
// temporary name has behind that of the file or folder?
bool atomic_file_is_tmp(const char *name, const char *base);
bool atomic_is_tmp_end(const char *end, bool folder);

// Makes the temporary file, and removes those of dead runs. After it exactly one of commit and
// abandon must follow; both release everything. A commit that fails has abandoned: the old file
// stands as it was.
int atomic_file_open(struct AtomicFile *a, const char *path, struct Error *e);
int atomic_file_commit(struct AtomicFile *a, struct Error *e);
void atomic_file_abandon(struct AtomicFile *a);

// The three steps in one.
int file_replace(const char *path, const void *bytes, size_t n, struct Error *e);

// Makes a temporary folder for its user alone. The caller gives it its name or removes it; then
// atomic_folder_close. Errors: -errno, without a line.
int atomic_folder_open(struct AtomicFile *a, const char *path);
void atomic_folder_close(struct AtomicFile *a);

// ---- the steps; errors: -errno, without a line ----

// Forces an open file to the disk and closes it. Network file systems tell of a full disk only in
// the close.
int file_close_synced(int fd);

// The same of the temporary file `tmp_path`, which becomes `path`. *fd stays open, for the lock.
int file_rename_synced(int *fd, const char *tmp_path, const char *path);

// Writes a new file NAME in the open folder, forced to the disk. AT_FDCWD: a path.
int file_put(int folder, const char *name, const void *bytes, size_t n);

// Renames a folder to `path`. What was there lies at tmp_path afterwards; the name leads to one or
// the other at all times, where the file system can do that. Returns whether any was there.
int folder_exchange(const char *tmp_path, const char *path);

// Forces the name of a file to the disk, with the folder that holds it. Errors: -errno, and a line.
int file_sync_name(const char *path, struct Error *e);

#endif
