// Files and folders that appear complete or not at all: see atomic_file.h.
#include "kernels/atomic_file.h"

#include "kernels/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char TMP_END[] = ".tmp";
enum { LETTERS = 6, TRIES = 100 };

// ---- the lock of a temporary file ----

bool file_hold(int fd) {
    struct stat st;
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return false;
    return !fstat(fd, &st) && st.st_nlink > 0;
}

bool file_take(int fd) {
    struct stat st;
    return !fstat(fd, &st) && st.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB);
}

// ---- the steps ----

int file_close_synced(int fd) {
    int err = fsync(fd) ? -errno : 0;
    return close(fd) && !err ? -errno : err;
}

int file_rename_synced(int *fd, const char *tmp_path, const char *path) {
    // The lock must last until the file has its name, and stays with this second descriptor.
    int held = fcntl(*fd, F_DUPFD_CLOEXEC, 0);
    int err = file_close_synced(*fd);
    *fd = held;
    return !err && rename(tmp_path, path) ? -errno : err;
}

int file_put(int folder, const char *name, const void *bytes, size_t n) {
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    int err = base_write(fd, bytes, n, -1), late = file_close_synced(fd);
    return err ? err : late;
}

// Exchanges two folders in steps: the old one moves away first. Returns 1 or -errno.
static int exchange_in_turn(const char *tmp_path, const char *path) {
    char *old = base_format("%s.XXXXXX", path);
    int err = mkdtemp(old) && !rename(path, old) ? 0 : -errno;
    if (err) {
        rmdir(old);
    } else if (rename(tmp_path, path)) {
        err = -errno;
        rename(old, path);
    } else {
        rename(old, tmp_path); // if this fails, it stays at path.XXXXXX
    }
    free(old);
    return err ? err : 1;
}

int folder_exchange(const char *tmp_path, const char *path) {
    if (!renameat2(AT_FDCWD, tmp_path, AT_FDCWD, path, RENAME_EXCHANGE))
        return 1;
    struct stat st;
    bool there = !lstat(path, &st);
    if (there && (errno == EINVAL || errno == ENOSYS)) // a file system that cannot exchange
        return exchange_in_turn(tmp_path, path);
    return there || rename(tmp_path, path) ? -errno : 0;
}

int file_sync_name(const char *path, struct Error *e) {
    char *folder = folder_of(path);
    int err = folder_sync(folder, e);
    free(folder);
    return err;
}

// ---- temporary names ----

static char *tmp_name(const char *path, const char *end) {
    char letters[LETTERS + 1] = "";
    uint64_t bits;
    if (getentropy(&bits, sizeof bits))
        bits = (uint64_t)(base_seconds() * 1e9) ^ (uint64_t)getpid() << 40;
    for (int i = 0; i < LETTERS; i++, bits /= 36)
        letters[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[bits % 36];
    return base_format("%s.%s%s", path, letters, end);
}

bool atomic_is_tmp_end(const char *end, bool folder) {
    static const char LETTER[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return *end == '.' && strspn(end + 1, LETTER) == LETTERS &&
           !strcmp(end + 1 + LETTERS, folder ? "" : TMP_END);
}

bool atomic_file_is_tmp(const char *name, const char *base) {
    size_t n = strlen(base);
    return !strncmp(name, base, n) && atomic_is_tmp_end(name + n, false);
}

static void remove_dead(int folder, const char *name) {
    struct stat st;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && file_take(fd))
        unlinkat(folder, name, 0);
    close(fd);
}

// Removes the temporary files for `path` that runs left when they died.
static void sweep(const char *path) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    char *above = folder_of(path);
    DIR *folder = opendir(above);
    int err;
    free(above);
    if (!folder)
        return;
    for (const char *name; (name = folder_next(folder, &err));)
        if (atomic_file_is_tmp(name, base))
            remove_dead(dirfd(folder), name);
    closedir(folder);
}

static int create_file(const char *path) {
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

static int create_folder(const char *path) {
    if (mkdir(path, 0700))
        return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), why = errno;
    if (fd < 0)
        rmdir(path);
    errno = why == ENOENT ? EEXIST : why; // another run removed it: try another name
    return fd;
}

// Creates a file or folder under an unused temporary name, and locks it.
static int make_temporary(struct AtomicFile *a, const char *path, const char *end,
                          int (*create)(const char *)) {
    int err = -EEXIST;
    for (int i = 0; err == -EEXIST && i < TRIES; i++) {
        a->tmp_path = tmp_name(path, end);
        a->fd = create(a->tmp_path);
        err = a->fd < 0 ? -errno : file_hold(a->fd) ? 0 : -EEXIST; // a sweep came before the lock
        if (!err)
            return 0;
        atomic_folder_close(a);
    }
    return err;
}

int atomic_folder_open(struct AtomicFile *a, const char *path) {
    *a = (struct AtomicFile){.fd = -1};
    return make_temporary(a, path, "", create_folder);
}

void atomic_folder_close(struct AtomicFile *a) {
    if (a->fd >= 0)
        close(a->fd);
    free(a->path);
    free(a->tmp_path);
    *a = (struct AtomicFile){.fd = -1};
}

static int refuse(const char *path, int err, struct Error *e) {
    return error_io(e, err, E_FILE_WRITE, "cannot write %s", path);
}

int atomic_file_open(struct AtomicFile *a, const char *path, struct Error *e) {
    *a = (struct AtomicFile){.fd = -1};
    sweep(path);
    int err = make_temporary(a, path, TMP_END, create_file);
    if (err)
        return refuse(path, err, e);
    a->path = base_format("%s", path);
    return 0;
}

void atomic_file_abandon(struct AtomicFile *a) {
    unlink(a->tmp_path);
    atomic_folder_close(a);
}

int atomic_file_commit(struct AtomicFile *a, struct Error *e) {
    int err = file_rename_synced(&a->fd, a->tmp_path, a->path);
    if (err) {
        refuse(a->path, err, e);
        atomic_file_abandon(a);
        return err;
    }
    err = file_sync_name(a->path, e); // the rename is durable once it is on the disk
    atomic_folder_close(a);
    return err;
}

int file_replace(const char *path, const void *bytes, size_t n, struct Error *e) {
    struct AtomicFile a;
    int err = atomic_file_open(&a, path, e);
    if (err)
        return err;
    err = base_write(a.fd, bytes, n, -1);
    if (!err)
        return atomic_file_commit(&a, e);
    atomic_file_abandon(&a);
    return refuse(path, err, e);
}
