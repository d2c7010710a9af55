// Token shards: files of ids, in the format of llm.c.
//
//   bytes 0..1023   256 int32 in little-endian order: 20240520, version 1, number of ids, zeros
//   then            one uint16 per id
//
// A shard is mapped into memory, not read: the pages that training touches come from the disk when
// they are touched. Written by data/text/prepare.c, read by data/text/loader.c; the format by
// others too.
#ifndef DATA_TEXT_TOKENS_H
#define DATA_TEXT_TOKENS_H
#include "data/file.h"

enum { TOKENS_HEADER_BYTES = 1024, TOKENS_VOCAB_MAX = 65536 };

struct TokenFile {
    const uint16_t *ids; // (count)
    size_t count;
    void *map;
    size_t map_bytes;
};

// Does this file begin like a shard? False too for files that cannot be read or are shorter than 4
// bytes.
bool token_file_detect(const char *path);

// Reads the number of ids out of a header. `name` stands in the error lines.
// Errors: -EINVAL for a foreign file, another version, or no ids.
int token_header_count(const void *header, const char *name, size_t *count, struct Error *e);

// Opens the header alone and compares it with the file's size: cheap, for shards not needed yet.
int token_file_count(const char *path, size_t *count, struct Error *e);

// Maps a shard and reads every id once, to be sure that none is `vocab` or above.
// Errors: -errno of open and mmap, -EINVAL for a file that is foreign, cut, too long, or of another
// vocabulary.
int token_file_open(struct TokenFile *f, const char *path, size_t vocab, struct Error *e);
void token_file_close(struct TokenFile *f);

// A shard in the making. The file appears under its name when it is whole.
struct TokenWriter {
    struct FileAside aside;
    uint16_t *buffer;
    size_t buffered, count;
};

// After a successful open exactly one of finish and abandon must follow. Errors: -errno; -EINVAL
// past 2^31
// - 1 ids, which the header cannot say.
int token_writer_open(struct TokenWriter *w, const char *path, struct Error *e);
int token_writer_append(struct TokenWriter *w, const int32_t *ids, size_t count, struct Error *e);
int token_writer_finish(struct TokenWriter *w, struct Error *e); // a failure has abandoned
void token_writer_abandon(struct TokenWriter *w);

#endif
