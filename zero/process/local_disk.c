// The lock on --out, and whose disk is whose: see local_disk.h.
#include "zero/process/local_disk.h"

#include "kernels/folder.h"
#include "zero/comm/mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---- the lock ----

enum { WHO_BYTES = 320, TRIES = 100 };

// The lock file's line in a job of several processes: the job's word, and the rank that locks.
struct LockJob {
    uint64_t word; // of this job alone; 0: it has one process
    int rank;
};

// A folder, and the flag that names it.
struct FlagFolder {
    const char *flag, *folder;
};

// "process 1234 on host name"
static void describe_holder(char who[WHO_BYTES]) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    snprintf(who, WHO_BYTES, "process %ld on %s", (long)getpid(), *host ? host : "this host");
}

static int refuse_busy_folder(int fd, struct FlagFolder at, struct Error *e) {
    char who[WHO_BYTES] = "";
    ssize_t n = pread(fd, who, sizeof who - 1, 0);
    who[n > 0 ? strcspn(who, "\n") : 0] = 0;
    return error_set(
        e, -EBUSY, E_FOLDER_BUSY,
        "%s %s: %s trains into this folder; choose another %s, or wait until that run has ended",
        at.flag, at.folder, *who ? who : "another run", at.flag);
}

// True if the open lock file still has that name: its last owner may have removed it after we
// opened it.
static bool still_has_name(int fd, const char *path) {
    struct stat mine, named;
    return fstat(fd, &mine) == 0 && lstat(path, &named) == 0 && mine.st_ino == named.st_ino &&
           mine.st_dev == named.st_dev;
}

