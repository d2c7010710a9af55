// Who trains into a folder, and on whose disk it is: --out is one path, and need not be one folder.
//
// Where all machines see the same --out, rank 0's process keeps it: takes its lock, makes and names
// the folders of checkpoints. Where a machine's --out lies on its own disk, one process there does
// the same for that disk, and the ranks there write their files to it. Nobody says which it is:
// every process looks into OUT/lock, which rank 0's has just taken, with a word of this job. It is
// the same folder where that word is found in it. Else a process takes the lock of its own, and
// those beside it find its number there.
//
// A job of one process has one disk. Called by zero/train/resume.c. Read next:
// zero/checkpoint/local.c.
#ifndef ZERO_PROCESS_LOCAL_DISK_H
#define ZERO_PROCESS_LOCAL_DISK_H
#include "zero/comm/world.h"

// ---- the lock: one run at a time ----
// Two runs in one --out, or one --backup-dir, would write over each other's checkpoints and logs.
// So rank 0's process holds a lock on the file `lock` in each of these folders while the run lasts;
// the file says which process of which host that is. The lock dies with the process, however it
// ends; the file that a killed run leaves is no lock. Whoever removes the file from under a run
// lets a second one in. Runs that only read need none.

struct RunLock {
    int fd;
    char *path;             // NULL: not held
    char *folder;           // what was locked, as the user named it
    int made;               // of it and those above it, how many were not there before
    char flag[16];          // that named it
    uint64_t device, inode; // the folder's
};

// Whether the folder of that name is still the one that was locked. Where the lock is not held
// there is nothing to ask. Errors: -ESTALE it was moved or removed: another run may have its name.
int run_lock_check(const struct RunLock *l, struct Error *e);

// Removes the file, and with it the lock; and the folder and those above it, as far as nothing came
// to be in them and they were not there before. Does nothing where the lock is not held, and
// touches no file or folder that has taken their names.
void run_lock_release(struct RunLock *l);

// ---- the disks ----

enum { HOST_BYTES = 64 };

// Of --out, or of --backup-dir. A zeroed one: rank 0's, for all.
struct LocalDisk {
    int *keeper;              // (size): of each rank, whose process keeps its disk. NULL: 0 for all
    char (*host)[HOST_BYTES]; // (size): each rank's machine
    int size;                 // of the job
};

static inline bool disk_is_local(const struct LocalDisk *d) {
    return d && d->keeper;
}

// Whether that rank makes, names and removes the folders on its disk.
static inline bool local_disk_is_writer(const struct LocalDisk *d, int rank) {
    return disk_is_local(d) ? d->keeper[rank] == rank : rank == 0;
}

// All processes call it: takes the lock on the folder that `flag` names, on each disk, and tells
// which disks there are. local_disk_close, and run_lock_release, are due in any case. Errors,
// agreed upon: -EBUSY another run has the lock, with who; -errno.
int local_disk_claim(struct LocalDisk *d, const struct World *w, struct RunLock *l,
                     const char *folder, const char *flag, struct Error *e);
void local_disk_close(struct LocalDisk *d);

// A word that nobody else has, of a job or of a save; not 0.
uint64_t local_disk_word(void);

#endif
