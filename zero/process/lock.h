// Who trains into a folder: one run at a time.
//
// Two runs in one --out, or one --backup-dir, would write over each other's checkpoints and logs. So
// rank 0's process holds a lock on the file `lock` in each of these folders while the run lasts;
// the file says which process of which host that is.
// The lock dies with the process, however it ends; the file that a killed run leaves is no lock.
// Whoever removes the file from under a run lets a second one in.
//
// Taken by zero/train/resume.c before it looks at what they hold. Runs that only read need none.
#ifndef ZERO_PROCESS_LOCK_H
#define ZERO_PROCESS_LOCK_H
#include "kernels/base.h"

// A job of several processes writes into the file which of them holds the lock (local_disk.h).
struct LockJob {
    uint64_t word; // of this job alone; 0: it has one process
    int rank;
};

struct RunLock {
    int fd;
    char *path;             // NULL: not held
    char *folder;           // what was locked, as the user named it
    int made;               // of it and those above it, how many were not there before
    char flag[16];          // that named it
    uint64_t device, inode; // the folder's
};

// Makes the folder that `flag` names and those above it, and takes the lock on it. Where the file
// system knows no locks, the run goes on without one, and says so. Errors: -EBUSY another run has
// it, with who; -errno.
int run_lock_take(struct RunLock *l, const char *folder, const char *flag, struct LockJob job,
                  struct Error *e);

// The rank of the job with that word which holds the lock on the folder; -1: none does.
int run_lock_holder(const char *folder, uint64_t word);

// What was locked is another process's: touches nothing. Nothing where the lock is not held.
void run_lock_forget(struct RunLock *l);

// Whether the folder of that name is still the one that was locked. Where the lock is not held
// there is nothing to ask. Errors: -ESTALE it was moved or removed: another run may have its name.
int run_lock_check(const struct RunLock *l, struct Error *e);

// Removes the file, and with it the lock; and the folder and those above it, as far as nothing came
// to be in them and they were not there before. Does nothing where the lock is not held, and
// touches no file or folder that has taken their names.
void run_lock_release(struct RunLock *l);

#endif
