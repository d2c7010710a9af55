// Whole small files: read at once, or replaced at once.
//
// A file that other programs or a later run depend on (config.json, a log being cut back) is never
// changed in place: the new text is written aside, forced to the disk, and renamed over the old
// one. Whoever opens the file sees the old text or the new one, whenever the process or the machine
// dies.
//
// Files of others are doubted. Only regular files are read (a pipe would let the program wait, a
// device has no end), except where a pipe is asked for by name. What is written aside has a name
// that nobody can foresee and is made new, never through a link; while its maker lives it is
// locked, so that the next replacement of the same file can remove what a dead one has left.
#ifndef DATA_FILE_H
#define DATA_FILE_H
#include "kernels/base.h"

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

// Forces the name of a file to the disk, with the folder that holds it. Errors: -errno.
int file_sync_name(const char *path, struct Error *e);

// Marks an open file or folder that was just made as one whose maker lives. False: another run has
// taken it for a dead one's, and removes it. Where the file system has no locks, nothing is marked
// and nothing is taken.
bool file_hold(int fd);

// The opposite: takes a file or folder whose maker is dead. False: it lives, or nobody can tell.
bool file_take(int fd);

// Is `name` that of a replacement in the making of `base` (both without a folder)?
bool file_is_aside(const char *name, const char *base);

// A replacement in the making: PATH.XXXXXX.tmp, which becomes PATH.
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
