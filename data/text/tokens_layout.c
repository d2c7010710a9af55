// Reads the headers of token shards: see tokens.h for their formats.
#include "data/text/tokens.h"
#include "data/text/tokens_layout.h"

#include <errno.h>
#include <string.h>

const char tokens_magic[TOKENS_MAGIC_BYTES + 1] = "BIN.TOK\n", tokens_documents[] = "DOCSTART";

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

uint64_t token_layout_ids_end(const struct TokenLayout *l) {
    return TOKENS_HEADER_BYTES + (uint64_t)l->id_bytes * l->count;
}

uint64_t token_layout_bytes(const struct TokenLayout *l) {
    uint64_t array = (l->count + 7) / 8;
    return token_layout_ids_end(l) + (l->masked ? array : 0) + (l->has_documents ? array : 0);
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

int token_header_read(const void *header, const char *name, struct TokenLayout *l,
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
