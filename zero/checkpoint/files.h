// Declarations shared by this folder's files: the files of a checkpoint that is loaded, which
// load.c opens and checks and read.c reads; and their folder's.
#ifndef ZERO_CHECKPOINT_FILES_H
#define ZERO_CHECKPOINT_FILES_H
#include "zero/checkpoint/checkpoint.h"

enum { CHECKPOINT_FILES_MAX = 1 << 16 };

struct CheckpointFile {
    char *path;
    bool fetched; // what is needed of it is in `fetched` below, from head.base on
    struct CheckpointHead head;
};

struct CheckpointFiles {
    int folder, held; // descriptors, -1: none
    int fetched;      // likewise: what was received from other disks (local.c)
    int count;
    struct CheckpointFile *file;
    bool whole; // they are to have the model's weights, also where this run has adapters
    // (tp_size): the groups as each TP rank that saved had them
    struct Params *saved;
    int tp_size;
};

// Returns the TP rank whose groups a file has.
static inline int checkpoint_tp_rank(const struct CheckpointFiles *f, int file) {
    return grid_coord(&f->file[0].head.grid, file, AXIS_TP);
}

// ---- file.c ----

// Report that a file cannot be read, or is damaged. Return -errno, and -EBADMSG.
int checkpoint_unreadable(const char *path, struct Error *e);
int checkpoint_damaged(struct Error *e, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// ---- read.c ----

// Reads the elements that this rank keeps of each group's first arrays: [0, arrays).
int checkpoint_read_arrays(struct Zero *z, const struct CheckpointFiles *f, enum State arrays,
                           struct Error *e);

// ---- folders.c ----

// Returns the lowest rank whose file is in a folder, a descriptor; -1: none.
int checkpoint_lowest(int folder);

// ---- local.c: files on several disks ----

// True if a mark may have that name.
bool checkpoint_is_mark(const char *name);
// True if ranks see different files in the folder of that path.
bool checkpoint_is_local(struct Zero *z, const char *path);

// Opens the files, instead of load.c's own way: checks them all, reads all heads, and fetches what
// this rank needs. Errors, on all ranks: -ENOENT some file is on no disk; those of
// checkpoint_file_check and checkpoint_file_open; -errno.
int checkpoint_fetch(struct Zero *z, const char *path, struct CheckpointFiles *f, struct Error *e);

#endif
