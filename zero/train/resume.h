// What --out and --resume mean for a run: which checkpoint it goes on from, and what it may not
// touch.
#ifndef ZERO_TRAIN_RESUME_H
#define ZERO_TRAIN_RESUME_H
#include "zero/checkpoint/checkpoint.h"
#include "zero/process/local_disk.h"
#include "zero/settings/settings.h"

struct ResumeAsked {
    const char *out, *also; // --out; --backup-dir: NULL, or where else a checkpoint may lie
    const char *which;      // --resume: NULL, "auto", "best" or a checkpoint's folder
    const char *only;       // the flag that wants the weights alone; NULL: a run is gone on with
    // The job, of whose disks one process each writes to --out (zero/process/local_disk.h). NULL:
    // this process alone.
    const struct World *world;
    uint64_t steps; // where the run is to end
};

struct Resume {
    struct ResumeAsked asked;
    uint64_t newest;                  // filled by resume_check: the step of the newest checkpoint
    bool newest_also;                 // likewise: it is --backup-dir's
    char *folder[3];                  // likewise: OUT/checkpoints, ALSO/checkpoints; then NULL
    char *best;                       // likewise: the folder that best names
    bool other_rate;                  // likewise: the run has diverged, and may take another --lr
    struct CheckpointRefused refused; // by resume_load
    struct LocalDisk disk[2];         // of --out and --backup-dir,
    struct RunLock lock[2];           // which this process keeps, if it does
};

// What the settings are to know of a resume (out, also and which of it): that there is one; and
// what auto means for it, the device and dtype that the checkpoint was trained with. Where there is
// none yet, use->chosen stays as it is. All processes of the job call it.
void resume_peek(const struct Resume *r, struct SettingsUse *use);

// No checkpoint is gone on from: one that is named is there, or was refused.
bool resume_is_fresh(const struct Resume *r);

// An --out with checkpoints belongs to a run: it is only touched to go on with that run, and not
// past its end; and by one process at a time, so that who claims it gets a lock on it
// (zero/process/local_disk.h). A checkpoint that is named must be there. Errors: -EBUSY, -EEXIST,
// -ENOENT, -EINVAL past the end, those of checkpoint_file_open, -errno. All processes of the job
// call it; each has its own error. resume_close is due in any case.
int resume_check(struct Resume *r, struct Error *e);
void resume_close(struct Resume *r);

// Loads the checkpoint, if one is wanted and there is one, into a fresh z; z->step tells. All ranks
// call it. Errors: as checkpoint_resume's; -EINVAL past the end; -EEXIST.
int resume_load(struct Resume *r, struct Zero *z, const char *identity, struct Error *e);

#endif
