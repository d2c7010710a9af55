// Reading and replacing whole files: see file.h for why nothing is changed in place.
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Reads until the end or until bytes_max + 1 bytes are there. Not by st_size: pipes and /proc have
// none.
static int read_all(int fd, size_t bytes_max, char **text, size_t *bytes) {
    size_t room = 4096, n = 0;
    char *p = base_alloc(room + 1);
    for (;;) {
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
            p = realloc(p, (room *= 2) + 1);
            CHECK(p, "out of memory: %zu bytes", room);
        }
    }
    p[n] = 0;
    *text = p;
    *bytes = n;
    return 0;
}

int file_read(const char *path, size_t bytes_max, char **text, size_t *bytes, struct Error *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(e, -errno, "cannot read %s: %s", path, strerror(errno));
    int code = read_all(fd, bytes_max, text, bytes);
    close(fd);
    if (code)
        return error_set(e, code, "cannot read %s: %s", path, strerror(-code));
    if (*bytes > bytes_max) {
        free(*text);
        return error_set(e, -EFBIG, "cannot read %s: it is larger than the %zu bytes allowed here",
                         path, bytes_max);
    }
    return 0;
}

int file_write(int fd, const char *path, const void *bytes, size_t n, struct Error *e) {
    const char *p = bytes;
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            int code = put < 0 ? -errno : -ENOSPC;
            return error_set(e, code, "cannot write %s: %s", path, strerror(-code));
        }
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

// A rename lasts only when the folder that holds the name is on the disk too.
static int sync_folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? base_format("%.*s", (int)(slash - path) + 1, path) : base_format(".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd < 0)
        return -errno;
    // Some file systems cannot sync a folder and say EINVAL: they have no weaker promise to keep.
    int code = fsync(fd) && errno != EINVAL ? -errno : 0;
    close(fd);
    return code;
}

static void aside_release(struct FileAside *a) {
    if (a->fd >= 0)
        close(a->fd);
    free(a->path);
    free(a->path_aside);
    *a = (struct FileAside){.fd = -1};
}

int file_aside_open(struct FileAside *a, const char *path, struct Error *e) {
    a->path = base_format("%s", path);
    a->path_aside = base_format("%s.tmp", path);
    a->fd = open(a->path_aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (a->fd >= 0)
        return 0;
    int code = error_set(e, -errno, "cannot write %s: %s", a->path_aside, strerror(errno));
    aside_release(a);
    return code;
}

void file_aside_abandon(struct FileAside *a) {
    unlink(a->path_aside);
    aside_release(a);
}

int file_aside_commit(struct FileAside *a, struct Error *e) {
    int code = fsync(a->fd) ? -errno : 0;
    if (close(a->fd) && !code)
        code = -errno; // network file systems report a full disk here
    a->fd = -1;
    if (!code && rename(a->path_aside, a->path))
        code = -errno;
    if (!code)
        code = sync_folder_of(a->path);
    if (code) {
        error_set(e, code, "cannot write %s: %s", a->path, strerror(-code));
        unlink(a->path_aside);
    }
    aside_release(a);
    return code;
}

int file_replace(const char *path, const void *bytes, size_t n, struct Error *e) {
    struct FileAside a;
    int code = file_aside_open(&a, path, e);
    if (code)
        return code;
    code = file_write(a.fd, path, bytes, n, e);
    if (code) {
        file_aside_abandon(&a);
        return code;
    }
    return file_aside_commit(&a, e);
}

int file_make_folder(const char *path, const char *flag, struct Error *e) {
    char *copy = base_format("%s", path);
    int code = 0;
    for (char *at = copy + 1; !code; at++) {
        char c = *at;
        if (c != '/' && c)
            continue;
        *at = 0;
        if (mkdir(copy, 0777) && errno != EEXIST)
            code = error_set(e, -errno, "%s: cannot make the folder %s: %s", flag, copy,
                             strerror(errno));
        *at = c;
        if (!c)
            break;
    }
    struct stat st;
    if (!code && (stat(copy, &st) || !S_ISDIR(st.st_mode)))
        code = error_set(e, -ENOTDIR, "%s: %s is not a folder", flag, path);
    free(copy);
    return code;
}

int file_check_folder(const char *path, const char *flag, struct Error *e) {
    char *copy = base_format("%s", *path ? path : ".");
    struct stat st;
    while (stat(copy, &st) && (errno == ENOENT || errno == ENOTDIR) &&
           strcmp(copy, ".") != 0) { // up to what is there
        char *slash = strrchr(copy, '/');
        if (slash == copy)
            slash++;
        if (slash)
            *slash = 0;
        else
            strcpy(copy, "."); // a name without a slash has at least the room
    }
    bool itself = strcmp(copy, path) == 0;
    const char *colon = itself ? "" : ": ", *above = itself ? "" : copy;
    int code = 0;
    if (stat(copy, &st))
        code = error_set(e, -errno, "%s %s%s%s: %s", flag, path, colon, above, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        code = error_set(e, -ENOTDIR, "%s %s%s%s is not a folder", flag, path, colon, above);
    else if (access(copy, W_OK | X_OK))
        code = error_set(e, -errno, "%s %s: cannot write %s%s: %s", flag, path,
                         itself ? "there" : "to ", above, strerror(errno));
    free(copy);
    return code;
}

int file_check_place(const char *path, const char *flag, struct Error *e) {
    struct stat st;
    bool there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode))
        return error_set(e, -EINVAL, "%s %s: it is %s there; a file is needed", flag, path,
                         S_ISDIR(st.st_mode)    ? "a folder"
                         : S_ISFIFO(st.st_mode) ? "a pipe"
                                                : "a disk or a socket");
    if (there)
        return access(path, W_OK) ? error_set(e, -errno, "%s %s: cannot write there: %s", flag,
                                              path, strerror(errno))
                                  : 0;
    char *folder = base_format("./%s", path);
    const char *start = *path == '/' ? folder + 2 : folder;
    *strrchr(folder, '/') = 0; // there is one: folder begins with "./"
    int code = 0;
    if (access(*start ? start : "/", W_OK | X_OK))
        code = error_set(e, -errno, "%s %s: cannot write there: %s", flag, path, strerror(errno));
    free(folder);
    return code;
}
