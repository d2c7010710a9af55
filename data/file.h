// Reads and writes whole small files; kernels/atomic_file.h replaces them.
//
// Only regular files are read (a pipe would make the program wait, a device has no end), except by
// file_read_pipe.
#ifndef DATA_FILE_H
#define DATA_FILE_H
#include "kernels/atomic_file.h"

#include <sys/stat.h>
#include <sys/types.h>

// Names the kind of file that has this mode, for an error line: "a folder", "a pipe", "a socket".
const char *file_kind(mode_t mode);

// True if the first n bytes of a path are NAME.gz, for the ending ".gz"; NAME is not empty.
bool file_ends_in(const char *path, size_t n, const char *ending);

// Returns the bytes of the byte order mark (EF BB BF) at the beginning of the text: 3 or 0. Readers
// skip it, as Python's utf-8-sig does.
size_t file_mark_bytes(const char *text, size_t n);

// Opens a regular file for reading, without ever waiting; *st describes it. The error line
// begins with `flag` ("--data"). Errors: -errno of open, -EISDIR: a folder, -EINVAL: other kinds.
int file_open(const char *path, const char *flag, int *fd, struct stat *st, struct Error *e);

// Reads up to n bytes from offset `from` on, in as many calls as it takes. Fewer come only at the
// end of the file. Returns their number, or -errno.
ssize_t file_pread(int fd, void *bytes, size_t n, uint64_t from);

// Reads a file of at most `bytes_max` bytes into *text, to free(). A zero byte follows its *bytes
// bytes. *text is NULL after an error: -errno of open or read, -EISDIR for a folder, -EINVAL for
// other kinds, -EFBIG past `bytes_max`.
int file_read(const char *path, size_t bytes_max, char **text, size_t *bytes, struct Error *e);

// Reads a pipe to its end, as file_read does a file, and waits for it. A pipe can be read once.
// Errors: as above, -EINVAL for a file that is not a pipe.
int file_read_pipe(const char *path, size_t bytes_max, char **text, size_t *bytes, struct Error *e);

// Writes all bytes, in as many calls as it takes. Returns 0 or -errno. `path` is for the error
// line.
int file_write(int fd, const char *path, const void *bytes, size_t n, struct Error *e);

// Appends n bytes to a file opened with O_APPEND, all or nothing: a failed call truncates the file
// to its former length, so that the bytes can be appended again. Errors: -errno.
int file_append(int fd, const char *path, const void *bytes, size_t n, struct Error *e);

// Checks that folder_make could make the folder. Makes nothing. Errors: -ENOTDIR, -errno.
int file_check_folder(const char *path, const char *flag, struct Error *e);

// Checks that a file can be written at this path. Its folder must exist; the path may be a file, or
// a device such as /dev/null, and nothing else. Errors: -EINVAL, -errno.
int file_check_place(const char *path, const char *flag, struct Error *e);

// Checks that the file system of PATH, which need not exist yet, has so many bytes free. Passes if
// it does not report them. `before` opens the error line. Errors: -ENOSPC.
int file_check_room(const char *path, const char *before, uint64_t bytes, struct Error *e);

// Checks that nothing has this name yet; a `kind` ("a folder") will be made there. `before` opens
// the error line. Errors: -EEXIST.
int file_check_new(const char *path, const char *before, const char *kind, struct Error *e);

// Renames a file or folder to a name that must be free. Errors: -EEXIST, -errno.
int file_rename_new(const char *from, const char *to, const char *kind, struct Error *e);

// An unfinished export at PATH.writing, left by a dead run: a file, or with O_DIRECTORY in `flags`
// a folder. `matches` recognises its contents; `remove` deletes it, NULL: unlink().
struct Torso {
    int flags;
    bool (*matches)(int fd);
    void (*remove)(const char *path, int fd);
};

// Checks that the name is free, or is a torso, which is removed if `removes`. Only removing takes a
// lock, because all processes of a job check at the same time. Errors: -EEXIST.
int file_check_torso(const char *path, const struct Torso *t, bool removes, struct Error *e);

#endif
