// Whole small files: read at once, or replaced at once (kernels/atomic_file.h).
//
// Files of others are doubted. Only regular files are read (a pipe would let the program wait, a
// device has no end), except where a pipe is asked for by name.
#ifndef DATA_FILE_H
#define DATA_FILE_H
#include "kernels/atomic_file.h"

#include <sys/stat.h>
#include <sys/types.h>

// Names the kind of file that has this mode, for an error line: "a folder", "a pipe", "a socket".
const char *file_kind(mode_t mode);

// Whether the first n bytes of a path name a file NAME.gz, for the ending ".gz".
bool file_ends_in(const char *path, size_t n, const char *ending);

// Returns the bytes of the byte order mark (EF BB BF) at the beginning of the text: 3 or 0. Readers
// skip it, as Python's utf-8-sig does.
size_t file_mark_bytes(const char *text, size_t n);

// Opens a regular file to be read, without ever waiting. `flag` opens the error line ("--data",
// "cannot read"). Errors: -errno of open, -EISDIR for a folder, -EINVAL for what is neither.
int file_open(const char *path, const char *flag, int *fd, struct stat *st, struct Error *e);

// Reads up to n bytes from place `from` on, however many calls it takes. Fewer come only at the end
// of the file. Returns how many, or -errno.
ssize_t file_pread(int fd, void *bytes, size_t n, uint64_t from);

// Reads a file of at most `bytes_max` bytes. *text gets a zero byte behind its *bytes; free() it.
// After an error it is NULL. Errors: -errno of open or read, -EISDIR for a folder, -EINVAL for what
// is no regular file, -EFBIG past `bytes_max`.
int file_read(const char *path, size_t bytes_max, char **text, size_t *bytes, struct Error *e);

// Reads a pipe to its end, as file_read does a file, and waits for it. A pipe can be read once.
// Errors: as above, -EINVAL for a file that is not a pipe.
int file_read_pipe(const char *path, size_t bytes_max, char **text, size_t *bytes, struct Error *e);

// Writes all bytes, however many calls it takes. Returns 0 or -errno. `path` is for the error line.
int file_write(int fd, const char *path, const void *bytes, size_t n, struct Error *e);

// Appends n bytes to a file opened with O_APPEND, all or nothing: a failed call truncates the file
// to its length of before, so that the bytes can be appended again. Errors: -errno.
int file_append(int fd, const char *path, const void *bytes, size_t n, struct Error *e);

// Could folder_make make it, and files in it? Makes nothing. Errors: -ENOTDIR, -errno.
int file_check_folder(const char *path, const char *flag, struct Error *e);

// Can a file be written there? Its folder must exist; in its own place there may be a file, or a
// device such as /dev/null, and nothing else. Errors: -EINVAL, -errno.
int file_check_place(const char *path, const char *flag, struct Error *e);

// Checks that the file system of PATH, which need not exist yet, has so many bytes free. One that
// cannot tell passes. `before` opens the error line. Errors: -ENOSPC.
int file_check_room(const char *path, const char *before, uint64_t bytes, struct Error *e);

// Checks that nothing has this name yet; `kind` ("a folder") is what will be made there, and
// `before` opens the error line. Errors: -EEXIST.
int file_check_new(const char *path, const char *before, const char *kind, struct Error *e);

// Renames a file or folder to a name that must be free. Errors: -EEXIST, -errno.
int file_rename_new(const char *from, const char *to, const char *kind, struct Error *e);

// An unfinished export at PATH.writing, which a dead run has left: a file, or with O_DIRECTORY in
// `flags` a folder. `is` recognises its contents; `remove` deletes it, NULL: unlink().
struct Torso {
    int flags;
    bool (*is)(int fd);
    void (*remove)(const char *path, int fd);
};

// Checks that the name is free, or has a torso, which is removed if `removes`. Only removing takes
// a lock, because all processes of a job check at the same time. Errors: -EEXIST.
int file_check_torso(const char *path, const struct Torso *t, bool removes, struct Error *e);

#endif
