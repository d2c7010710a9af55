// Appends to a file while a run trains. A full disk does not end the run: bytes that cannot be
// written wait in memory, and are written first later. The file has no gap, and no torn end.
//
// A log line reports that bytes wait, and another one that they are written. appender_sync checks
// that all of them are on the disk.
//
// Used for log.jsonl (log.c) and the TensorBoard file (tensorboard.c).
#ifndef DATA_LOG_APPENDER_H
#define DATA_LOG_APPENDER_H
#include "kernels/base.h"

struct Appender {
    int fd;       // opened with O_APPEND; -1: none
    char *path;   // owned; NULL: nothing is open, and all calls below do nothing
    char *unsent; // the bytes that wait
    size_t unsent_bytes;
    bool waits; // the log says that bytes wait
};

// Appends the bytes, now or later.
void appender_put(struct Appender *a, const void *bytes, size_t n);

// Writes the bytes that wait, and syncs the file to the disk. Errors: -errno.
int appender_sync(struct Appender *a, struct Error *e);

// Syncs, and frees everything also after an error; a second call does nothing. Errors: -errno.
int appender_close(struct Appender *a, struct Error *e);

#endif
