// Token shards: see tokens.h for the format. Every way in which a file can be wrong is told here,
// once, so that no other code has to doubt an id.
#include "data/text/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const int32_t MAGIC = 20240520, VERSION = 1;

enum { BUFFER_IDS = 32768 };

bool token_file_detect(const char *path) {
    int32_t magic = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool whole = read(fd, &magic, sizeof magic) == sizeof magic;
    close(fd);
    return whole && magic == MAGIC;
}

int token_header_count(const void *header, const char *name, size_t *count, struct Error *e) {
    int32_t h[3];
    memcpy(h, header, sizeof h);
    if (h[0] != MAGIC)
        return error_set(e, -EINVAL,
                         "--data %s: this is no token shard: it begins with %d, not with %d", name,
                         h[0], MAGIC);
    if (h[1] != VERSION)
        return error_set(e, -EINVAL,
                         "--data %s: token shard of version %d; only version %d is read", name,
                         h[1], VERSION);
    if (h[2] <= 0)
        return error_set(e, -EINVAL, "--data %s: the shard's header says %d tokens", name, h[2]);
    *count = (size_t)h[2];
    return 0;
}

// The header's count against the size of the file.
static int check_size(const char *path, size_t file_bytes, size_t count, struct Error *e) {
    size_t want = TOKENS_HEADER_BYTES + 2 * count;
    if (file_bytes == want)
        return 0;
    return error_set(e, -EINVAL,
                     "--data %s: the file is %s: its header says %zu tokens, which is %zu bytes, "
                     "and it has %zu",
                     path, file_bytes < want ? "cut short" : "too long", count, want, file_bytes);
}

static int read_count(int fd, const char *path, size_t *count, size_t *file_bytes,
                      struct Error *e) {
    struct stat st;
    char header[TOKENS_HEADER_BYTES];
    if (fstat(fd, &st))
        return error_set(e, -errno, "--data %s: %s", path, strerror(errno));
    ssize_t got = pread(fd, header, sizeof header, 0);
    if (got < 0)
        return error_set(e, -errno, "--data %s: %s", path, strerror(errno));
    if (got < TOKENS_HEADER_BYTES)
        return error_set(e, -EINVAL,
                         "--data %s: %zd bytes are no token shard: its header alone has %d", path,
                         got, TOKENS_HEADER_BYTES);
    int code = token_header_count(header, path, count, e);
    *file_bytes = (size_t)st.st_size;
    return code ? code : check_size(path, *file_bytes, *count, e);
}

int token_file_count(const char *path, size_t *count, struct Error *e) {
    size_t file_bytes;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(e, -errno, "--data %s: %s", path, strerror(errno));
    int code = read_count(fd, path, count, &file_bytes, e);
    close(fd);
    return code;
}

static int check_ids(const struct TokenFile *f, const char *path, size_t vocab, struct Error *e) {
    uint16_t largest = 0;
    for (size_t i = 0; i < f->count; i++)
        largest = f->ids[i] > largest ? f->ids[i] : largest;
    if (largest < vocab)
        return 0;
    size_t at = 0;
    while (f->ids[at] < vocab)
        at++;
    return error_set(e, -EINVAL,
                     "--data %s: token %zu has id %u, outside the vocabulary of %zu (the largest "
                     "id in the file is %u): another tokenizer made it",
                     path, at, f->ids[at], vocab, largest);
}

int token_file_open(struct TokenFile *f, const char *path, size_t vocab, struct Error *e) {
    *f = (struct TokenFile){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(e, -errno, "--data %s: %s", path, strerror(errno));
    int code = read_count(fd, path, &f->count, &f->map_bytes, e);
    if (!code) {
        f->map = mmap(NULL, f->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (f->map == MAP_FAILED) {
            f->map = NULL;
            code = error_set(e, -errno, "--data %s: cannot map %zu bytes: %s", path, f->map_bytes,
                             strerror(errno));
        }
    }
    close(fd);
    if (code)
        return code;
    f->ids = (const uint16_t *)((const char *)f->map + TOKENS_HEADER_BYTES);
    code = check_ids(f, path, vocab, e);
    if (code)
        token_file_close(f);
    return code;
}

void token_file_close(struct TokenFile *f) {
    if (f->map)
        munmap(f->map, f->map_bytes);
    *f = (struct TokenFile){0};
}

int token_writer_open(struct TokenWriter *w, const char *path, struct Error *e) {
    static const char zeros[TOKENS_HEADER_BYTES];
    *w = (struct TokenWriter){0};
    int code = file_aside_open(&w->aside, path, e);
    if (code)
        return code;
    w->buffer = base_alloc(BUFFER_IDS * sizeof *w->buffer);
    code = file_write(w->aside.fd, w->aside.path, zeros, sizeof zeros, e); // finish() fills it in
    if (code)
        token_writer_abandon(w);
    return code;
}

static int flush(struct TokenWriter *w, struct Error *e) {
    size_t bytes = w->buffered * sizeof *w->buffer;
    w->buffered = 0;
    return file_write(w->aside.fd, w->aside.path, w->buffer, bytes, e);
}

int token_writer_append(struct TokenWriter *w, const int32_t *ids, size_t count, struct Error *e) {
    for (size_t i = 0; i < count; i++) {
        CHECK(ids[i] >= 0 && ids[i] < TOKENS_VOCAB_MAX, "id %d does not fit 16 bits", ids[i]);
        w->buffer[w->buffered++] = (uint16_t)ids[i];
        if (w->buffered == BUFFER_IDS) {
            int code = flush(w, e);
            if (code)
                return code;
        }
    }
    w->count += count;
    if (w->count > INT32_MAX)
        return error_set(e, -EINVAL,
                         "cannot write %s: a token shard holds at most 2147483647 tokens; split "
                         "the text into several shards",
                         w->aside.path);
    return 0;
}

static int write_header(struct TokenWriter *w, struct Error *e) {
    int32_t header[3] = {MAGIC, VERSION, (int32_t)w->count};
    if (lseek(w->aside.fd, 0, SEEK_SET) < 0)
        return error_set(e, -errno, "cannot write %s: %s", w->aside.path, strerror(errno));
    return file_write(w->aside.fd, w->aside.path, header, sizeof header, e);
}

int token_writer_finish(struct TokenWriter *w, struct Error *e) {
    int code = flush(w, e);
    if (!code)
        code = write_header(w, e);
    if (code) {
        token_writer_abandon(w);
        return code;
    }
    free(w->buffer);
    w->buffer = NULL;
    return file_aside_commit(&w->aside, e);
}

void token_writer_abandon(struct TokenWriter *w) {
    free(w->buffer);
    w->buffer = NULL;
    file_aside_abandon(&w->aside);
}
