// A file that a run appends to while it trains, and that may not end it: what the disk refuses
// waits in memory, and goes out, in its order, before what follows. The file has no gap, and no
// torn end.
//
// That something waits is said once, and so is its end. Whoever needs to know whether all of it is
// on the disk calls appender_sync.
//
// A file may be watched: who removes or renames it while it is written takes lines from whoever
// reads it by its name. That is seen when it is forced to the disk, and said; the file then begins
// anew under its name, so that what follows is not lost, unless another file has that name by now.
// What was lost ends in an error of appender_close.
//
// Under log.jsonl (log.c) and the TensorBoard file (tensorboard.c).
#ifndef DATA_LOG_APPENDER_H
#define DATA_LOG_APPENDER_H
#include "kernels/base.h"

#include <sys/types.h>

struct Appender {
    int fd;       // opened with O_APPEND; -1: none
    char *path;   // owned; NULL: nothing is open, and all calls below do nothing
    char *unsent; // what waits
    size_t unsent_bytes;
    bool waits;          // as was said
    bool watched, taken; // taken: the file was, as was said
    dev_t device;        // of its folder: a folder that only has the name by now is another's
    ino_t inode;
};

// From here on the file's name is watched.
void appender_watch(struct Appender *a);

// Appends the bytes, now or later.
void appender_put(struct Appender *a, const void *bytes, size_t n);

// Looks whether a watched file has its name, writes what waits, and forces the file to the disk.
// That the file was taken away is no error here. Errors: -errno.
int appender_sync(struct Appender *a, struct Error *e);

// The same, and begins no file anew. Releases everything in any case; a second call does nothing.
// Errors: -errno; -ESTALE: a watched file was taken away meanwhile, and lacks lines.
int appender_close(struct Appender *a, struct Error *e);

#endif
