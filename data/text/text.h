// Reads text from files, folders and pipes, as one stretch of valid UTF-8.
//
// Files are joined in the given order, those of folders in the order of their names, with a newline
// after a file that does not end in one. Called by data/text/prepare.c; fuzzed by
// tests/fuzz/fuzz_text.c.
#ifndef DATA_TEXT_TEXT_H
#define DATA_TEXT_TEXT_H
#include "data/text/sources.h"

struct Text {
    char *data; // free() it through text_free
    size_t bytes;
};

// Reads files and folders. In a folder every regular file counts (walk.h), except that one with a
// zero byte in its first 8 KiB is no text, and left out; a log line counts these. Errors: -errno of
// reading; -ENOMEM; for packed files those of data/stream.h, and -EFBIG past a quarter of the
// memory; -EINVAL for a file that is not UTF-8 (with the byte) or has a zero byte, and if there is
// no text.
int text_load(struct Text *t, const struct SourceFile *files, size_t count, struct Error *e);
void text_free(struct Text *t);

// Returns the index of the first byte that is not UTF-8 (RFC 3629: shortest forms, no surrogates,
// nothing above U+10FFFF); `bytes` if there is none.
size_t text_find_invalid(const char *text, size_t bytes);

// Returns the bytes of the training part of valid UTF-8; the last tenth validates. It ends where a
// character begins.
size_t text_split(const char *text, size_t bytes);

#endif
