// Appends to a file on a disk that may be full for a while: see appender.h.
#include "data/log/appender.h"

#include "data/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int write_waiting_bytes(struct Appender *a, struct Error *e) {
    if (!a->unsent_bytes)
        return 0;
    int err = file_append(a->fd, a->path, a->unsent, a->unsent_bytes, e);
    if (!err)
        a->unsent_bytes = 0;
    if (!err && a->waits)
        log_line(LOG_NORMAL, "%s: the lines that waited are written", a->path);
    a->waits = err != 0;
    return err;
}

void appender_put(struct Appender *a, const void *bytes, size_t n) {
    struct Error e;
    if (!a->path)
        return;
    bool was_waiting = a->waits;
    a->unsent = base_realloc(a->unsent, a->unsent_bytes + n, "lines of the log");
    memcpy(a->unsent + a->unsent_bytes, bytes, n);
    a->unsent_bytes += n;
    if (write_waiting_bytes(a, &e) && !was_waiting)
        log_line(LOG_NORMAL, "%s; its lines wait in memory, and training goes on", e.text);
}

int appender_sync(struct Appender *a, struct Error *e) {
    if (!a->path)
        return 0;
    int err = write_waiting_bytes(a, e);
    if (err || !fsync(a->fd))
        return err;
    return error_io(e, -errno, E_FILE_WRITE, "cannot write %s", a->path);
}

int appender_close(struct Appender *a, struct Error *e) {
    if (!a->path)
        return 0;
    int err = appender_sync(a, e);
    if (close(a->fd) && !err)
        err = error_io(e, -errno, E_FILE_WRITE, "cannot write %s", a->path);
    free(a->path);
    free(a->unsent);
    *a = (struct Appender){.fd = -1};
    return err;
}
