// JSONL to a token shard: its examples (data/chat/example.h) one behind the other, each a document
// with a mask, in the format of tokens.h.
//
// What is made lies in one folder of the cache, named by a hash of all that went in: the files, the
// tokenizer's file, and the template that makes text of conversations (made.h). Called by
// data/text/loader_source.c.
#ifndef DATA_TEXT_EXAMPLES_H
#define DATA_TEXT_EXAMPLES_H
#include "data/chat/example.h"
#include "data/text/sha256.h"
#include "data/text/sources.h"

struct ExamplesSpec {
    const struct SourceFile *files; // of JSONL
    size_t file_count;
    const char *flag; // that named them, for error lines
    const struct Tokenizer *tokenizer;
    struct ChatSpec chat;
    const char *cache_dir;
};

// *path: the shard; free() it. hex: what its folder is named by. Errors: those of examples_read, of
// files and of the cache; -EINVAL where there is no example; -EIO for a file that has changed
// meanwhile.
int examples_prepare(const struct ExamplesSpec *spec, char **path, char hex[SHA256_HEX_BYTES],
                     struct Error *e);

// The shard of that made_number; free() it.
char *examples_path(const char *cache_dir, uint64_t number);

#endif
