// The files of a checkpoint that is loaded: what load.c opens and checks, identity.c compares, and
// read.c reads.
#ifndef ZERO_CHECKPOINT_FILES_H
#define ZERO_CHECKPOINT_FILES_H
#include "zero/checkpoint/checkpoint.h"

struct CheckpointFile {
    char *path;
    bool fetched; // what is needed of it lies in `fetched` below, from head.base on
    struct CheckpointHead head;
};

struct CheckpointFiles {
    int folder, held; // descriptors, -1: none
    int fetched;      // likewise: what came from other disks (local.h)
    int count;
    struct CheckpointFile *file;
    // (places): the groups as those laid them out that saved
    struct Params *saved;
    int places;
};

// The place whose groups a file is of.
static inline int checkpoint_place(const struct CheckpointFiles *f, int file) {
    return grid_coord(&f->file[0].head.grid, file, AXIS_TP);
}

// What two identities differ in, as an error. same_ranks: also in what shapes bits alone.
int checkpoint_compare_identity(const char *path, const char *stored, const char *wanted,
                                bool same_ranks, struct Error *e);

// Reads what this rank keeps of each group's first arrays: [0, arrays).
int checkpoint_read_arrays(struct Zero *z, const struct CheckpointFiles *f, enum State arrays,
                           struct Error *e);

// ---- fetch.c ----

// Whether ranks see different files in the folder of that path.
bool checkpoint_is_local(struct Zero *z, const char *path);

// Opens the files, in place of load.c's own way: checks them all, reads all heads, and fetches what
// this rank needs. Errors, on all ranks: -ENOENT some file is on no disk; those of
// checkpoint_file_check and checkpoint_file_open; -errno.
int checkpoint_fetch(struct Zero *z, const char *path, struct CheckpointFiles *f, struct Error *e);

#endif
