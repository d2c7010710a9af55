// Token shards: files of ids, in the format of llm.c.
//
//   bytes 0..1023   256 int32 in little-endian order: 20240520, version 1, number of ids, zeros
//   then            one uint16 per id
//
// The file belongs to others, who may cut or change it while training reads it. So it is not mapped
// into memory, where a missing page ends the process: what training needs is read when it needs it,
// and what was read is checked each time, for its length, for ids outside the vocabulary, and for a
// file that has been written to since it was opened. Written by data/text/prepare.c, read by
// data/text/loader.c; the format by others too.
#ifndef DATA_TEXT_TOKENS_H
#define DATA_TEXT_TOKENS_H
#include "data/file.h"

enum { TOKENS_HEADER_BYTES = 1024, TOKENS_VOCAB_MAX = 65536 };

struct TokenFile {
    char *path; // NULL: it is not open
    size_t count, vocab;
    int fd;             // -1: put aside
    struct stat opened; // as it was then
};

// Does this file begin like a shard? False too for files that cannot be read, are shorter than 4
// bytes or are no regular files.
bool token_file_detect(const char *path);
bool token_bytes_detect(const void *bytes, size_t n); // of what is in memory already

// Reads the number of ids out of a header. `name` stands in the error lines.
// Errors: -EINVAL for a foreign file, another version, or no ids.
int token_header_count(const void *header, const char *name, size_t *count, struct Error *e);

// Opens the header alone and compares it with the file's size: cheap, for shards not needed yet.
int token_file_count(const char *path, size_t *count, struct Error *e);

// Opens a shard and reads every id once, to be sure that none is `vocab` or above. (In pieces of
// 1 MiB: of what is in the page cache, 5 GB/s on one core, where a mapping had 7.)
// Errors: -errno of open and read, -EINVAL for a file that is foreign, cut, too long, or of another
// vocabulary.
int token_file_open(struct TokenFile *f, const char *path, size_t vocab, struct Error *e);
void token_file_close(struct TokenFile *f); // one that is not open: nothing

// Reads ids at .. at + n - 1, which are within the count. Errors: -errno of read; -EIO, with the
// file's name, where it has changed since it was opened.
int token_file_read(struct TokenFile *f, size_t at, size_t n, int32_t *ids, struct Error *e);

// Gives up the descriptor; the next read opens the same file again, or says that it is another.
void token_file_put_aside(struct TokenFile *f);

// A shard in the making. The file appears under its name when it is whole.
struct TokenWriter {
    struct FileAside aside;
    uint16_t *buffer;
    size_t buffered, count;
};

// After a successful open exactly one of finish and abandon must follow. Errors: -errno; -EINVAL
// past 2^31 - 1 ids, which the header cannot say.
int token_writer_open(struct TokenWriter *w, const char *path, struct Error *e);
int token_writer_append(struct TokenWriter *w, const int32_t *ids, size_t count, struct Error *e);
int token_writer_finish(struct TokenWriter *w, struct Error *e); // a failure has abandoned
void token_writer_abandon(struct TokenWriter *w);

#endif
