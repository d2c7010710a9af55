// Reads files from front to back: see stream.h.
#include "data/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 17 };

const struct Unpack *stream_packing(const char *path) {
    size_t n = strlen(path);
    return file_ends_in(path, n, unpack_gz.ending)    ? &unpack_gz
           : file_ends_in(path, n, unpack_zst.ending) ? &unpack_zst
                                                      : NULL;
}

size_t stream_bare_bytes(const char *path) {
    const struct Unpack *u = stream_packing(path);
    return strlen(path) - (u ? strlen(u->ending) : 0);
}

bool stream_ends_in(const char *path, const char *ending) {
    size_t n = stream_bare_bytes(path), m = strlen(ending);
    return (n > m && path[n - m - 1] != '/' && !strncasecmp(path + n - m, ending, m)) ||
           (!strcmp(ending, ".jsonl") && stream_ends_in(path, ".ndjson"));
}

int stream_open(struct DataStream *s, const char *path, const char *flag, struct Error *e) {
    struct stat st;
    *s = (struct DataStream){.fd = -1, .path = path, .flag = flag, .unpack = stream_packing(path)};
    int code = file_open(path, flag, &s->fd, &st, e);
    if (code || !s->unpack)
        return code;
    if (!s->unpack->open)
        return error_set(e, -ENOTSUP, E_BUILD_LACKS,
                         "%s %s: it is packed with %s, and this build is without %s; install %s "
                         "and build again, or unpack the file",
                         flag, path, s->unpack->format, s->unpack->library, s->unpack->package);
    s->buffer = base_alloc(READ_BYTES);
    s->state = s->unpack->open();
    return 0;
}

void stream_close(struct DataStream *s) {
    if (s->fd >= 0)
        close(s->fd);
    if (s->state)
        s->unpack->close(s->state);
    free(s->buffer);
    *s = (struct DataStream){.fd = -1};
}

static ssize_t read_next(struct DataStream *s, void *bytes, size_t n, struct Error *e) {
    ssize_t got = file_pread(s->fd, bytes, n, s->at);
    if (got < 0)
        return error_io(e, (int)got, E_FILE_READ, "%s %s", s->flag, s->path);
    s->at += (uint64_t)got;
    return got;
}

// Reads until `bytes` packed bytes are in the buffer, or the file ends. Returns how many there are.
static ssize_t fill_buffer(struct DataStream *s, size_t bytes, struct Error *e) {
    if (s->end - s->begin >= bytes)
        return (ssize_t)(s->end - s->begin);
    s->end -= s->begin;
    memmove(s->buffer, s->buffer + s->begin, s->end);
    s->begin = 0;
    ssize_t got = read_next(s, s->buffer + s->end, READ_BYTES - s->end, e);
    if (got < 0)
        return got;
    s->end += (size_t)got;
    return (ssize_t)s->end;
}

static int refuse(const struct DataStream *s, enum ErrorId id, const char *what, const char *more,
                  struct Error *e) {
    return error_set(e, -EBADMSG, id,
                     "%s %s: byte %llu: %s%s; pack the file again, or give it unpacked", s->flag,
                     s->path, (unsigned long long)(s->at - (s->end - s->begin)), what, more);
}

// Returns 1 if a stream begins, 0 at the end of a file that had one. Refuses all else.
static int begin_stream(struct DataStream *s, struct Error *e) {
    ssize_t left = fill_buffer(s, UNPACK_HEAD_BYTES, e);
    while (s->any && s->unpack->padded && left > 0 && !s->buffer[s->begin]) {
        s->begin++;
        left = fill_buffer(s, UNPACK_HEAD_BYTES, e);
    }
    if (left < 0 || (left == 0 && s->any))
        return (int)left;
    uint8_t magic[UNPACK_MAGIC_BYTES] = {0};
    memcpy(magic, s->buffer + s->begin, size_min((size_t)left, sizeof magic));
    s->inside = s->unpack->begins(magic);
    if (s->inside)
        return 1;
    return s->any ? refuse(s, E_UNPACK_TRAILING, "more follows after what is packed with ",
                           s->unpack->format, e)
                  : refuse(s, E_UNPACK_FORMAT, "it is not packed with ", s->unpack->format, e);
}

// Calls the library once. It ends a stream, makes progress, or reports damage.
static int unpack_step(struct DataStream *s, struct Unpacking *u, struct Error *e) {
    const char *wrong = "the unpacking stops";
    size_t room = u->out_bytes;
    ssize_t left = fill_buffer(s, 1, e);
    if (left < 0)
        return (int)left;
    u->in = s->buffer + s->begin;
    u->in_bytes = (size_t)left;
    int result = s->unpack->step(s->state, u, &wrong);
    bool stuck = u->in_bytes == (size_t)left && u->out_bytes == room;
    s->begin = s->end - u->in_bytes;
    s->any = s->any || result > 0;
    s->inside = result <= 0;
    if (!result && stuck && !left)
        return refuse(s, E_UNPACK_CUT, "the file ends inside of what is packed with ",
                      s->unpack->format, e);
    return result < 0 || (!result && stuck)
               ? refuse(s, E_UNPACK_DAMAGED, "it is damaged near there: ", wrong, e)
               : 0;
}

static ssize_t unpack(struct DataStream *s, uint8_t *bytes, size_t n, struct Error *e) {
    struct Unpacking u = {.out = bytes, .out_bytes = n};
    int more = 1, code = 0;
    while (u.out_bytes && more > 0 && !code) {
        more = s->inside ? 1 : begin_stream(s, e);
        code = more > 0 ? unpack_step(s, &u, e) : 0;
    }
    return more < 0 ? more : code ? code : (ssize_t)(n - u.out_bytes);
}

ssize_t stream_read(struct DataStream *s, void *bytes, size_t n, struct Error *e) {
    return s->unpack ? unpack(s, bytes, n, e) : read_next(s, bytes, n, e);
}

size_t stream_memory_max(void) {
    struct rlimit limit;
    size_t most = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur < most)
        most = limit.rlim_cur;
    return most / 4;
}
