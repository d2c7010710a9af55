// Encodes JSONL as a token shard: its examples (data/chat/example.h) in order, each a document with
// a mask, in the format of tokens.h.
//
// The shard lies in a folder of the cache that is named by a hash of all inputs: the files, the
// tokenizer's file, and the chat template (made.h). Called by data/text/loader_source.c.
#ifndef DATA_TEXT_EXAMPLES_H
#define DATA_TEXT_EXAMPLES_H
#include "data/chat/example.h"
#include "data/text/sha256.h"
#include "data/text/sources.h"

struct ExamplesSpec {
    const struct SourceFile *files; // of JSONL
    size_t file_count;
    const char *flag; // the flag that named them, for error lines
    const struct Tokenizer *tokenizer;
    struct ChatSpec chat;
    const char *cache_dir;
};

// Finds or makes the shard *path; free() it. hex: the hash in its folder's name. Errors: those of
// examples_read, of files and of the cache; -EINVAL if there is no example; -EIO for a file that
// has changed meanwhile.
int examples_prepare(const struct ExamplesSpec *spec, char **path, char hex[SHA256_HEX_BYTES],
                     struct Error *e);

// Returns the path of the shard with this made_number; free() it.
char *examples_path(const char *cache_dir, uint64_t number);

#endif
