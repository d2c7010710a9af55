// Checkpoints: the state of a run on disk. A run that resumes from it continues bitwise as if it
// had never stopped.
//
//     OUT/checkpoints/step-00000100/rank-0000.state
//
// A checkpoint is a folder with one file per rank. It is written under another name, forced to the
// disk, and renamed: a name step-N exists only for a checkpoint that is whole. Each file ends in a
// hash of all before it; a file with a wrong hash is refused, and the checkpoint before it can be
// used.
//
// Each file also has what the ranks' hosts agree on: the step, how many updates were made, the
// state of the loss scale, and the grid of ranks. Rank r's file holds its shard of every group's
// optimizer state, at every stage; the file of a replica is empty. How state was sharded during
// training leaves no trace. A loading rank takes the elements that it keeps from the files that
// have them, so a checkpoint of four ranks at stage 3 loads into one rank at stage 0, and no rank
// ever holds more than its own. Nor does it matter in which tier state is kept, before or after.
//
// With tensor parallelism, where ranks have parts of each tensor (model/params.h), a file has its
// rank's shard of its TP rank's groups, as they lie there, with tensors that all TP ranks hold and
// with padding: writing is one long stretch, and a loader, which knows the grid, lays out the same
// groups and finds in them the elements that it wants. Tensors that all hold are read from TP rank
// 0's files. So a checkpoint loads at any other --tp.
//
// With pipeline parallelism, a file has its stage's groups, and no elements of the others: a loader
// finds each group in the files that have it, whatever their stage.
//
// If an update is late (zero/offload/update.c) the master weights are those after it, but the next
// step computes with the weights before it: the file holds these, too. All ranks call these
// functions together, and get the same answer; if one rank finds an error, its line is in its `e`,
// and the others' is empty.
#ifndef ZERO_CHECKPOINT_CHECKPOINT_H
#define ZERO_CHECKPOINT_CHECKPOINT_H
#include "zero/process/local_disk.h"
#include "zero/state.h"

#include <stdatomic.h>

// `identity` is text that describes the run, one "name value" per line (data/flags/texts.c makes it
// from the flags that a resume may not change). It is stored, and compared by these names on
// loading (NULL: only the shape is compared; a value of * matches any).

// Steps whose checkpoints a resume could not load, as far as there is space for them.
struct CheckpointRefused {
    uint64_t step[16];
    size_t n;
};

// The checkpoints that stay when older ones are removed.
struct CheckpointKeep {
    size_t newest;                     // so many, and those between them; 0: all
    struct CheckpointRefused *refused; // these are not counted; NULL: none
    uint64_t best;                     // a step whose checkpoint stays; 0: none
};

// Saves z's state as step z->step below `folder` (OUT/checkpoints, made if missing). Older
// checkpoints stay. disk: who writes `folder` on which disk; NULL: rank 0, for all. Waits for the
// device. Errors: -errno of the write, with nothing half-written left.
int checkpoint_save(struct Zero *z, const char *folder, const char *identity,
                    const struct LocalDisk *disk, struct Error *e);

// Removes an unfinished checkpoint that a dead run has left. Errors: -EEXIST if what lies at its
// path is not ours; -errno.
int checkpoint_clear(const char *folder, struct Error *e);

// Returns the bytes of this rank's file.
uint64_t checkpoint_bytes(const struct Zero *z, const char *identity);

// Checks that state which several ranks hold besides their shards is the same on all of them
// (shared.c). All ranks call it, between steps, when all queued work is finished. Errors: -EIO; on
// rank 0 with a line that names a rank that differs.
int shared_check(struct Zero *z, struct Error *e);

// ---- the same in three parts, for saving during training ----

// A checkpoint that is being written.
struct CheckpointSave {
    char *folder, *path, *tmp_path; // its final name, and where it is written; NULL: none
    uint64_t step;
    const struct LocalDisk *disk;
    bool is_writer;    // this rank makes and names it, on its disk
    bool ended, named; // checkpoint_end was called; and it has its name
    int home;          // `folder`, held open by its writer: it may lose that name; -1: not held
};

