// Locks --out against a second run, and finds whose disk it is on: one path may be many folders.
//
// If all machines see the same --out, rank 0's process keeps it: takes its lock, makes and names
// the folders of checkpoints. If a machine's --out is on its own disk, one process there does the
// same for that disk, and the ranks there write their files to it. No flag says which it is: rank
// 0's process locks OUT/lock and writes a word of this job into it, and every process reads that
// file. If it finds the word, it is the same folder. Else it takes the lock itself, and those
// beside it find its number there.
//
// A job of one process has one disk. Called by zero/train/resume.c. Read next:
// zero/checkpoint/local.c.
#ifndef ZERO_PROCESS_LOCAL_DISK_H
#define ZERO_PROCESS_LOCAL_DISK_H
#include "zero/comm/world.h"

// ---- the lock: one run at a time ----
// Two runs in one --out, or one --backup-dir, would overwrite each other's checkpoints and logs. So
// rank 0's process holds a lock on the file `lock` in each of these folders while the run lasts;
// the file says which process of which host that is. The lock ends with the process, however that
// ends; the file that a killed run leaves is no lock. Removing the file during a run lets a second
// run in. Runs that only read need no lock.

struct RunLock {
    int fd;
    char *path;             // NULL: not held
    char *folder;           // what was locked, as the user named it
    int made;               // how many of it and its parents this process made
    char flag[16];          // the flag that named it
    uint64_t device, inode; // the folder's
};

// Checks that the folder of that name is still the one that was locked; 0 if no lock is held.
// Errors: -ESTALE if it was moved or removed: another run may have its name.
int run_lock_check(const struct RunLock *l, struct Error *e);

// ---- the disks ----

enum { HOST_BYTES = 64 };

// The disks of --out, or of --backup-dir. Zeroed: one disk for all, which rank 0's process keeps.
struct LocalDisk {
    int *keeper;              // (size): the rank whose process keeps each rank's disk; NULL: rank 0
    char (*host)[HOST_BYTES]; // (size): each rank's machine
    int size;                 // of the job
};

static inline bool disk_is_local(const struct LocalDisk *d) {
    return d && d->keeper;
}

// True if that rank makes, names and removes the folders on its disk.
static inline bool local_disk_is_writer(const struct LocalDisk *d, int rank) {
    return disk_is_local(d) ? d->keeper[rank] == rank : rank == 0;
}

// All processes call it: takes the lock on the folder that `flag` names, on each disk, and finds
// which disks there are. Call local_disk_unlock in any case. Errors, agreed upon: -EBUSY if another
// run has the lock, with who; -errno.
int local_disk_lock(struct LocalDisk *d, const struct World *w, struct RunLock *l,
                    const char *folder, const char *flag, struct Error *e);

// Removes the file, and with it the lock; then the folder and its parents, if they are empty and
// were not there before. Removes nothing if no lock is held, and touches no file or folder that has
// taken their names.
void local_disk_unlock(struct LocalDisk *d, struct RunLock *l);

// Returns a random word that identifies a job or a save; not 0.
uint64_t local_disk_word(void);

#endif
