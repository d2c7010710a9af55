// Reads and replaces whole files: see file.h.
#include "data/file.h"

#include "kernels/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

const char *file_kind(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "a regular file";
    case S_IFDIR:
        return "a folder";
    case S_IFIFO:
        return "a pipe";
    case S_IFSOCK:
        return "a socket";
    case S_IFBLK:
        return "a block device";
    default:
        return "a character device";
    }
}

bool file_ends_in(const char *path, size_t n, const char *ending) {
    size_t m = strlen(ending);
    return n > m && path[n - m - 1] != '/' && !memcmp(path + n - m, ending, m);
}

size_t file_mark_bytes(const char *text, size_t n) {
    return n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
}

// ---- reading ------------------------------------------------------------------------------------

static int refuse(const char *flag, const char *path, mode_t mode, struct Error *e) {
    if (S_ISDIR(mode))
        return error_set(e, -EISDIR, E_FILE_KIND, "%s %s: it is a folder; a regular file is needed",
                         flag, path);
    return error_set(e, -EINVAL, E_FILE_KIND, "%s %s: it is %s; a regular file is needed", flag,
                     path, file_kind(mode));
}

int file_open(const char *path, const char *flag, int *fd, struct stat *st, struct Error *e) {
    *fd = -1;
    // Opening a device may have effects, and opening a pipe would wait for a writer, so the kind is
    // checked first; and again after open, when it can no longer change.
    if (!stat(path, st) && !S_ISREG(st->st_mode))
        return refuse(flag, path, st->st_mode, e);
    int opened = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (opened < 0 || fstat(opened, st)) {
        int code = error_io(e, -errno, E_FILE_READ, "%s %s", flag, path);
        if (opened >= 0)
            close(opened);
        return code;
    }
    if (!S_ISREG(st->st_mode)) {
        close(opened);
        return refuse(flag, path, st->st_mode, e);
    }
    *fd = opened;
    return 0;
}

ssize_t file_pread(int fd, void *bytes, size_t n, uint64_t from) {
    size_t have = 0;
    while (have < n) {
        ssize_t got = pread(fd, (char *)bytes + have, n - have, (off_t)(from + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

// Reads to the end, or past bytes_max bytes. It does not use st_size, which pipes and /proc lack.
static int read_all(int fd, size_t bytes_max, char **text, size_t *bytes) {
    size_t room = 4096, n = 0;
    char *p = malloc(room + 1);
    while (p) {
        ssize_t got = read(fd, p + n, room - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int code = -errno;
            free(p);
            return code;
        }
        n += (size_t)got;
        if (got == 0 || n > bytes_max)
            break;
        if (n == room) {
            char *larger = realloc(p, (room *= 2) + 1);
            if (!larger)
                free(p);
            p = larger;
        }
    }
    if (!p)
        return -ENOMEM;
    p[n] = 0;
    *text = p;
    *bytes = n;
    return 0;
}

// Reads an open file and closes it. *text is NULL before, and after an error.
static int read_open(int fd, const char *path, size_t bytes_max, char **text, size_t *bytes,
                     struct Error *e) {
    int code = read_all(fd, bytes_max, text, bytes);
    close(fd);
    if (!code && *bytes <= bytes_max)
        return 0;
    free(*text);
    *text = NULL;
    if (code)
        return error_io(e, code, code == -ENOMEM ? E_MEMORY_REFUSED : E_FILE_READ, "cannot read %s",
                        path);
    return error_set(e, -EFBIG, E_FILE_TOO_LARGE,
                     "cannot read %s: it is larger than %zu bytes, the most that is read of such a "
                     "file; check that it is the right file",
                     path, bytes_max);
}

int file_read(const char *path, size_t bytes_max, char **text, size_t *bytes, struct Error *e) {
    struct stat st;
    *text = NULL;
    int fd, code = file_open(path, "cannot read", &fd, &st, e);
    return code ? code : read_open(fd, path, bytes_max, text, bytes, e);
}

int file_read_pipe(const char *path, size_t bytes_max, char **text, size_t *bytes,
                   struct Error *e) {
    struct stat st;
    int fd;
    *text = NULL;
    do
        fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0 || fstat(fd, &st))
        st.st_mode = 0;
    if (fd < 0)
        return error_io(e, -errno, E_FILE_READ, "cannot read %s", path);
    if (!S_ISFIFO(st.st_mode)) {
        close(fd);
        return error_set(e, -EINVAL, E_FILE_CHANGED,
                         "cannot read %s: it is not a pipe any more; start again", path);
    }
    return read_open(fd, path, bytes_max, text, bytes, e);
}

// ---- writing ------------------------------------------------------------------------------------

int file_write(int fd, const char *path, const void *bytes, size_t n, struct Error *e) {
    int err = base_write(fd, bytes, n, -1);
    return err ? error_io(e, err, E_FILE_WRITE, "cannot write %s", path) : 0;
}

int file_append(int fd, const char *path, const void *bytes, size_t n, struct Error *e) {
    struct stat before;
    if (fstat(fd, &before))
        return error_io(e, -errno, E_FILE_WRITE, "cannot write %s", path);
    int code = file_write(fd, path, bytes, n, e);
    if (code && ftruncate(fd, before.st_size))
        log_line(LOG_NORMAL, "%s may end in half a line: %s", path, strerror(errno));
    return code;
}

int file_check_room(const char *path, const char *before, uint64_t bytes, struct Error *e) {
    struct statvfs fs;
    char *folder = folder_of(path);
    int err = statvfs(folder, &fs);
    free(folder);
    uint64_t room = err ? UINT64_MAX : (uint64_t)fs.f_bavail * fs.f_frsize;
    if (bytes <= room)
        return 0;
    return error_set(e, -ENOSPC, E_DISK_FULL,
                     "%s%s: its disk has %.3f MB free, but %.3f MB are needed; free some space",
                     before, path, (double)room * 1e-6, (double)bytes * 1e-6);
}

// ---- new names ----------------------------------------------------------------------------------

int file_check_new(const char *path, const char *before, const char *kind, struct Error *e) {
    struct stat st;
    if (lstat(path, &st))
        return errno == ENOENT ? 0 : error_io(e, -errno, E_FILE_WRITE, "%s%s", before, path);
    return error_set(e, -EEXIST, E_FILE_EXISTS, "%s%s exists; name %s that does not", before, path,
                     kind);
}

int file_rename_new(const char *from, const char *to, const char *kind, struct Error *e) {
    if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE))
        return 0;
    int err = -errno;
    if (err == -EINVAL || err == -ENOSYS) { // the file system has no RENAME_NOREPLACE
        int code = file_check_new(to, "", kind, e);
        if (code)
            return code;
        err = rename(from, to) ? -errno : 0;
    }
    return err ? error_io(e, err, E_FILE_WRITE, "cannot rename %s to %s", from, to) : 0;
}

int file_check_torso(const char *path, const struct Torso *t, bool removes, struct Error *e) {
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | t->flags), err = 0;
    // Only a held lock tells of a run: file_take also fails for other owners, or without locks.
    errno = 0;
    bool taken = fd >= 0 && (!removes || file_take(fd)), busy = !taken && errno == EWOULDBLOCK;
    bool is_torso = taken && t->matches(fd);
    struct stat st;
    if (is_torso && removes && t->remove)
        t->remove(path, fd);
    else if (is_torso && removes)
        unlink(path);
    if (busy)
        err = error_set(e, -EEXIST, E_EXPORT_BUSY,
                        "%s: another run writes it; wait for it, or export to another path", path);
    else if ((removes || !is_torso) && !lstat(path, &st))
        err = error_set(e, -EEXIST, E_FILE_EXISTS,
                        "%s exists, where an export is written first, and %s; move it away, or "
                        "export to another path",
                        path,
                        is_torso ? "cannot be removed"
                                 : "is not known as an unfinished export of this user");
    if (fd >= 0)
        close(fd);
    return err;
}