// Opens the lock file; does not follow a link, nor wait for a pipe.
static int open_lock_file(const char *path, struct FlagFolder at, struct Error *e) {
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    bool opened = fd >= 0;
    if (opened && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    int code = opened ? -EINVAL : -errno;
    if (opened)
        close(fd);
    return error_set(e, code, E_LOCK_FILE, "%s %s: %s cannot be locked: %s%s", at.flag, at.folder,
                     path, opened ? "it is not a regular file" : strerror(-code),
                     opened || code == -ELOOP ? "; move it away" : "; choose another folder");
}

// Returns a descriptor with the lock, -EAGAIN to try once more, or another error.
static int try_lock(const char *path, struct FlagFolder at, struct Error *e) {
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open_lock_file(path, at, e), err = 0;
    if (fd < 0)
        return fd;
    int refused = fcntl(fd, F_OFD_SETLK, &all) ? errno : 0;
    if (refused == EAGAIN || refused == EACCES)
        err = refuse_busy_folder(fd, at, e);
    else if (refused)
        log_line(LOG_NORMAL,
                 "%s %s: cannot lock the folder: %s; the run goes on: start no other one in it",
                 at.flag, at.folder, strerror(refused));
    if (!err && !still_has_name(fd, path))
        err = -EAGAIN;
    if (err)
        close(fd);
    return err ? err : fd;
}

// Writes into the file which process has the lock, and for which job, to disk before another
// machine looks. Errors do not matter: it is the lock that counts.
static void write_holder(int fd, struct LockJob job) {
    char who[WHO_BYTES], text[WHO_BYTES + 64];
    describe_holder(who);
    int n = snprintf(text, sizeof text, "%s\n", who);
    if (job.word)
        n += snprintf(text + n, sizeof text - (size_t)n, "job %016llx rank %d\n",
                      (unsigned long long)job.word, job.rank);
    (void)(ftruncate(fd, 0) + (int)pwrite(fd, text, (size_t)n, 0));
    if (job.word)
        (void)(fsync(fd) + 1);
}

// Returns the rank that holds the lock on the folder for the job with that word; -1: none does.
static int find_holder(const char *folder, uint64_t word) {
    char text[WHO_BYTES + 64] = "", *path = base_format("%s/lock", folder);
    unsigned long long job = 0;
    int rank = -1, fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    free(path);
    if (fd < 0)
        return -1;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *line = strchr(text, '\n');
    bool found = line && sscanf(line + 1, "job %llx rank %d", &job, &rank) == 2;
    return found && job == word ? rank : -1;
}

// Makes the folder that `flag` names and its parents, and takes its lock. If the file system has no
// locks, the run goes on without one, and logs that. Errors: -EBUSY if another run has it, with
// who; -errno.
static int take_lock(struct RunLock *l, const char *folder, const char *flag, struct LockJob job,
                     struct Error *e) {
    struct FlagFolder at = {flag, folder};
    int made, err = folder_make(folder, flag, 0777, &made, e);
    if (err)
        return err;
    char *path = base_format("%s/lock", folder);
    int fd = -EAGAIN;
    for (int i = 0; i < TRIES && fd == -EAGAIN; i++)
        fd = try_lock(path, at, e);
    if (fd == -EAGAIN)
        fd = error_set(e, -EBUSY, E_FOLDER_BUSY,
                       "%s %s: other runs keep locking and unlocking this folder; try again, or "
                       "choose another folder",
                       flag, folder);
    if (fd < 0) {
        free(path);
        return fd;
    }
    write_holder(fd, job);
    *l =
        (struct RunLock){.fd = fd, .path = path, .folder = base_format("%s", folder), .made = made};
    snprintf(l->flag, sizeof l->flag, "%s", flag);
    struct stat st;
    if (stat(folder, &st) == 0) {
        l->device = st.st_dev;
        l->inode = st.st_ino;
    }
    return 0;
}

int run_lock_check(const struct RunLock *l, struct Error *e) {
    struct stat st;
    if (!l->path || (!stat(l->folder, &st) && st.st_dev == l->device && st.st_ino == l->inode))
        return 0;
    return error_set(e, -ESTALE, E_FOLDER_REPLACED,
                     "%s %s is another folder now: the first one was moved or removed while this "
                     "run trained; put it back, because the run writes into no other folder",
                     l->flag, l->folder);
}

// Removes the empty folder and its parents, `made` in all at most. Shortens the text.
static void remove_made(char *folder, int made) {
    while (made-- > 0 && rmdir(folder) == 0) {
        size_t n = strlen(folder);
        while (n && folder[n - 1] == '/')
            n--;
        while (n && folder[n - 1] != '/')
            n--;
        folder[n] = 0;
    }
}

static void free_names(struct RunLock *l) {
    free(l->folder);
    free(l->path);
    *l = (struct RunLock){0};
}

// Drops a lock that another process has as well: touches no file.
static void drop_lock(struct RunLock *l) {
    if (!l->path)
        return;
    close(l->fd);
    free_names(l);
}

static void release_lock(struct RunLock *l) {
    if (!l->path)
        return;
    bool named = still_has_name(l->fd, l->path);
    if (named)
        unlink(l->path); // first, so that nobody takes the lock on a file that is about to go
    close(l->fd);
    if (named)
        remove_made(l->folder, l->made);
    free_names(l);
}

// ---- whose disk ----

uint64_t local_disk_word(void) {
    uint64_t word = 0;
    struct timespec now;
    if (getrandom(&word, sizeof word, 0) != (ssize_t)sizeof word) {
        clock_gettime(CLOCK_REALTIME, &now);
        word = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 44;
    }
    return word | 1;
}

// Locks in rank 0's process first, then in those that do not find its word.
static int take_locks(const struct World *w, struct RunLock *l, const char *folder,
                      const char *flag, uint64_t word, struct Error *e) {
    struct LockJob job = {w->launched ? word : 0, w->first};
    int err = w->first ? 0 : take_lock(l, folder, flag, job, e);
    err = world_agree(w, err, e);
    if (err || !w->first)
        return err;
    if (find_holder(folder, word) >= 0)
        return 0;
    err = take_lock(l, folder, flag, job, e);
    if (err != -EBUSY)
        return err;
    e->text[0] = 0; // the holder may be a process of this job: find_keeper looks again
    return 0;
}

// Sets *keeper to the rank whose process keeps this disk. If a disk has no locks, several processes
// have taken it.
static int find_keeper(const struct World *w, struct RunLock *l, const char *folder,
                       const char *flag, uint64_t word, int *keeper, struct Error *e) {
    struct LockJob job = {word, w->first};
    *keeper = w->launched ? find_holder(folder, word) : 0;
    if (*keeper < 0) { // another run has it, or has just ended
        *keeper = w->first;
        return take_lock(l, folder, flag, job, e);
    }
    if (*keeper != w->first)
        drop_lock(l);
    return 0;
}

static void share_hosts(struct LocalDisk *d, const struct World *w) {
    uint64_t mine[HOST_BYTES / 8] = {0};
    gethostname((char *)mine, HOST_BYTES - 1);
    d->host = base_alloc_zeroed((size_t)w->size * sizeof *d->host);
    mpi_share(mine, HOST_BYTES / 8, (uint64_t *)d->host, w->timeout_s);
}

static void forget_disks(struct LocalDisk *d) {
    free(d->keeper);
    free(d->host);
    *d = (struct LocalDisk){0};
}

// Fills in the keepers of all ranks; with one disk for all, leaves *d zeroed.
static void share_keepers(struct LocalDisk *d, const struct World *w, int keeper) {
    uint64_t *all = base_alloc_zeroed((size_t)w->size * sizeof *all);
    bool several_disks = false;
    world_share(w, (uint64_t)keeper, all);
    d->keeper = base_alloc_zeroed((size_t)w->size * sizeof *d->keeper);
    d->size = w->size;
    for (int r = 0; r < w->size; r++) {
        d->keeper[r] = (int)all[r];
        several_disks = several_disks || all[r];
    }
    free(all);
    if (several_disks)
        share_hosts(d, w);
    else
        forget_disks(d);
}

int local_disk_lock(struct LocalDisk *d, const struct World *w, struct RunLock *l,
                    const char *folder, const char *flag, struct Error *e) {
    uint64_t word = world_broadcast(w, local_disk_word());
    int keeper = 0, err = world_agree(w, take_locks(w, l, folder, flag, word, e), e);
    if (!err)
        err = world_agree(w, find_keeper(w, l, folder, flag, word, &keeper, e), e);
    if (!err && w->launched)
        share_keepers(d, w, keeper);
    return err;
}

void local_disk_unlock(struct LocalDisk *d, struct RunLock *l) {
    forget_disks(d);
    release_lock(l);
}
