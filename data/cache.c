// The cache folder: see cache.h for whom it belongs to and what is removed from it.
#include "data/cache.h"

#include "data/file.h"
#include "kernels/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { HASH_DIGITS = 16 };

// ---- whose it is --------------------------------------------------------------------------------

static char *folder_without_home(void) {
    return base_format("/tmp/zero.c-%u", (unsigned)getuid());
}

char *cache_default_folder(void) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        return base_format("%s/zero.c", cache);
    if (home && *home)
        return base_format("%s/.cache/zero.c", home);
    return folder_without_home();
}

static int refuse(const char *path, const char *why, struct Error *e) {
    return error_set(e, -EPERM, E_CACHE_UNSAFE,
                     "--cache %s: %s: name a folder of your own with --cache DIR", path, why);
}

// The default folder is made for its user alone; one that an earlier version has made may be open
// to a group.
static int check_mode(const char *path, mode_t mode, struct Error *e) {
    if (mode & S_IWOTH)
        return refuse(path, "everybody can write to it", e);
    if (!(mode & S_IWGRP))
        return 0;
    if (chmod(path, mode & S_IRWXU))
        return refuse(path, "its group can write to it", e);
    log_line(LOG_NORMAL, "--cache %s: its group could write to it; its mode is 0700 now", path);
    return 0;
}

int cache_check(const char *path, struct Error *e) {
    struct stat st;
    char *usual = cache_default_folder(), *in_tmp = folder_without_home(), why[96];
    bool is_usual = !strcmp(path, usual), is_in_tmp = !strcmp(path, in_tmp);
    free(usual);
    free(in_tmp);
    if (is_in_tmp ? lstat(path, &st) : stat(path, &st)) {
        int code = errno == ENOENT ? 0 : -errno;
        return code ? error_io(e, code, E_CACHE_FOLDER, "--cache %s: cannot use this folder", path)
                    : 0;
    }
    if (S_ISLNK(st.st_mode))
        return refuse(path, "it is a symbolic link, which anybody could have made", e);
    if (!S_ISDIR(st.st_mode))
        return error_set(e, -ENOTDIR, E_CACHE_FOLDER,
                         "--cache %s: it is not a folder; choose another --cache", path);
    if (st.st_uid != geteuid()) {
        snprintf(why, sizeof why, "it belongs to user %u, and this is user %u", (unsigned)st.st_uid,
                 (unsigned)geteuid());
        return refuse(path, why, e);
    }
    return is_usual || is_in_tmp ? check_mode(path, st.st_mode & 07777, e) : 0;
}

int cache_make_folder(const char *path, struct Error *e) {
    int code = cache_check(path, e); // before anything is made in it
    if (!code)
        code = folder_make(path, "--cache", 0700, NULL, e);
    return code ? code : cache_check(path, e);
}

int cache_make_inside(const char *cache_dir, const char *name, char **path, struct Error *e) {
    struct stat st;
    *path = base_format("%s/%s", cache_dir, name);
    int code = cache_make_folder(cache_dir, e);
    if (!code && !lstat(*path, &st) && S_ISLNK(st.st_mode))
        code = error_set(e, -EPERM, E_CACHE_UNSAFE,
                         "--cache %s: %s is a symbolic link there: remove it, or name another "
                         "folder with --cache DIR",
                         cache_dir, name);
    return code ? code : cache_make_folder(*path, e);
}

// ---- removing -----------------------------------------------------------------------------------

// True if this is one of the names, or a temporary file that was to replace one.
static bool is_own_name(const char *name, const char *const own[]) {
    for (size_t i = 0; own[i]; i++) {
        size_t n = strlen(own[i]);
        if (!strcmp(name, own[i]) || atomic_file_is_tmp(name, own[i]) ||
            (!strncmp(name, own[i], n) && !strcmp(name + n, ".tmp"))) // as it once was called
            return true;
    }
    return false;
}

// The only names that a folder to remove may have in it, and the bytes of its files.
struct Owned {
    const char *const *names; // NULL behind the last
    double bytes;
};

// Adds the bytes of a file if it has one of the names; false: it has not, or is no regular file.
static bool add_owned(int folder, const char *name, void *owned) {
    struct Owned *o = owned;
    uint64_t bytes;
    if (!is_own_name(name, o->names) || !folder_has_file(folder, name, &bytes))
        return false;
    o->bytes += (double)bytes;
    return true;
}

static bool remove_owned(int folder, const char *name, void *owned) {
    return add_owned(folder, name, owned) && !unlinkat(folder, name, 0);
}

