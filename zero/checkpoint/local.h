// A checkpoint whose files lie on several disks: each node's ranks have theirs on their own.
//
// Every such folder holds, beside the ranks' files, a mark: apart-<word>, with a word that is that
// save's alone, and in it the machine of each rank. Files of two folders belong together if their
// marks are the same; so a folder that one node's disk kept from an older try is not taken for a
// part of a newer one. And where files are missing, the mark says whose they are.
//
// Loading (fetch.c): ranks tell each other which files they see. What a rank needs and does not see
// comes, in pieces, from the lowest rank that sees it, into a file without a name that goes when it
// is closed: so a checkpoint of any nodes is loaded by any others, as far as these have all of it
// between them. Where all ranks see the same, nothing of this happens.
#ifndef ZERO_CHECKPOINT_LOCAL_H
#define ZERO_CHECKPOINT_LOCAL_H
#include "zero/process/local_disk.h"
#include "zero/engine.h"

// A name that a mark may have.
bool checkpoint_is_mark(const char *name);

// A word for a save; the same on all ranks.
uint64_t checkpoint_local_word(struct Zero *z);

// Writes the mark into a folder. Errors: -errno.
int checkpoint_mark(const char *folder, uint64_t word, const struct LocalDisk *disk,
                    struct Error *e);

// The word of the mark in a folder, a descriptor; 0: none.
uint64_t checkpoint_marked(int folder);

// The machine on whose disk that rank's file was written, as the mark says; false: not known.
bool checkpoint_machine(int folder, int rank, char host[HOST_BYTES]);

// The lowest rank whose file is in a folder, a descriptor; -1: none.
int checkpoint_lowest(int folder);

#endif
