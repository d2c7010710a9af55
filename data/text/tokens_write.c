// Writes token shards: see tokens.h. Ids are written as they come; the bits of documents, a
// sixteenth of their size, are kept until the end.
#include "data/text/tokens.h"
#include "data/text/tokens_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_IDS = 32768 };

static int open_writer(struct TokenWriter *w, const char *path, const struct TokenLayout *layout,
                       size_t vocab, struct Error *e) {
    static const char zeros[TOKENS_HEADER_BYTES];
    *w = (struct TokenWriter){.layout = *layout, .vocab = vocab};
    int code = atomic_file_open(&w->tmp, path, e);
    if (code)
        return code;
    w->buffer = base_alloc(BUFFER_IDS * layout->id_bytes);
    code = file_write(w->tmp.fd, w->tmp.path, zeros, sizeof zeros, e); // finish() fills it in
    if (code)
        token_writer_abandon(w);
    return code;
}

int token_writer_open(struct TokenWriter *w, const char *path, struct Error *e) {
    return open_writer(w, path, &(struct TokenLayout){.id_bytes = 2}, TOKENS_NARROW_MAX, e);
}

int token_writer_open_wide(struct TokenWriter *w, const char *path, size_t vocab,
                           bool has_documents, struct Error *e) {
    const struct TokenLayout layout = {
        .id_bytes = 4, .masked = has_documents, .has_documents = has_documents};
    return open_writer(w, path, &layout, vocab, e);
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
