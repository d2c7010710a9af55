// Token shards: files of ids, in three formats, each with a header of 1,024 bytes.
//
//   llm.c, 16 bits   256 int32, little-endian: 20240520, version 1, number of ids, zeros; then one
//                    uint16 per id
//   llm.c, 32 bits   the same with 20240801 and version 7; then one uint32 per id
//   llmq, 32 bits    "BIN.TOK\n", then int32: version 2, bytes of an id (4), number of ids,
//                    vocabulary, 1 if there is a mask; then one int32 per id; then the mask, if
//                    there is one: a bit per id, the lowest bit of a byte first
//
// The first two are written by llm.c's dev/data/data_common.py, the third by llmq's
// scripts/tokenize_data.py and read by its src/training/dataloader.cpp (IST-DASLab/llmq). Bit i of
// the mask has the meaning that this loader gives it: the target at position i, which is id i + 1,
// counts. (llmq's own writer sets bit i for id i, one position later.)
//
// Documents, which only this project has, are a second array of bits after the mask: bit i is set
// if a document begins with id i. A file with documents has "DOCSTART" in bytes 28..35 of its
// header, which llmq's loader ignores; it computes the offsets of ids and mask from their number
// and does not check the file's length, so it ignores the second array, too. A target in another
// document than its input never counts, and its bit of the mask is 0.
//
// Other programs may cut or change the file while training reads it. So it is not mapped into
// memory, where a missing page ends the process. Each read checks its length, the ids against the
// vocabulary, and that the file has not been written to since it was opened. Written by
// data/text/prepare.c and data/text/examples.c, read by data/text/shards.c.
#ifndef DATA_TEXT_TOKENS_H
#define DATA_TEXT_TOKENS_H
#include "data/file.h"

enum {
    TOKENS_HEADER_BYTES = 1024,
    TOKENS_NARROW_MAX = 65536, // the largest vocabulary of 16-bit ids
    TOKENS_VOCAB_MAX = INT32_MAX
};

// The contents of a header.
struct TokenLayout {
    size_t count, id_bytes;     // id_bytes: 2 or 4
    bool masked, has_documents; // the file has the mask, and the bits of documents
};

// Bit i says: the target at position i counts; a document begins with id i.
enum TokenBits { TOKEN_COUNTS, TOKEN_STARTS };

// Returns the bytes of the whole file.
uint64_t token_layout_bytes(const struct TokenLayout *l);

struct TokenFile {
    char *path; // NULL: it is not open
    size_t count, vocab;
    struct TokenLayout layout;
    int fd;
    struct stat opened; // its state when it was opened
    bool checked;       // all ids were in the vocabulary then
};

// True if the file begins like a shard. False for files that cannot be read, are too short or not
// regular.
bool token_file_detect(const char *path);
bool token_bytes_detect(const void *bytes, size_t n); // the same for bytes in memory

// Opens a shard, reads its header and compares it with the file's size; its ids are checked when
// they are read. Errors: -errno of open and read; -EINVAL for a file of another format, truncated
// or too long.
int token_file_attach(struct TokenFile *f, const char *path, size_t vocab, struct Error *e);

// Reads every id once, to check that all are below `vocab`. (In pieces of 1 MiB: from the page
// cache 5 GB/s on one core, where a mapping had 7.) Errors: -errno of read; -EINVAL for an id of
// another vocabulary.
int token_file_check(struct TokenFile *f, struct Error *e);
void token_file_close(struct TokenFile *f); // does nothing if it is not open

// Reads ids at .. at + n - 1, which must be below the count. Any number of threads may call it.
// Errors: -errno of read; -EIO, with the file's name, if it has changed since it was opened;
// -EINVAL for an id outside of the vocabulary that no check has found.
int token_file_read(const struct TokenFile *f, size_t at, size_t n, int32_t *ids, struct Error *e);

// Reads bits at .. at + n - 1 of an array that the layout has, as bytes 0 or 1. Errors: those
// of token_file_read.
int token_file_read_bits(const struct TokenFile *f, enum TokenBits which, size_t at, size_t n,
                         uint8_t *bits, struct Error *e);

// An unfinished shard. The file appears under its name when it is complete.
struct TokenWriter {
    struct AtomicFile tmp;
    struct TokenLayout layout;
    size_t vocab;
    char *buffer;
    size_t buffered, count; // ids
    uint8_t *bits[2];       // of files with documents, by enum TokenBits
    size_t bits_room;       // capacity of each, in bytes
};

// Begins a shard of ids below `vocab`: in llm.c's 16 bits if they fit and there are no documents,
// else in llmq's 32 bits. After success, exactly one of finish and abandon must follow. Errors:
// -errno.
int token_writer_open(struct TokenWriter *w, const char *path, size_t vocab, bool has_documents,
                      struct Error *e);
// Appends ids. Errors: -errno; -EINVAL past 2^31 - 1 ids, the header's limit.
int token_writer_append(struct TokenWriter *w, const int32_t *ids, size_t count, struct Error *e);

// Appends a document to a file with documents. counts[i]: the loss of predicting ids[i] counts;
// NULL: all count. counts[0] is not used.
int token_writer_document(struct TokenWriter *w, const int32_t *ids, const uint8_t *counts,
                          size_t count, struct Error *e);
int token_writer_finish(struct TokenWriter *w, struct Error *e); // abandons if it fails
void token_writer_abandon(struct TokenWriter *w);

#endif
