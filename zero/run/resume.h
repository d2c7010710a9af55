// What --out and --resume mean for a run: which checkpoint it goes on from, and what it may not
// touch.
#ifndef ZERO_RUN_RESUME_H
#define ZERO_RUN_RESUME_H
#include "zero/run/checkpoint.h"
#include "zero/run/settings.h"

struct Resume {
    const char *out, *which; // --out; --resume: NULL, "auto" or a checkpoint's folder
    bool sample_only;        // the weights alone are wanted
    uint64_t steps;          // where the run is to end
    uint64_t newest;         // filled by resume_check: the step of --out's newest checkpoint
    char *folder;            // likewise: OUT/checkpoints; free() it
};

// What the settings are to know of a resume (`which` and `out` are a Resume's): that there is one;
// and what auto means for it, the device and dtype that the checkpoint was trained with. Where
// there is none yet, use->chosen stays as it is.
void resume_look(const char *out, const char *which, struct SettingsUse *use);

// An --out with checkpoints belongs to a run: it is only touched to go on with that run, and not
// past its end. A checkpoint that is named must be there. Errors: -EEXIST, -ENOENT, -EINVAL past
// the end, those of checkpoint_file_open, -errno.
int resume_check(struct Resume *r, struct Error *e);

// Loads the checkpoint, if one is wanted and there is one, into a fresh z; z->step tells. All ranks
// call it. Errors: as checkpoint_resume's; -EINVAL past the end; -EEXIST.
int resume_load(const struct Resume *r, struct Zero *z, const char *identity, struct Error *e);

#endif