// Makes the temporary folder, on one rank per disk. All ranks call it. Errors: -errno; -EEXIST if
// what lies there is not ours. Call checkpoint_end and checkpoint_close in any case.
int checkpoint_begin(struct CheckpointSave *s, struct Zero *z, const char *folder,
                     const struct LocalDisk *disk, struct Error *e);
// Writes this rank's file into `folder`, and forces it to the disk. Errors: -errno.
int checkpoint_write(struct Zero *z, const char *folder, const char *identity, struct Error *e);
// Called when all ranks' files are whole (err: what they agreed on): gives the folder its name, or
// removes it; on the ranks that write a disk's folders. If `folder` is another one by now, it
// touches nothing. Errors: err; -ESTALE another folder; -errno.
int checkpoint_end(struct CheckpointSave *s, int err, struct Error *e);
// Called after all of these (err: what they agreed on). With several disks each has its own now;
// or, after an error, none keeps it. Frees s.
void checkpoint_close(struct CheckpointSave *s, int err);

// Returns the bytes of a snapshot; late: with the weights of a delayed update.
size_t checkpoint_snapshot_bytes(const struct Zero *z, bool late);
// Copies this rank's state to `to`, and begins to write it into `folder` as checkpoint_write would.
// *word becomes WORD_WRITING, and then 0, or WORD_FAILED (zero/process/request.h). Errors: -EAGAIN
// no thread.
struct Snapshot;
int checkpoint_snapshot(struct Snapshot **out, struct Zero *z, const char *folder,
                        const char *identity, const struct Block *to, atomic_uint *word,
                        struct Error *e);
// Waits until it is written. Errors: checkpoint_write's. NULL: does nothing.
int checkpoint_snapshot_close(struct Snapshot *s, struct Error *e);

// ---- local.c: the mark of one save, with several disks ----

// Writes the mark into a folder; word: of this save, the same on all ranks. Errors: -errno.
int checkpoint_mark(const char *folder, uint64_t word, const struct LocalDisk *disk,
                    struct Error *e);

// ---- folders.c ----

// Returns the path of that step's checkpoint. free() it.
char *checkpoint_path(const char *folder, uint64_t step);

// Finds the newest checkpoint with step < before. Returns 1 and fills path (free() it) and step, 0
// if there is none (or no folder), or -errno.
int checkpoint_find(const char *folder, uint64_t before, char **path, uint64_t *step,
                    struct Error *e);
// The same over several folders, of which the last is NULL; of two with the same step, the first.
// *path is NULL unless it returns 1.
int checkpoint_newest(const char *const *folders, uint64_t before, char **path, uint64_t *step,
                      struct Error *e);

// Removes checkpoints up to step `newest` that `keep` does not keep. One that is being read, or
// holds what is not ours, stays.
void checkpoint_prune(const char *folder, uint64_t newest, struct CheckpointKeep keep);

// Removes a folder of our rank files, and nothing else: no link, and no folder that holds anything
// besides. A missing folder counts as removed. Errors, and then it is still there: -EEXIST it is a
// link or holds what is not ours, or is being read; -errno.
int checkpoint_remove(const char *path);

// Returns a descriptor that keeps other processes from removing the checkpoint while it is open;
// -1: there is no such file, or it is being removed. `folder`: a descriptor.
int checkpoint_hold(int folder);

// True if a checkpoint's path is below the folder.
bool checkpoint_is_below(const char *path, const char *folder);

char *checkpoint_rank_path(const char *folder, int rank); // free() it

// ---- loading ----

// Loads the checkpoint in the folder `path` into z; z->step becomes its step. All files are checked
// first, so that z keeps its state unless they are intact and of this run; but if a disk fails in
// between (-EIO), its weights are mixed. Errors: -EBADMSG damaged; -EINVAL another run, naming the
// first flag or line that differs, or adapters of another base; -ENOTSUP it was computed with a
// kernel that this device lacks (if identity is compared); -errno.
typedef int CheckpointLoad(struct Zero *z, const char *path, const char *identity, struct Error *e);
CheckpointLoad checkpoint_load;

// Loads its master weights alone, for another run, or for the base of its adapters: z->step and all
// else stay as they are.
// `identity`: that of the run that saved it. Errors: as checkpoint_load's.
CheckpointLoad checkpoint_load_weights;

