// The fields of the headers of token shards, for tokens_layout.c and tokens_write.c. See tokens.h.
#ifndef DATA_TEXT_TOKENS_LAYOUT_H
#define DATA_TEXT_TOKENS_LAYOUT_H

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

extern const char tokens_magic[TOKENS_MAGIC_BYTES + 1], tokens_documents[9];

#endif
