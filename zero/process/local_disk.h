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
// zero/checkpoint/local.c.
#ifndef ZERO_PROCESS_LOCAL_DISK_H
#define ZERO_PROCESS_LOCAL_DISK_H
#include "zero/comm/world.h"
#include "zero/process/lock.h"

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
