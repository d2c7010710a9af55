// Reads and writes token shards: see tokens.h for their formats. Every way in which a file can be
// wrong, when it is opened or later, is told here, so that no other code has to doubt an id.
#include "data/text/tokens.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHECK_BYTES = 1 << 20, READ_IDS = 4096, BUFFER_IDS = 32768 };
#define OTHER_VOCAB "raise --vocab, or use the tokenizer that made the file"

// ---- the header ---------------------------------------------------------------------------------

enum {
    NARROW_MAGIC = 20240520,
    NARROW_VERSION = 1,
    WIDE_MAGIC = 20240801,
    WIDE_VERSION = 7,
    TOKENS_MAGIC_BYTES = 8,
    LLMQ_VERSION_READ = 2,
    // Indices of llmq's int32.
    LLMQ_VERSION = 2,
    LLMQ_ID_BYTES = 3,
    LLMQ_COUNT = 4,
    LLMQ_VOCAB = 5,
    LLMQ_MASKED = 6,
    DOCUMENTS_AT = 28, // offset in bytes, after them
};

static const char tokens_magic[] = "BIN.TOK\n", tokens_documents[] = "DOCSTART";

static int32_t int_at(const void *header, size_t i) {
    int32_t value;
    memcpy(&value, (const char *)header + i * sizeof value, sizeof value);
    return value;
}

bool token_bytes_detect(const void *bytes, size_t n) {
    int32_t first = n >= sizeof first ? int_at(bytes, 0) : 0;
    return first == NARROW_MAGIC || first == WIDE_MAGIC ||
           (n >= TOKENS_MAGIC_BYTES && !memcmp(bytes, tokens_magic, TOKENS_MAGIC_BYTES));
}

static uint64_t ids_end(const struct TokenLayout *l) {
    return TOKENS_HEADER_BYTES + (uint64_t)l->id_bytes * l->count;
}

uint64_t token_layout_bytes(const struct TokenLayout *l) {
    uint64_t array = (l->count + 7) / 8;
    return ids_end(l) + (l->masked ? array : 0) + (l->has_documents ? array : 0);
}

static int refuse_version(const char *name, int32_t version, int32_t only, struct Error *e) {
    return error_set(e, -EINVAL, E_SHARD_HEADER,
                     "--data %s: token shard of version %d; only version %d is read: make the "
                     "shard again, or give the text itself as --data",
                     name, version, only);
}

// Reads llmq's header, with our documents or without.
static int read_llmq(const char *header, const char *name, struct TokenLayout *l, int32_t *count,
                     struct Error *e) {
    int32_t version = int_at(header, LLMQ_VERSION), bytes = int_at(header, LLMQ_ID_BYTES);
    int32_t masked = int_at(header, LLMQ_MASKED);
    if (version != LLMQ_VERSION_READ)
        return refuse_version(name, version, LLMQ_VERSION_READ, e);
    if (bytes != 4 || masked < 0 || masked > 1)
        return error_set(
            e, -EINVAL, E_SHARD_HEADER,
            "--data %s: the shard's header says %s %d; expected %s: make the shard again", name,
            bytes != 4 ? "bytes of an id:" : "mask:", bytes != 4 ? bytes : masked,
            bytes != 4 ? "4" : "0 or 1");
    l->id_bytes = 4;
    l->masked = masked;
    l->has_documents =
        !memcmp(header + DOCUMENTS_AT, tokens_documents, sizeof tokens_documents - 1);
    *count = int_at(header, LLMQ_COUNT);
    return 0;
}

static int read_fields(const char *header, const char *name, struct TokenLayout *l,
                       struct Error *e) {
    int32_t magic = int_at(header, 0), version = int_at(header, 1), count = int_at(header, 2);
    int code = 0;
    *l = (struct TokenLayout){.id_bytes = magic == NARROW_MAGIC ? 2 : 4};
    if (!memcmp(header, tokens_magic, TOKENS_MAGIC_BYTES))
        code = read_llmq(header, name, l, &count, e);
    else if (magic != NARROW_MAGIC && magic != WIDE_MAGIC)
        code = error_set(e, -EINVAL, E_SHARD_HEADER,
                         "--data %s: this is not a token shard: it begins with %d, not with %d, %d "
                         "or BIN.TOK; give the text itself as --data",
                         name, magic, NARROW_MAGIC, WIDE_MAGIC);
    else if (version != (magic == NARROW_MAGIC ? NARROW_VERSION : WIDE_VERSION))
        code =
            refuse_version(name, version, magic == NARROW_MAGIC ? NARROW_VERSION : WIDE_VERSION, e);
    if (!code && count <= 0)
        code = error_set(
            e, -EINVAL, E_SHARD_HEADER,
            "--data %s: the shard's header says %d tokens, not 1 or more; make the shard again",
            name, count);
    l->count = code ? 0 : (size_t)count;
    return code;
}

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
    int code = read_fields(header, path, l, e);
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
    uint64_t from = ids_end(l);
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

// ---- writing ------------------------------------------------------------------------------------