// Loads the checkpoint in folder `which`; or with "auto" the newest below the `folders` (NULL ends
// them) that is intact, or none if there is none. One that is damaged or cannot be read is logged,
// and added to `refused` (NULL: not). Errors: as checkpoint_load's.
int checkpoint_resume(struct Zero *z, const char *const *folders, const char *which,
                      const char *identity, struct CheckpointRefused *refused, struct Error *e);

// Loads the weights of the newest alone; *path, if one was loaded: its folder, free() it. Errors:
// as checkpoint_load's; -ENOENT if there is none.
int checkpoint_resume_weights(struct Zero *z, const char *const *folders, const char *identity,
                              char **path, struct Error *e);

// ---- file.c: one rank's file ----

struct CheckpointGroup {
    uint64_t numel;        // elements of the group, without padding
    uint64_t begin, count; // the elements that this file holds, in fp32: count in each array
    uint64_t narray;       // the head's, or 1 if the group is not trained
};

struct CheckpointHead {
    uint64_t step, updates;
    struct LossScale loss_scale;
    struct Best best;
    uint64_t base_hash; // of the model that the file's adapters are for; 0: it holds a model
    uint32_t rank, size;
    struct Grid grid; // of the size ranks
    uint32_t ngroup;
    uint32_t narray;               // of a group that is trained: NSTATE, or NSTATE_LATE while an
                                   // update is late
    size_t fixed_bytes;            // of the file, before the identity
    size_t group_row_bytes;        // of a row of its table of groups
    uint64_t base;                 // where the file begins in its descriptor: 0, unless fetched
    struct CheckpointGroup *group; // owned; checkpoint_head_free
    char *identity;                // owned, ends in a zero byte
    // This rank's variants of kernels, and algorithms of matrix products (device_get_choices);
    // owned, NULL: none.
    void *choices;
    uint32_t choices_bytes;
};

void checkpoint_head_free(struct CheckpointHead *h);

struct CheckpointWriter;
int checkpoint_file_create(struct CheckpointWriter **out, const char *path,
                           const struct CheckpointHead *head, struct Error *e);
int checkpoint_file_append(struct CheckpointWriter *w, const void *bytes, size_t n,
                           struct Error *e);
// Writes the hash and forces the file to the disk. Frees w in any case.
int checkpoint_file_finish(struct CheckpointWriter *w, struct Error *e);
void checkpoint_file_abandon(struct CheckpointWriter *w);

// Returns the bytes of a file that is written with this head, whatever the format it was read in.
uint64_t checkpoint_file_bytes(const struct CheckpointHead *head);
// Returns the offset in the file, without head->base, at which its values (master, m, v) begin.
// Only for a head that was read: reading sets fixed_bytes and group_row_bytes.
uint64_t checkpoint_values_at(const struct CheckpointHead *head);

// `folder`: a descriptor below which the last name of `path` is opened, or AT_FDCWD.
// Checks the hash over a whole file. Errors: -EBADMSG damaged, -errno.
int checkpoint_file_check(int folder, const char *path, struct Error *e);
// Opens a file and reads its head. Errors: -EBADMSG damaged, -errno.
int checkpoint_file_open(int folder, const char *path, int *fd, struct CheckpointHead *head,
                         struct Error *e);
// Reads the head of a file of `bytes` bytes at byte `base` of an open one; `path`: for errors.
int checkpoint_file_head(int fd, const char *path, uint64_t base, uint64_t bytes,
                         struct CheckpointHead *head, struct Error *e);
// Reads the head of the lowest rank's file that is in a checkpoint's folder. Call
// checkpoint_head_free. Errors: checkpoint_file_open's; -ENOENT there is none.
int checkpoint_file_look(const char *folder, struct CheckpointHead *head, struct Error *e);
int checkpoint_file_read(int fd, const char *path, void *bytes, size_t n, struct Error *e);
// Makes the next read begin at element i of group g's array (an enum State).
int checkpoint_file_seek(int fd, const char *path, const struct CheckpointHead *head, uint32_t g,
                         int array, uint64_t i, struct Error *e);

#endif
