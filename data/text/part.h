// A file that arrives in pieces, perhaps over several runs.
//
// PATH.part holds what has come, PATH.part.tag what the server calls this version of the file, and
// PATH appears when all is there and its checksum is right. One run at a time fills it: download.c,
// which calls this, has the cache's lock. Where the disk has no locks each run fills a part of its
// own, PATH.part.XXXXXX, which does not outlive it. PATH.sum holds the checksum of what came, for later runs.
#ifndef DATA_TEXT_PART_H
#define DATA_TEXT_PART_H
#include "kernels/base.h"

enum { PART_TAG_BYTES = 256 };

struct Part {
    int fd;
    char *path, *path_part, *path_tag;
    bool own;           // a part that this run alone knows
    const char *sha256; // 64 digits, or NULL: not known
    uint64_t bytes;     // of the whole file, 0: not known
    uint64_t have;
    char tag[PART_TAG_BYTES]; // empty: nothing is known of the version
};

// Whether the file is here and undamaged. Its sha256 says so where it is known, else
// PATH.sum. A file without PATH.sum, from an earlier version or another hand, is taken as it is and
// gets one. *damage: why a file that is here is not the one; empty where there is none.
bool part_is_whole(const char *path, const char *sha256, struct Error *damage);

// locked: no other run fills PATH.part meanwhile. Errors: -errno; -EINVAL where PATH.part is no
// regular file.
int part_open(struct Part *p, const char *path, const char *sha256, uint64_t bytes, bool locked,
              struct Error *e);
void part_close(struct Part *p); // leaves the part for a later run, unless it is this run's own

// Pieces of different versions must not be joined: either the server can tell them apart by the
// tag, or the checksum will.
bool part_may_continue(const struct Part *p);

int part_start_over(struct Part *p, const char *tag, struct Error *e);
int part_append(struct Part *p, const void *bytes, size_t n, struct Error *e);

// Checks size and checksum. Errors: -EBADMSG, with `source` in the line.
int part_check(struct Part *p, const char *source, struct Error *e);
int part_finish(struct Part *p, struct Error *e); // gives the file its name; close follows
void part_discard(struct Part *p);                // removes the part; close follows

#endif
