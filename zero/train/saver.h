// Saving as a policy: where to save, and what to do if that fails.
//
// A save during training that fails costs only itself: the checkpoint before it is untouched, a
// line reports the error, and training goes on. A folder that is no longer the one that this run
// has locked (zero/process/local_disk.h) is not touched. The last save is the result of the run: it
// is tried below --out, then below --backup-dir, and again every ten seconds until there is space,
// or a signal ends the wait with one last try; but `ulimit -f` stays, and ends it at once. Space
// for a checkpoint, and that limit, are checked before the first step.
//
// With memory for a snapshot, a save during training only copies: a thread of each rank writes.
// When all ranks report, with their report of a step, that they are done, rank 0 (with several
// disks, one rank of each: zero/process/local_disk.h) gives the checkpoint its name, and reports
// that; no rank waits for a disk before the next save. What ranks do is a function of the words
// that all of them have seen, and so the same on all:
//
//   words of a step        rank 0                          all ranks
//   some WRITING           -                               -
//   some FAILED            removes what is there           it is not saved
//   neither                gives it its name: NAMED or FAILED in its next word
//   NAMED                  -                               it is saved
//
// Older checkpoints are removed when a step after a new one has shown that its weights are good
// (saver_prove): if the run diverges they are not. By then every disk has the new one: a power cut
// between two renames leaves one that not all have, and the one before it must still be there.
//
// All ranks call these functions together. Called by trainer.c. Read next:
// zero/checkpoint/checkpoint.h.
#ifndef ZERO_TRAIN_SAVER_H
#define ZERO_TRAIN_SAVER_H
#include "zero/checkpoint/checkpoint.h"
#include "zero/process/local_disk.h"

enum { SAVER_FOLDERS = 2, SAVER_AGAIN_S = 10 };

struct Saver {
    struct Zero *zero;
    const char *folder[SAVER_FOLDERS]; // OUT/checkpoints, and that of --backup-dir; NULL: none
    struct RunLock *lock;              // on --out and --backup-dir, if held here
    const struct LocalDisk *disk;      // of these two (zero/process/local_disk.h)
    const char *identity;
    struct CheckpointKeep keep; // refused is not NULL
    uint64_t saved;             // step of the last checkpoint; UINT64_MAX: there is none
    int dir_index;              // of `folder`, where it is; -1: this run has saved none
    bool unproven;              // it may be bad, so older ones stay
    // Called on rank 0 before a checkpoint is written: forces what belongs to it to the disk. If it
    // fails, none is written in the first folder.
    int (*pre_save)(void *context, struct Error *e);
    // Called on all ranks when one has its name: `saved` and `dir_index` say which.
    void (*post_save)(void *context);
    void *context;
    const struct Block
        *snapshot_memory; // memory of a snapshot; empty: checkpoints are written at once
    // The last save that was begun in the first folder has failed: the next one is written at once,
    // so that the other folder is tried, too.
    bool synchronous;
    // A checkpoint is under way: `snapshot` is writing `save`.
    bool under_way;
    struct Snapshot *snapshot;
    struct CheckpointSave save;
    atomic_uint word; // this rank's part of the step's word
};

// Checks, before the first step, that one of the folders has space for a checkpoint, and nothing is
// in its way. Errors: -ENOSPC, with what is missing; -EFBIG past `ulimit -f`; checkpoint_clear's.
int saver_check(const struct Saver *s, struct Error *e);

// Saves the present step, if it is not saved yet, or begins to. A failure is logged, and training
// can go on.
void saver_save(struct Saver *s);

// Saves the present step at the end of a run, at once, and tries until that succeeds. Errors: those
// of the last try, after a signal asked to end; -EFBIG at once.
int saver_save_last(struct Saver *s, struct Error *e);

// Called after a step: reads from its words how far the checkpoint under way is.
void saver_hear(struct Saver *s, uint64_t words);

// Waits until the checkpoint under way is saved, or has failed.
void saver_finish(struct Saver *s);

// Called after a step with a finite gradient: a checkpoint of an earlier step is good, so older
// ones are removed, and the note that the run has diverged. Each rank calls it alone.
void saver_prove(struct Saver *s, uint64_t step);

// Waits for the thread that writes, after an error that others may not have; removes its files.
void saver_close(struct Saver *s);

#endif
