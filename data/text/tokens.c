// Reading token shards: see tokens.h for their formats. Every way in which a file can be wrong,
// when it is opened or later, is told here, so that no other code has to doubt an id.
#include "data/text/tokens.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHECK_BYTES = 1 << 20, READ_IDS = 4096 };
#define OTHER_VOCAB "raise --vocab, or use the tokenizer that made the file"

bool token_file_detect(const char *path) {
    char begin[8];
    struct stat st;
    struct Error ignored; // whoever reads the file will say it
    int fd;
    if (file_open(path, "", &fd, &st, &ignored))
        return false;
    ssize_t got = file_pread(fd, begin, sizeof begin, 0);
    close(fd);
    return got > 0 && token_bytes_detect(begin, (size_t)got);
}

// Checks that the file has the size that its header says.
static int check_size(const char *path, uint64_t file_bytes, const struct TokenLayout *l,
                      struct Error *e) {
    uint64_t want = token_layout_bytes(l);
    if (file_bytes == want)
        return 0;
    return error_set(e, -EINVAL, E_SHARD_SIZE,
                     "--data %s: the file is %s: its header says %zu tokens, which take %llu "
                     "bytes, but it has %llu; make the shard again",
                     path, file_bytes < want ? "cut short" : "too long", l->count,
                     (unsigned long long)want, (unsigned long long)file_bytes);
}

static int cannot_read(const char *path, int code, struct Error *e) {
    return error_io(e, code, E_FILE_READ, "--data %s: cannot read the token shard", path);
}

static int read_layout(int fd, const char *path, uint64_t file_bytes, struct TokenLayout *l,
                       struct Error *e) {
    char header[TOKENS_HEADER_BYTES];
    ssize_t got = file_pread(fd, header, sizeof header, 0);
    if (got < 0)
        return cannot_read(path, (int)got, e);
    if (got < TOKENS_HEADER_BYTES)
        return error_set(e, -EINVAL, E_SHARD_SIZE,
                         "--data %s: %zd bytes are not a token shard, whose header takes %d; make "
                         "the shard again",
                         path, got, TOKENS_HEADER_BYTES);
    int code = token_header_read(header, path, l, e);
    return code ? code : check_size(path, file_bytes, l, e);
}

// ---- what changes underneath --------------------------------------------------------------------

static int refuse_changed(const struct TokenFile *f, const char *how, struct Error *e) {
    return error_set(e, -EIO, E_FILE_CHANGED,
                     "--data %s: the file has changed during this run: %s; start again", f->path,
                     how);
}

