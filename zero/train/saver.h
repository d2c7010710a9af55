// Saving as a policy: where to, and what happens where that fails.
//
// A save on the way that fails costs nothing but itself: the checkpoint before it is untouched, a
// line says what was wrong, and training goes on. A folder that is no longer the one that this run
// has locked (zero/process/local_disk.h) is not touched. The last save is what the run was for. It
// is tried below --out, then below --backup-dir, and again every ten seconds until there is room,
// or a signal ends the wait with one last try; but `ulimit -f` stays, and ends it at once. That
// there is room at all, and no such limit, is asked before the first step.
//
// With a snapshot to write from, a save on the way only copies: a thread of each rank writes. When
// all of them tell, with their report of a step, that they are done, rank 0 (of several disks, who
// keeps each: zero/process/local_disk.h) gives the checkpoint its name, and tells that; until the
// next save no rank waits for a disk. What the ranks make of it is a function of the words that all
// of them have seen, and so the same.
//
//   words of a step        rank 0                          all ranks
//   some WRITING           -                               -
//   some FAILED            removes what is there           it is not saved
//   neither                gives it its name: NAMED or FAILED in its next word
//   NAMED                  -                               it is saved
//
// Older checkpoints go when a step behind a new one has shown that its weights are good
// (saver_prove): those of a run that diverges are not.
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
    struct RunLock *lock; // on --out and --backup-dir, of who keeps them; NULL: none are asked
    const struct LocalDisk
        *disk; // of these two (zero/process/local_disk.h); NULL: rank 0 keeps them
    const char *identity;
    struct CheckpointKeep keep; // without `disk`, which is that of the folder
    uint64_t saved;             // step of the last checkpoint; UINT64_MAX: there is none
    int dir_index;              // of `folder`, where it is; -1: this run has saved none
    bool unproven;              // it may not be gone on from, and what is older stays
    // Before a checkpoint is written, on rank 0: what belongs to it is forced to the disk. Where it
    // fails, there is none in the first folder.
    int (*pre_save)(void *context, struct Error *e);
    // When one is whole and has its name, on all ranks: `saved` and `place` say which.
    void (*post_save)(void *context);
    void *context;
    const struct Block
        *snapshot_memory; // for a snapshot; of no bytes: checkpoints are written at once
    // The last one that was begun for the first folder was not saved there: the next one is written
    // at once, so that the other is tried, too.
    bool synchronous;
    // The checkpoint that is under way: its aside is NULL where there is none.
    bool under_way;
    struct Snapshot *snapshot;
    struct CheckpointSave save;
    atomic_uint word; // this rank's
};

// Before the first step: whether one of the folders has room for a checkpoint, and nothing is in
// its way. Errors: -ENOSPC, with what is missing; -EFBIG past `ulimit -f`; checkpoint_clear's.
int saver_check(const struct Saver *s, struct Error *e);

// Saves the present step, if it is not saved yet, or begins to. A failure is said, and training can
// go on.
void saver_save(struct Saver *s);

// Saves it at the end of a run, at once: tries until it is done. Errors: those of the last try,
// after a signal asked to end; -EFBIG at once.
int saver_save_last(struct Saver *s, struct Error *e);

// After a step: what its words tell of the checkpoint that is under way.
void saver_hear(struct Saver *s, uint64_t words);

// Waits until the checkpoint that is under way is saved, or has failed.
void saver_finish(struct Saver *s);

// After a step with a finite gradient: a checkpoint of a step before it is good, and older ones may
// go, as does the note that the run has diverged. By each rank alone.
void saver_prove(struct Saver *s, uint64_t step);

// Waits for the thread that writes, after an error that others may not have. What it wrote goes.
void saver_close(struct Saver *s);

#endif
