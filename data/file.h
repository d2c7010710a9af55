// Whole small files: read at once, or replaced at once (kernels/atomic_file.h).
//
// Files of others are doubted. Only regular files are read (a pipe would let the program wait, a
// device has no end), except where a pipe is asked for by name.
#ifndef DATA_FILE_H
#define DATA_FILE_H
#include "kernels/atomic_file.h"

#include <sys/stat.h>
#include <sys/types.h>

// What has this mode, for an error line: "a folder", "a pipe", "a character device".
const char *file_kind(mode_t mode);

// Is what the first n bytes of a path name called NAME and the ending, such as ".gz"?
bool file_ends_in(const char *path, size_t n, const char *ending);

// Bytes of the byte order mark that a text may begin with (EF BB BF), as Python's utf-8-sig passes
// over: 3 or 0.
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

// The same of a pipe, which is waited for: all that it carries until its end. A pipe can be read
// once. Errors: as above, -EINVAL for what is no pipe.
int file_read_pipe(const char *path, size_t bytes_max, char **text, size_t *bytes, struct Error *e);

// Writes all bytes, however many calls it takes. Returns 0 or -errno. `path` is for the error line.
int file_write(int fd, const char *path, const void *bytes, size_t n, struct Error *e);

// The same at the end of a file opened with O_APPEND, all or nothing: where that fails, what was
// written of it is taken away again, so that it can be written anew behind what was whole.
int file_append(int fd, const char *path, const void *bytes, size_t n, struct Error *e);

// Could folder_make make it, and files in it? Makes nothing. Errors: -ENOTDIR, -errno.
int file_check_folder(const char *path, const char *flag, struct Error *e);

// Can a file be written there? Its folder must exist; in its own place there may be a file, or a
// device such as /dev/null, and nothing else. Errors: -EINVAL, -errno.
int file_check_place(const char *path, const char *flag, struct Error *e);

// Has the file system of PATH, which need not exist in its folder, room for so many bytes? One that
// cannot tell is believed to. `before` opens the error line. Errors: -ENOSPC.
int file_check_room(const char *path, const char *before, uint64_t bytes, struct Error *e);

// Is the name free for something new, a `kind` ("a folder")? `before` opens the error line. Errors:
// -EEXIST.
int file_check_new(const char *path, const char *before, const char *kind, struct Error *e);

// Renames a file or folder to a name that must be free. Errors: -EEXIST, -errno.
int file_rename_new(const char *from, const char *to, const char *kind, struct Error *e);

// What a dead run has left of an export that many processes wrote, at PATH.writing: a file, or with
// O_DIRECTORY in `flags` a folder. `is` knows it by what is in it; `remove` NULL: it is unlinked.
struct Torso {
    int flags;
    bool (*is)(int fd);
    void (*remove)(const char *path, int fd);
};

// Is the name free, or does a torso have it, which is removed on request? No lock is taken else: of
// a job of many processes all ask at the same time. Errors: -EEXIST.
int file_check_torso(const char *path, const struct Torso *t, bool removes, struct Error *e);

#endif
