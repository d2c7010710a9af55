// Token shards: see tokens.h for the format. Every way in which a file can be wrong, when it is
// opened or later, is told here, so that no other code has to doubt an id.
#include "data/text/tokens.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int32_t MAGIC = 20240520, VERSION = 1;

enum { BUFFER_IDS = 32768, CHECK_IDS = 1 << 19, READ_IDS = 4096 };

bool token_bytes_detect(const void *bytes, size_t n) {
    int32_t magic = 0;
    if (n >= sizeof magic)
        memcpy(&magic, bytes, sizeof magic);
    return magic == MAGIC;
}

bool token_file_detect(const char *path) {
    char begin[sizeof MAGIC];
    struct stat st;
    struct Error ignored; // whoever reads the file will say it
    int fd;
    if (file_open(path, "", &fd, &st, &ignored))
        return false;
    ssize_t got = file_pread(fd, begin, sizeof begin, 0);
    close(fd);
    return got > 0 && token_bytes_detect(begin, (size_t)got);
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

static int cannot_read(const char *path, int code, struct Error *e) {
    return error_set(e, code, "--data %s: %s", path, strerror(-code));
}

static int read_count(int fd, const char *path, size_t file_bytes, size_t *count, struct Error *e) {
    char header[TOKENS_HEADER_BYTES];
    ssize_t got = file_pread(fd, header, sizeof header, 0);
    if (got < 0)
        return cannot_read(path, (int)got, e);
    if (got < TOKENS_HEADER_BYTES)
        return error_set(e, -EINVAL,
                         "--data %s: %zd bytes are no token shard: its header alone has %d", path,
                         got, TOKENS_HEADER_BYTES);
    int code = token_header_count(header, path, count, e);
    return code ? code : check_size(path, file_bytes, *count, e);
}

int token_file_count(const char *path, size_t *count, struct Error *e) {
    struct stat st;
    int fd, code = file_open(path, "--data", &fd, &st, e);
    if (code)
        return code;
    code = read_count(fd, path, (size_t)st.st_size, count, e);
    close(fd);
    return code;
}

// ---- what changes underneath --------------------------------------------------------------------

static int changed(const struct TokenFile *f, const char *how, struct Error *e) {
    return error_set(e, -EIO, "--data %s: the file has changed during this run: %s", f->path, how);
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

// One call of fstat, half a microsecond; a write that it cannot see yet is seen at the next read.
static int check_unchanged(const struct TokenFile *f, struct Error *e) {
    struct stat now;
    char how[96];
    if (fstat(f->fd, &now))
        return cannot_read(f->path, -errno, e);
    if (is_same(&now, &f->opened))
        return 0;
    snprintf(how, sizeof how, "it has %lld bytes, where it had %lld", (long long)now.st_size,
             (long long)f->opened.st_size);
    return changed(f, now.st_size == f->opened.st_size ? "it was written to" : how, e);
}

static int open_again(struct TokenFile *f, struct Error *e) {
    struct stat now;
    struct Error cause;
    int code = file_open(f->path, "--data", &f->fd, &now, &cause);
    if (code)
        return changed(f, code == -ENOENT ? "it was removed" : cause.text, e);
    if (now.st_dev != f->opened.st_dev || now.st_ino != f->opened.st_ino)
        return changed(f, "another one has its name", e);
    return 0;
}

int token_file_read(struct TokenFile *f, size_t at, size_t n, int32_t *ids, struct Error *e) {
    uint16_t piece[READ_IDS];
    char how[96];
    int code = f->fd < 0 ? open_again(f, e) : 0;
    for (size_t i = 0, m; !code && i < n; i += m) {
        m = size_min(n - i, READ_IDS);
        ssize_t got =
            file_pread(f->fd, piece, m * sizeof *piece, TOKENS_HEADER_BYTES + 2 * (at + i));
        if (got < 0)
            return cannot_read(f->path, (int)got, e);
        code = check_unchanged(f, e);
        if (!code && (size_t)got < m * sizeof *piece)
            code = changed(f, "it ends too early", e);
        for (size_t k = 0; !code && k < m; k++) {
            ids[i + k] = piece[k];
            if (piece[k] < f->vocab)
                continue;
            snprintf(how, sizeof how, "token %zu has id %u, outside the vocabulary of %zu",
                     at + i + k, piece[k], f->vocab);
            code = changed(f, how, e);
        }
    }
    return code;
}

// ---- opening ------------------------------------------------------------------------------------

static int check_ids(const struct TokenFile *f, struct Error *e) {
    uint16_t *piece = base_alloc(CHECK_IDS * sizeof *piece), largest = 0, id = 0;
    size_t bad = f->count;
    int code = 0;
    for (size_t at = 0, n; !code && at < f->count; at += n) {
        uint16_t here = 0;
        n = size_min(f->count - at, CHECK_IDS);
        ssize_t got = file_pread(f->fd, piece, n * sizeof *piece, TOKENS_HEADER_BYTES + 2 * at);
        if (got < 0)
            code = cannot_read(f->path, (int)got, e);
        else if ((size_t)got < n * sizeof *piece)
            code = changed(f, "it ends too early", e);
        if (code)
            break;
        for (size_t i = 0; i < n; i++)
            here = piece[i] > here ? piece[i] : here;
        for (size_t i = 0; here >= f->vocab && bad == f->count; i++)
            if (piece[i] >= f->vocab)
                bad = at + i, id = piece[i];
        largest = here > largest ? here : largest;
    }
    free(piece);
    if (code || bad == f->count)
        return code;
    return error_set(e, -EINVAL,
                     "--data %s: token %zu has id %u, outside the vocabulary of %zu (the largest "
                     "id in the file is %u): another tokenizer made it",
                     f->path, bad, id, f->vocab, largest);
}

int token_file_open(struct TokenFile *f, const char *path, size_t vocab, struct Error *e) {
    *f = (struct TokenFile){.fd = -1, .vocab = vocab};
    int code = file_open(path, "--data", &f->fd, &f->opened, e);
    if (code)
        return code;
    f->path = base_format("%s", path);
    code = read_count(f->fd, path, (size_t)f->opened.st_size, &f->count, e);
    if (!code)
        code = check_ids(f, e);
    if (code)
        token_file_close(f);
    return code;
}

void token_file_put_aside(struct TokenFile *f) {
    if (f->path && f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

void token_file_close(struct TokenFile *f) {
    token_file_put_aside(f);
    free(f->path);
    *f = (struct TokenFile){.fd = -1};
}

// ---- writing ------------------------------------------------------------------------------------

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
