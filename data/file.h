// Whole small files: read at once, or replaced at once.
//
// A file that other programs or a later run depend on (config.json, a log being cut back) is never
// changed in place: the new text is written aside, forced to the disk, and renamed over the old
// one. Whoever opens the file sees the old text or the new one, whenever the process or the machine
// dies.
#ifndef DATA_FILE_H
#define DATA_FILE_H
#include "kernels/base.h"

// Reads a file of at most `bytes_max` bytes. *text gets a zero byte behind its *bytes; free() it.
// Errors: -errno of open or read, -EISDIR for a folder, -EFBIG past `bytes_max`.
int file_read(const char *path, size_t bytes_max, char **text, size_t *bytes, struct Error *e);

// Writes all bytes, however many calls it takes. Returns 0 or -errno. `path` is for the error line.
int file_write(int fd, const char *path, const void *bytes, size_t n, struct Error *e);

// Makes a folder and those above it. `flag` opens the error line ("--out"). Errors: -errno.
int file_make_folder(const char *path, const char *flag, struct Error *e);

// Could file_make_folder make it, and files in it? Makes nothing. Errors: -ENOTDIR, -errno.
int file_check_folder(const char *path, const char *flag, struct Error *e);

// Can a file be written there? Its folder must exist; in its own place there may be a file, or a
// device such as /dev/null, and nothing else. Errors: -EINVAL, -errno.
int file_check_place(const char *path, const char *flag, struct Error *e);

// A replacement in the making: PATH.tmp, which becomes PATH.
struct FileAside {
    int fd;
    char *path, *path_aside;
};

// After file_aside_open exactly one of commit and abandon must follow; both release everything. A
// commit that fails has abandoned: the old file stands as it was.
int file_aside_open(struct FileAside *a, const char *path, struct Error *e);
int file_aside_commit(struct FileAside *a, struct Error *e);
void file_aside_abandon(struct FileAside *a);

// The three steps in one.
int file_replace(const char *path, const void *bytes, size_t n, struct Error *e);

#endif
