// Whose disk is whose: --out is one path, and need not be one folder.
//
// Where all machines see the same --out, rank 0's process keeps it: takes its lock, makes and names
// the folders of checkpoints. Where a machine's --out lies on its own disk, one process there does
// the same for that disk, and the ranks there write their files to it. Nobody says which it is:
// every process looks into OUT/lock, which rank 0's has just taken, with a word of this job. It is
// the same folder where that word is found in it. Else a process takes the lock of its own, and
// those beside it find its number there.
//
// A job of one process has one disk. Called by zero/train/resume.c. Read next:
// zero/checkpoint/apart.c.
#ifndef ZERO_PROCESS_HOME_H
#define ZERO_PROCESS_HOME_H
#include "zero/comm/world.h"
#include "zero/process/lock.h"

enum { HOST_BYTES = 64 };

// Of --out, or of --save-also. A zeroed one: rank 0's, for all.
struct HomeDisk {
    int *
        keeper; // (size of the job): the rank whose process keeps each rank's disk. NULL: 0 for all
    char (*host)[HOST_BYTES]; // (size): each rank's machine
    int size;
};

static inline bool home_is_apart(const struct HomeDisk *d) {
    return d && d->keeper;
}

// Whether that rank makes, names and removes the folders on its disk.
static inline bool home_keeps(const struct HomeDisk *d, int rank) {
    return home_is_apart(d) ? d->keeper[rank] == rank : rank == 0;
}

// All processes call it: takes the lock on the folder that `flag` names, on each disk, and tells
// which disks there are. home_close, and run_lock_release, are due in any case. Errors, agreed
// upon: run_lock_take's.
int home_claim(struct HomeDisk *d, const struct World *w, struct RunLock *l, const char *folder,
               const char *flag, struct Error *e);
void home_close(struct HomeDisk *d);

#endif
