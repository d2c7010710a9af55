// Token shards: files of ids, in three formats, each of a header of 1,024 bytes and what is behind.
//
//   llm.c, 16 bits   256 int32, little-endian: 20240520, version 1, number of ids, zeros; then one
//                    uint16 per id
//   llm.c, 32 bits   the same with 20240801 and version 7; then one uint32 per id
//   llmq, 32 bits    "BIN.TOK\n", then int32: version 2, bytes of an id (4), number of ids,
//                    vocabulary, 1 where there is a mask; then one int32 per id; then, where there
//                    is one, the mask: a bit per id, the lowest bit of a byte first
//
// The first two are written by llm.c's dev/data/data_common.py, the third by llmq's
// scripts/tokenize_data.py and read by its src/training/dataloader.cpp (IST-DASLab/llmq). Bit i of
// the mask says what that loader takes it for: whether the target at place i counts, which is id
// i + 1. (Its own writer sets bit i for id i, one place later.)
//
// Documents, which only this project has, are a second array of bits behind the mask: bit i is set
// where a document begins with id i. A file that has them says "DOCSTART" in bytes 28..35 of its
// header, which llmq's loader does not look at; it reads ids and mask at the places that follow
// from their number and never asks how long the file is, so it passes over what is behind. A target
// in another document than its input never counts, and the mask says so, too.
//
// The file belongs to others, who may cut or change it while training reads it. So it is not mapped
// into memory, where a missing page ends the process: what training needs is read when it needs it,
// and what was read is checked each time, for its length, for ids outside the vocabulary, and for a
// file that has been written to since it was opened. Written by data/text/prepare.c and
// data/text/examples.c, read by data/text/shards.c; the formats by others too. The code lies in
// tokens_layout.c (headers), tokens.c (reading) and tokens_write.c.
#ifndef DATA_TEXT_TOKENS_H
#define DATA_TEXT_TOKENS_H
#include "data/file.h"

enum {
    TOKENS_HEADER_BYTES = 1024,
    TOKENS_NARROW_MAX = 65536, // vocabulary that 16 bits hold
    TOKENS_VOCAB_MAX = INT32_MAX
};

// What a header says.
struct TokenLayout {
    size_t count, id_bytes; // 2 or 4
    bool masked, documents; // which arrays of bits are there
};

enum TokenBits { TOKEN_COUNTS, TOKEN_STARTS };

// The bytes of the whole file, and where its ids end.
uint64_t token_layout_bytes(const struct TokenLayout *l);
uint64_t token_layout_ids_end(const struct TokenLayout *l);

// Reads a header (TOKENS_HEADER_BYTES). `name` stands in the error lines. Errors: -EINVAL for a
// foreign file, another version, or no ids.
int token_header_read(const void *header, const char *name, struct TokenLayout *l, struct Error *e);

struct TokenFile {
    char *path; // NULL: it is not open
    size_t count, vocab;
    struct TokenLayout layout;
    int fd;
    struct stat opened; // as it was then
    bool checked;       // no id was outside of the vocabulary then
};

// Whether the file begins like a shard. False, too, for files that cannot be read, are too short or
// not regular.
bool token_file_detect(const char *path);
bool token_bytes_detect(const void *bytes, size_t n); // of what is in memory already

// Opens a shard, reads its header and compares it with the file's size; its ids are checked when
// they are read. Errors: those of token_file_open.
int token_file_attach(struct TokenFile *f, const char *path, size_t vocab, struct Error *e);

// Reads every id once, to be sure that none is `vocab` or above. (In pieces of 1 MiB: of what is in
// the page cache, 5 GB/s on one core, where a mapping had 7.) Errors: -errno of read, -EINVAL.
int token_file_check(struct TokenFile *f, struct Error *e);

// Both. Errors: -errno of open and read, -EINVAL for a file that is foreign, cut, too long, or of
// another vocabulary.
int token_file_open(struct TokenFile *f, const char *path, size_t vocab, struct Error *e);
void token_file_close(struct TokenFile *f); // one that is not open: nothing

// Reads ids at .. at + n - 1, which are within the count; any number of threads may. Errors: -errno
// of read; -EIO, with the file's name, where it has changed since it was opened; -EINVAL for an id
// of another vocabulary that no check has found.
int token_file_read(const struct TokenFile *f, size_t at, size_t n, int32_t *ids, struct Error *e);

// Reads bits at .. at + n - 1 of an array that the layout has, a byte for each: 0 or 1. Errors: the
// same.
int token_file_read_bits(const struct TokenFile *f, enum TokenBits which, size_t at, size_t n,
                         uint8_t *bits, struct Error *e);

// A shard in the making. The file appears under its name when it is whole.
struct TokenWriter {
    struct AtomicFile tmp;
    struct TokenLayout layout;
    size_t vocab;
    char *buffer;
    size_t buffered, count; // ids
    uint8_t *bits[2];       // of documents, by enum TokenBits
    size_t bits_room;       // bytes of each
};

// After a successful open exactly one of finish and abandon must follow. The first makes llm.c's
// 16 bits, of any id that fits; the second llmq's 32 bits for ids below `vocab`, with documents or
// without. Errors: -errno; -EINVAL past 2^31 - 1 ids, which the header cannot say.
int token_writer_open(struct TokenWriter *w, const char *path, struct Error *e);
int token_writer_open_wide(struct TokenWriter *w, const char *path, size_t vocab, bool documents,
                           struct Error *e);
int token_writer_append(struct TokenWriter *w, const int32_t *ids, size_t count, struct Error *e);

// Appends a document, where there are documents. counts[i]: the loss of predicting ids[i] counts;
// NULL: of all. counts[0] is not looked at.
int token_writer_document(struct TokenWriter *w, const int32_t *ids, const uint8_t *counts,
                          size_t count, struct Error *e);
int token_writer_finish(struct TokenWriter *w, struct Error *e); // a failure has abandoned
void token_writer_abandon(struct TokenWriter *w);

#endif