// ---- folders ------------------------------------------------------------------------------------

int file_check_folder(const char *path, const char *flag, struct Error *e) {
    char *copy = base_format("%s", *path ? path : ".");
    struct stat st;
    while (stat(copy, &st) && (errno == ENOENT || errno == ENOTDIR) &&
           strcmp(copy, ".") != 0) { // up to a path that exists
        char *slash = strrchr(copy, '/');
        if (slash == copy)
            slash++;
        if (slash)
            *slash = 0;
        else
            strcpy(copy, "."); // it fits: a name has at least one byte
    }
    bool itself = strcmp(copy, path) == 0;
    const char *colon = itself ? "" : ": ", *above = itself ? "" : copy;
    int code = 0;
    if (stat(copy, &st))
        code = error_io(e, -errno, E_FILE_WRITE, "%s %s%s%s", flag, path, colon, above);
    else if (!S_ISDIR(st.st_mode))
        code = error_set(e, -ENOTDIR, E_NOT_A_FOLDER,
                         "%s %s%s%s is not a folder; give another path", flag, path, colon, above);
    else if (access(copy, W_OK | X_OK))
        code = error_io(e, -errno, E_FILE_WRITE, "%s %s: cannot write %s%s", flag, path,
                        itself ? "there" : "to ", above);
    free(copy);
    return code;
}

int file_check_place(const char *path, const char *flag, struct Error *e) {
    struct stat st;
    bool there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode))
        return error_set(e, -EINVAL, E_FILE_KIND, "%s %s: it is %s there; a file is needed", flag,
                         path,
                         S_ISDIR(st.st_mode)    ? "a folder"
                         : S_ISFIFO(st.st_mode) ? "a pipe"
                                                : "a disk or a socket");
    if (there)
        return access(path, W_OK)
                   ? error_io(e, -errno, E_FILE_WRITE, "%s %s: cannot write there", flag, path)
                   : 0;
    char *folder = folder_of(path);
    int code = 0;
    if (access(folder, W_OK | X_OK))
        code = error_io(e, -errno, E_FILE_WRITE, "%s %s: cannot write there", flag, path);
    free(folder);
    return code;
}
