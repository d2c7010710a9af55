// A file that is downloaded in pieces, perhaps by several runs.
//
// PATH.part has the bytes so far, PATH.part.tag the server's name of this version of the file (ETag
// or date), and PATH appears when it is complete and its checksum is right. One run at a time
// writes: download.c, which calls this, has the cache's lock. On a disk without locks each run
// writes a part of its own, PATH.part.XXXXXX, which it removes. PATH.sum has the checksum, for
// later runs.
#ifndef DATA_TEXT_PART_H
#define DATA_TEXT_PART_H
#include "kernels/base.h"

enum { PART_TAG_BYTES = 256 };

struct Part {
    int fd;
    char *path, *path_part, *path_tag;
    bool own;                 // a part that this run alone knows
    const char *sha256;       // 64 digits, or NULL: not known
    uint64_t bytes;           // of the whole file, 0: not known
    uint64_t have;            // bytes so far
    char tag[PART_TAG_BYTES]; // empty: the version is unknown
};

// True if the file exists and is undamaged, by its sha256 if that is known, else by PATH.sum. A
// file without PATH.sum, from an earlier version or another program, is accepted and gets one.
// *damage: why an existing file is wrong; empty: there is no file, or it is undamaged.
bool part_is_whole(const char *path, const char *sha256, struct Error *damage);

// Opens PATH.part to go on with a download, or a new file of this run's own. locked: no other run
// writes PATH.part meanwhile. Errors: -errno; -EINVAL if it is no regular file.
int part_open(struct Part *p, const char *path, const char *sha256, uint64_t bytes, bool locked,
              struct Error *e);
void part_close(struct Part *p); // leaves the part for a later run, unless it is this run's own

// True if the part may be continued without joining pieces of different versions: the server can
// compare the tag, or the checksum will.
bool part_may_continue(const struct Part *p);

int part_start_over(struct Part *p, const char *tag, struct Error *e);
int part_append(struct Part *p, const void *bytes, size_t n, struct Error *e);

// Checks size and checksum. Errors: -EBADMSG, with `source` in the line.
int part_check(struct Part *p, const char *source, struct Error *e);
int part_finish(struct Part *p, struct Error *e); // gives the file its name; close follows
void part_discard(struct Part *p);                // removes the part; close follows

#endif