// Removes the folder NAME of `parent`, open as fd, unless something else than files of the names in
// `own` is in it. *bytes: those of the files that were removed.
static bool remove_folder(int parent, const char *name, int fd, const char *const own[],
                          double *bytes) {
    struct Owned found = {.names = own}, removed = found;
    bool gone = folder_for_all(fd, add_owned, &found) && folder_for_all(fd, remove_owned, &removed);
    *bytes = removed.bytes;
    return gone && !unlinkat(parent, name, AT_REMOVEDIR);
}

static int open_folder(int parent, const char *name) {
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// True if the name is PREFIX-0123456789abcdef.XXXXXX, of a folder that is being made.
static bool is_unfinished_folder(const char *name, const char *prefix) {
    size_t n = strlen(prefix);
    return !strncmp(name, prefix, n) && name[n] == '-' &&
           strspn(name + n + 1, "0123456789abcdefABCDEF") == HASH_DIGITS &&
           atomic_is_tmp_end(name + n + 1 + HASH_DIGITS, true);
}

void cache_sweep(const char *cache_dir, const char *prefix, const char *const own[]) {
    DIR *cache = opendir(cache_dir);
    if (!cache)
        return;
    for (struct dirent *entry; (entry = readdir(cache));) {
        double bytes;
        int fd = is_unfinished_folder(entry->d_name, prefix)
                     ? open_folder(dirfd(cache), entry->d_name)
                     : -1;
        if (fd < 0)
            continue;
        if (file_take(fd) && remove_folder(dirfd(cache), entry->d_name, fd, own, &bytes))
            log_line(LOG_NORMAL, "--cache: removed %s/%s (%.1f MB), which a run that died has left",
                     cache_dir, entry->d_name, bytes * 1e-6);
        close(fd);
    }
    closedir(cache);
}

// ---- one maker at a time ------------------------------------------------------------------------

// True if the open file still has this path: while a run waited, another may have removed it.
static bool is_named(int fd, const char *path) {
    struct stat mine, named;
    return !fstat(fd, &mine) && !lstat(path, &named) && mine.st_ino == named.st_ino &&
           mine.st_dev == named.st_dev;
}

// Locks the file, and waits for another run that holds it, which it logs unless *told is true.
// False: the disk has no locks.
static bool lock_file(int fd, const char *cache_dir, bool *told) {
    if (!flock(fd, LOCK_EX | LOCK_NB))
        return true;
    if (errno != EWOULDBLOCK)
        return false;
    if (!*told)
        log_line(LOG_NORMAL,
                 "--cache %s: another run prepares data there; waiting; to prepare them beside it, "
                 "name another folder with --cache DIR",
                 cache_dir);
    *told = true;
    while (flock(fd, LOCK_EX))
        if (errno != EINTR)
            return false;
    return true;
}

int cache_lock(const char *cache_dir, int *fd, struct Error *e) {
    char *path = base_format("%s/lock", cache_dir);
    bool told = false, has_locks = true;
    int code = 0;
    for (*fd = -1; *fd < 0 && has_locks && !code;) {
        *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
        if (*fd < 0) {
            code = error_io(e, -errno, E_CACHE_FOLDER, "--cache: cannot write %s", path);
            break;
        }
        has_locks = lock_file(*fd, cache_dir, &told);
        if (!has_locks)
            unlink(path);
        if (!has_locks || !is_named(*fd, path)) {
            close(*fd);
            *fd = -1;
        }
    }
    free(path);
    return code;
}

void cache_unlock(const char *cache_dir, int fd) {
    if (fd < 0)
        return;
    char *path = base_format("%s/lock", cache_dir);
    unlink(path);
    close(fd);
    free(path);
}

// ---- making -------------------------------------------------------------------------------------

int cache_aside_open(struct AtomicFile *a, const char *folder, struct Error *e) {
    int err = atomic_folder_open(a, folder);
    return err ? error_io(e, err, E_CACHE_FOLDER, "--cache: cannot make the folder %s.XXXXXX",
                          folder)
               : 0;
}

void cache_aside_close(struct AtomicFile *a, const char *const own[]) {
    double bytes;
    int fd = open_folder(AT_FDCWD, a->tmp_path); // after a commit, what was there before or nothing
    if (fd >= 0) {
        remove_folder(AT_FDCWD, a->tmp_path, fd, own, &bytes);
        close(fd);
    }
    atomic_folder_close(a);
}

int cache_aside_commit(struct AtomicFile *a, const char *folder, struct Error *e) {
    int err = folder_exchange(a->tmp_path, folder);
    return err < 0 ? error_io(e, err, E_CACHE_FOLDER, "--cache: cannot rename %s to %s",
                              a->tmp_path, folder)
                   : 0;
}
