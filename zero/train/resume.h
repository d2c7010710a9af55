// Decides what --out and --resume mean for a run: which checkpoint it resumes, and which folders it
// may not touch.
#ifndef ZERO_TRAIN_RESUME_H
#define ZERO_TRAIN_RESUME_H
#include "zero/checkpoint/checkpoint.h"
#include "zero/process/local_disk.h"
#include "zero/settings/settings.h"

struct ResumeAsked {
    const char *out, *also;    // --out; --backup-dir: NULL, or where else a checkpoint may be
    const char *which;         // --resume: NULL, "auto", "best" or a checkpoint's folder
    const char *only;          // the flag that wants only the weights; NULL: the run is resumed
    const struct World *world; // the job, where one process per disk writes to --out
    uint64_t steps;            // where the run must end
};

struct Resume {
    struct ResumeAsked asked;
    uint64_t newest;                  // filled by resume_check: the step of the newest checkpoint
    bool newest_in_backup;            // likewise: it is --backup-dir's
    char *folder[3];                  // likewise: OUT/checkpoints, ALSO/checkpoints; then NULL
    char *best;                       // likewise: the folder of the best checkpoint
    bool may_change_rate;             // likewise: the run has diverged, and may take another --lr
    struct CheckpointRefused refused; // by resume_load
    struct LocalDisk disk[2];         // of --out and --backup-dir,
    struct RunLock lock[2];           // and their locks, if this process holds them
};

// Finds what the settings must know of a resume (out, also and which of it): that there is one; and
// what auto means for it, the device and dtype that the checkpoint was trained with. If there is
// none yet, use->chosen stays as it is. All processes of the job call it.
void resume_peek(const struct Resume *r, struct SettingsUse *use);

// True if no checkpoint is resumed; after resume_check, which refuses a named one that is missing.
bool resume_is_fresh(const struct Resume *r);

// An --out with checkpoints belongs to a run: it is only touched to resume that run, and not past
// its end; and by one process at a time, which takes a lock on it (zero/process/local_disk.h). A
// checkpoint that is named must be there. Errors: -EBUSY, -EEXIST, -ENOENT, -EINVAL past the end,
// those of checkpoint_file_open, -errno. All processes of the job call it; each has its own error.
// Call resume_close in any case.
int resume_check(struct Resume *r, struct Error *e);
void resume_close(struct Resume *r);

// Loads the checkpoint, if one is wanted and there is one, into a fresh z and sets z->step. All
// ranks call it. Errors: as checkpoint_resume's; -EINVAL past the end; -EEXIST.
int resume_load(struct Resume *r, struct Zero *z, const char *identity, struct Error *e);

#endif
