// Who trains into a folder: one run at a time.
//
// Two runs in one --out, or one --backup-dir, would write over each other's checkpoints and logs. So
// rank 0's process holds a lock on the file `lock` in each of these folders while the run lasts;
// the file says which process of which host that is.
// The lock dies with the process, however it ends; the file that a killed run leaves is no lock.
// Whoever removes the file from under a run lets a second one in.
//
// Taken by local_disk_claim (local_disk.h). Runs that only read need none.
#ifndef ZERO_PROCESS_LOCK_H
#define ZERO_PROCESS_LOCK_H
#include "kernels/base.h"

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

#endif
