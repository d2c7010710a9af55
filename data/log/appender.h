// A file that a run appends to while it trains, and that may not end it: what the disk refuses
// waits in memory, and goes out, in its order, before what follows. The file has no gap, and no
// torn end.
//
// That something waits is said once, and so is its end. Whoever needs to know whether all of it is
// on the disk calls appender_sync.
//
// Under log.jsonl (log.c) and the TensorBoard file (tensorboard.c).
#ifndef DATA_LOG_APPENDER_H
#define DATA_LOG_APPENDER_H
#include "kernels/base.h"

struct Appender {
    int fd;       // opened with O_APPEND; -1: none
    char *path;   // owned; NULL: nothing is open, and all calls below do nothing
    char *unsent; // what waits
    size_t unsent_bytes;
    bool waits; // as was said
};

// Appends the bytes, now or later.
void appender_put(struct Appender *a, const void *bytes, size_t n);

// Writes what waits, and forces the file to the disk. Errors: -errno.
int appender_sync(struct Appender *a, struct Error *e);

// Syncs, and releases everything in any case; a second call does nothing. Errors: -errno.
int appender_close(struct Appender *a, struct Error *e);

#endif