// Ids are written as they come; the bits of documents, a sixteenth of their size, wait for the end.
int token_writer_open(struct TokenWriter *w, const char *path, size_t vocab, bool has_documents,
                      struct Error *e) {
    static const char zeros[TOKENS_HEADER_BYTES];
    bool wide = has_documents || vocab > TOKENS_NARROW_MAX;
    *w = (struct TokenWriter){.layout = {.id_bytes = wide ? 4 : 2,
                                         .masked = has_documents,
                                         .has_documents = has_documents},
                              .vocab = vocab};
    int code = atomic_file_open(&w->tmp, path, e);
    if (code)
        return code;
    w->buffer = base_alloc(BUFFER_IDS * w->layout.id_bytes);
    code = file_write(w->tmp.fd, w->tmp.path, zeros, sizeof zeros, e); // finish() fills it in
    if (code)
        token_writer_abandon(w);
    return code;
}

static int flush_ids(struct TokenWriter *w, struct Error *e) {
    size_t bytes = w->buffered * w->layout.id_bytes;
    w->buffered = 0;
    return file_write(w->tmp.fd, w->tmp.path, w->buffer, bytes, e);
}

int token_writer_append(struct TokenWriter *w, const int32_t *ids, size_t count, struct Error *e) {
    uint16_t *narrow = (uint16_t *)w->buffer;
    int32_t *wide = (int32_t *)w->buffer;
    for (size_t i = 0; i < count; i++) {
        CHECK(ids[i] >= 0 && (size_t)ids[i] < w->vocab, "id %d of a vocabulary of %zu", ids[i],
              w->vocab);
        if (w->layout.id_bytes == 2)
            narrow[w->buffered++] = (uint16_t)ids[i];
        else
            wide[w->buffered++] = ids[i];
        if (w->buffered == BUFFER_IDS) {
            int code = flush_ids(w, e);
            if (code)
                return code;
        }
    }
    w->count += count;
    if (w->count > INT32_MAX)
        return error_set(e, -EINVAL, E_FILE_TOO_LARGE,
                         "cannot write %s: its text has more than 2147483647 tokens, the most that "
                         "a token shard holds; cut the text into files, each a --data of its own",
                         w->tmp.path);
    return 0;
}

static void grow_bits(struct TokenWriter *w, size_t count) {
    size_t need = (count + 7) / 8, before = w->bits_room;
    if (need <= before)
        return;
    w->bits_room = size_max(2 * before, need);
    for (int b = 0; b < 2; b++) {
        w->bits[b] = base_realloc(w->bits[b], w->bits_room, "masks of tokens");
        memset(w->bits[b] + before, 0, w->bits_room - before);
    }
}

int token_writer_document(struct TokenWriter *w, const int32_t *ids, const uint8_t *counts,
                          size_t count, struct Error *e) {
    CHECK(w->layout.has_documents && count, "a document of %zu ids", count);
    size_t first = w->count;
    int code = token_writer_append(w, ids, count, e);
    if (code)
        return code;
    grow_bits(w, w->count);
    w->bits[TOKEN_STARTS][first / 8] |= (uint8_t)(1 << first % 8);
    for (size_t i = 1; i < count; i++) // id i is the target of position i - 1
        if (!counts || counts[i])
            w->bits[TOKEN_COUNTS][(first + i - 1) / 8] |= (uint8_t)(1 << (first + i - 1) % 8);
    return 0;
}

static int write_header(struct TokenWriter *w, struct Error *e) {
    int32_t header[TOKENS_HEADER_BYTES / 4] = {NARROW_MAGIC, NARROW_VERSION, (int32_t)w->count};
    if (w->layout.id_bytes == 4) {
        memcpy(header, tokens_magic, TOKENS_MAGIC_BYTES);
        header[LLMQ_VERSION] = LLMQ_VERSION_READ;
        header[LLMQ_ID_BYTES] = 4;
        header[LLMQ_COUNT] = (int32_t)w->count;
        header[LLMQ_VOCAB] = (int32_t)w->vocab;
        header[LLMQ_MASKED] = w->layout.masked;
    }
    if (w->layout.has_documents)
        memcpy((char *)header + DOCUMENTS_AT, tokens_documents, sizeof tokens_documents - 1);
    if (lseek(w->tmp.fd, 0, SEEK_SET) < 0)
        return error_io(e, -errno, E_FILE_WRITE, "cannot write %s", w->tmp.path);
    return file_write(w->tmp.fd, w->tmp.path, header, w->layout.id_bytes == 4 ? sizeof header : 12,
                      e);
}

static void free_buffers(struct TokenWriter *w) {
    free(w->buffer);
    free(w->bits[0]);
    free(w->bits[1]);
    w->buffer = NULL;
    w->bits[0] = w->bits[1] = NULL;
}

int token_writer_finish(struct TokenWriter *w, struct Error *e) {
    int code = flush_ids(w, e);
    for (int b = 0; !code && b < 2 && w->layout.has_documents; b++)
        code = file_write(w->tmp.fd, w->tmp.path, w->bits[b], (w->count + 7) / 8, e);
    if (!code)
        code = write_header(w, e);
    if (code) {
        token_writer_abandon(w);
        return code;
    }
    free_buffers(w);
    return atomic_file_commit(&w->tmp, e);
}

void token_writer_abandon(struct TokenWriter *w) {
    free_buffers(w);
    atomic_file_abandon(&w->tmp);
}