static bool has_same_size_and_time(const struct stat *a, const struct stat *b) {
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

// Checks that nobody has written to the file since it was opened. Takes one fstat, half a
// microsecond. A write that it cannot see yet is seen at the next read.
static int check_unchanged(const struct TokenFile *f, struct Error *e) {
    struct stat now;
    char how[96];
    if (fstat(f->fd, &now))
        return cannot_read(f->path, -errno, e);
    if (has_same_size_and_time(&now, &f->opened))
        return 0;
    snprintf(how, sizeof how, "it has %lld bytes, where it had %lld", (long long)now.st_size,
             (long long)f->opened.st_size);
    return refuse_changed(f, now.st_size == f->opened.st_size ? "it was written to" : how, e);
}

// Reads n bytes at byte `at` of the file, which are there unless it has changed.
static int read_bytes(const struct TokenFile *f, void *bytes, size_t n, uint64_t at,
                      struct Error *e) {
    ssize_t got = file_pread(f->fd, bytes, n, at);
    if (got < 0)
        return cannot_read(f->path, (int)got, e);
    int code = check_unchanged(f, e);
    return code || (size_t)got == n ? code : refuse_changed(f, "it ends too early", e);
}

static uint32_t id_at(const void *ids, size_t id_bytes, size_t i) {
    return id_bytes == 2 ? ((const uint16_t *)ids)[i] : ((const uint32_t *)ids)[i];
}

static int refuse_id(const struct TokenFile *f, size_t at, uint32_t id, struct Error *e) {
    char how[96];
    snprintf(how, sizeof how, "token %zu has id %u, outside the vocabulary of %zu", at, id,
             f->vocab);
    return f->checked
               ? refuse_changed(f, how, e)
               : error_set(e, -EINVAL, E_SHARD_VOCAB, "--data %s: %s; " OTHER_VOCAB, f->path, how);
}

int token_file_read(const struct TokenFile *f, size_t at, size_t n, int32_t *ids, struct Error *e) {
    uint32_t piece[READ_IDS];
    size_t width = f->layout.id_bytes;
    int code = 0;
    for (size_t i = 0, m; !code && i < n; i += m) {
        m = size_min(n - i, READ_IDS);
        code = read_bytes(f, piece, m * width, TOKENS_HEADER_BYTES + (uint64_t)width * (at + i), e);
        for (size_t k = 0; !code && k < m; k++) {
            uint32_t id = id_at(piece, width, k);
            ids[i + k] = (int32_t)id;
            if (id >= f->vocab)
                code = refuse_id(f, at + i + k, id, e);
        }
    }
    return code;
}

int token_file_read_bits(const struct TokenFile *f, enum TokenBits which, size_t at, size_t n,
                         uint8_t *bits, struct Error *e) {
    uint8_t piece[READ_IDS];
    const struct TokenLayout *l = &f->layout;
    CHECK(which == TOKEN_COUNTS ? l->masked : l->has_documents, "%s has no such bits", f->path);
    uint64_t from = token_layout_ids_end(l);
    if (which == TOKEN_STARTS && l->masked)
        from += (l->count + 7) / 8;
    int code = 0;
    for (size_t i = 0, m; !code && i < n; i += m) {
        size_t skip = (at + i) % 8;
        m = size_min(n - i, 8 * READ_IDS - skip);
        code = read_bytes(f, piece, (skip + m + 7) / 8, from + (at + i) / 8, e);
        for (size_t k = 0; !code && k < m; k++)
            bits[i + k] = piece[(skip + k) / 8] >> (skip + k) % 8 & 1;
    }
    return code;
}

// ---- opening ------------------------------------------------------------------------------------

static uint32_t largest_id(const void *ids, size_t id_bytes, size_t n) {
    const uint16_t *narrow = ids;
    const uint32_t *wide = ids;
    uint16_t largest = 0;
    uint32_t most = 0;
    for (size_t i = 0; i < n && id_bytes == 2; i++)
        largest = narrow[i] > largest ? narrow[i] : largest;
    for (size_t i = 0; i < n && id_bytes == 4; i++)
        most = wide[i] > most ? wide[i] : most;
    return most > largest ? most : largest;
}

int token_file_check(struct TokenFile *f, struct Error *e) {
    size_t width = f->layout.id_bytes, piece_ids = CHECK_BYTES / width, bad_at = f->count;
    void *piece = base_alloc(CHECK_BYTES);
    uint32_t largest = 0, bad_id = 0;
    int code = 0;
    for (size_t at = 0, n; !code && at < f->count; at += n) {
        n = size_min(f->count - at, piece_ids);
        code = read_bytes(f, piece, n * width, TOKENS_HEADER_BYTES + (uint64_t)width * at, e);
        uint32_t here = code ? 0 : largest_id(piece, width, n);
        for (size_t i = 0; here >= f->vocab && bad_at == f->count; i++)
            if (id_at(piece, width, i) >= f->vocab)
                bad_at = at + i, bad_id = id_at(piece, width, i);
        largest = here > largest ? here : largest;
    }
    free(piece);
    f->checked = !code && bad_at == f->count;
    if (code || f->checked)
        return code;
    return error_set(
        e, -EINVAL, E_SHARD_VOCAB,
        "--data %s: token %zu has id %u, outside the vocabulary of %zu (the largest id in the file "
        "is %u); " OTHER_VOCAB,
        f->path, bad_at, bad_id, f->vocab, largest);
}

int token_file_attach(struct TokenFile *f, const char *path, size_t vocab, struct Error *e) {
    *f = (struct TokenFile){.fd = -1, .vocab = vocab};
    int code = file_open(path, "--data", &f->fd, &f->opened, e);
    if (code)
        return code;
    f->path = base_format("%s", path);
    code = read_layout(f->fd, path, (uint64_t)f->opened.st_size, &f->layout, e);
    f->count = f->layout.count;
    if (code)
        token_file_close(f);
    return code;
}

void token_file_close(struct TokenFile *f) {
    if (f->path)
        close(f->fd);
    free(f->path);
    *f = (struct TokenFile){.fd = -1};
}
