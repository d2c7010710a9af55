// Lines out of a file: see lines.h.
#include "data/chat/lines.h"
#include "data/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 18 };

int lines_open(struct Lines *s, const char *path, const char *flag, struct Error *e) {
    struct stat st;
    *s = (struct Lines){.fd = -1, .path = path};
    return file_open(path, flag, &s->fd, &st, e);
}

void lines_close(struct Lines *s) {
    if (s->fd >= 0)
        close(s->fd);
    free(s->buffer);
}

// More of the file behind what is kept. 0: it is at its end.
static int fill(struct Lines *s, struct Error *e) {
    size_t kept = s->end - s->begin;
    if (s->begin)
        memmove(s->buffer, s->buffer + s->begin, kept);
    s->begin = 0;
    s->end = kept;
    if (s->room - kept < READ_BYTES) {
        s->room = size_max(2 * s->room, 2 * READ_BYTES);
        s->buffer = base_realloc(s->buffer, s->room, "a line");
    }
    ssize_t n = file_pread(s->fd, s->buffer + kept, s->room - kept, s->at);
    if (n < 0)
        return error_set(e, (int)n, "%s: %s", s->path, strerror((int)-n));
    s->end += (size_t)n;
    s->at += (uint64_t)n;
    return n > 0;
}

int lines_next(struct Lines *s, char **line, size_t *bytes, struct Error *e) {
    char *newline = NULL;
    size_t seen = 0;
    int more = 1;
    while (!newline && more > 0) {
        size_t held = s->end - s->begin;
        newline = held > seen ? memchr(s->buffer + s->begin + seen, '\n', held - seen) : NULL;
        seen = held;
        size_t length = newline ? (size_t)(newline - s->buffer) - s->begin : held;
        if (length > LINES_LINE_MAX)
            return error_set(e, -EFBIG, "%s: line %zu: longer than %d MiB", s->path, s->number + 1,
                             LINES_LINE_MAX >> 20);
        more = newline ? 1 : fill(s, e);
    }
    if (more < 0 || s->begin == s->end)
        return more < 0 ? more : 0;
    *line = s->buffer + s->begin;
    *bytes = newline ? (size_t)(newline - *line) : s->end - s->begin;
    s->begin += *bytes + (newline != NULL);
    s->number++;
    return 1;
}
