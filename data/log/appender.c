// Appending to a file on a disk that may be full for a while: see appender.h.
#include "data/log/appender.h"

#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int flush(struct Appender *a, struct Error *e) {
    if (!a->unsent_bytes)
        return 0;
    int err = file_append(a->fd, a->path, a->unsent, a->unsent_bytes, e);
    if (!err)
        a->unsent_bytes = 0;
    if (!err && a->waits)
        log_line(LOG_NORMAL, "%s has all that waited for it", a->path);
    a->waits = err != 0;
    return err;
}

void appender_put(struct Appender *a, const void *bytes, size_t n) {
    struct Error e;
    if (!a->path)
        return;
    bool said = a->waits;
    a->unsent = base_realloc(a->unsent, a->unsent_bytes + n, "lines of the log");
    memcpy(a->unsent + a->unsent_bytes, bytes, n);
    a->unsent_bytes += n;
    if (flush(a, &e) && !said)
        log_line(LOG_NORMAL, "%s; what is for it waits in memory, and training goes on", e.text);
}

// ---- a file that is watched ----

// The folder of the file, by the name that it has now, and whose it is. -1 with errno.
static int open_folder(const char *path, struct stat *st) {
    const char *slash = strrchr(path, '/');
    char *name = slash ? base_format("%.*s", (int)(slash - path) + 1, path) : base_format(".");
    int fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    free(name);
    if (fd < 0 || !fstat(fd, st))
        return fd;
    close(fd);
    return -1;
}

void appender_watch(struct Appender *a) {
    struct stat st;
    int folder = a->path ? open_folder(a->path, &st) : -1;
    if (folder < 0)
        return;
    a->watched = true;
    a->device = st.st_dev;
    a->inode = st.st_ino;
    close(folder);
}

// The folder that the file was opened in, or -1: another one has its name now.
static int open_own_folder(const struct Appender *a) {
    struct stat st;
    int folder = open_folder(a->path, &st);
    if (folder < 0 || (st.st_dev == a->device && st.st_ino == a->inode))
        return folder;
    close(folder);
    return -1;
}

static const char *name_in_folder(const struct Appender *a) {
    const char *slash = strrchr(a->path, '/');
    return slash ? slash + 1 : a->path;
}

enum Name { NAME_OURS, NAME_FREE, NAME_OTHERS };

// Whose the file's name is. What cannot be asked is believed to be well.
static enum Name whose_name(const struct Appender *a, int folder) {
    struct stat ours, named;
    if (fstat(a->fd, &ours))
        return NAME_OURS;
    if (folder < 0) // moved with its folder, or removed with it
        return ours.st_nlink ? NAME_OURS : NAME_FREE;
    if (fstatat(folder, name_in_folder(a), &named, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? NAME_FREE : NAME_OURS;
    bool same = named.st_dev == ours.st_dev && named.st_ino == ours.st_ino;
    return same ? NAME_OURS : NAME_OTHERS;
}

// In the folder that the file was in, and there through no link and over no file.
static int begin_anew(struct Appender *a, int folder) {
    int fd = folder < 0
                 ? -1
                 : openat(folder, name_in_folder(a),
                          O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return folder < 0 ? -ENOENT : -errno;
    close(a->fd);
    a->fd = fd;
    return 0;
}

// Errors: that the name of a file that began anew is not on the disk.
static int look_at_name(struct Appender *a, struct Error *e) {
    int folder = open_own_folder(a);
    enum Name name = whose_name(a, folder);
    int err = name == NAME_FREE ? begin_anew(a, folder) : 0;
    if (name != NAME_OURS && !a->taken) {
        if (name == NAME_OTHERS)
            log_line(LOG_NORMAL,
                     "%s is another file now, which is left alone: what this run logs is lost",
                     a->path);
        else
            log_line(LOG_NORMAL, "%s was removed or renamed while this run wrote it: it %s%s",
                     a->path, err ? "cannot begin anew: " : "begins anew",
                     err ? strerror(-err) : "");
    }
    a->taken |= name != NAME_OURS;
    if (folder >= 0)
        close(folder);
    return name == NAME_FREE && !err ? file_sync_name(a->path, e) : 0;
}

// ---- to the disk ----

static int force(struct Appender *a, struct Error *e) {
    int err = flush(a, e);
    if (err || !fsync(a->fd))
        return err;
    return error_set(e, -errno, E_FILE_WRITE, "cannot write %s: %s", a->path, strerror(errno));
}

int appender_sync(struct Appender *a, struct Error *e) {
    if (!a->path)
        return 0;
    int err = a->watched ? look_at_name(a, e) : 0;
    return err ? err : force(a, e);
}

int appender_close(struct Appender *a, struct Error *e) {
    if (!a->path)
        return 0;
    int err = force(a, e), folder = a->watched ? open_own_folder(a) : -1;
    if (a->watched)
        a->taken |= whose_name(a, folder) != NAME_OURS;
    if (folder >= 0)
        close(folder);
    if (close(a->fd) && !err)
        err = error_set(e, -errno, E_FILE_WRITE, "cannot write %s: %s", a->path, strerror(errno));
    if (a->taken && !err)
        err = error_set(e, -ESTALE, E_LOG_REPLACED,
                        "%s lacks lines: it was removed, renamed or replaced while this run wrote "
                        "it",
                        a->path);
    free(a->path);
    free(a->unsent);
    *a = (struct Appender){.fd = -1};
    return err;
}
