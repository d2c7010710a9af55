// Folders of the cache that are made once: token shards, and the tokenizer trained for them.
//
// A folder is named PREFIX-HASH, by a hash of all inputs, so a second run finds it and compares its
// files with their checksums. If they differ, or an earlier version has written none, it logs this
// and makes the folder again. One run at a time makes one (cache_lock), under a temporary name
// until it is complete, so that a dying run leaves no incomplete folder. Called by
// data/text/prepare.c and data/text/examples.c.
#ifndef DATA_TEXT_MADE_H
#define DATA_TEXT_MADE_H
#include "data/text/sha256.h"
#include "kernels/base.h"

struct Made {
    const char *cache_dir, *prefix;
    uint64_t number;          // the HASH: made_number of all inputs
    const char *const *names; // of its files; the last are SUMS_NAME and NULL
    size_t count;             // the first `count` of them are made
    // Makes them in `folder`, which exists and is ours alone.
    int (*fill)(const void *context, const char *folder, struct Error *e);
    const void *context;
};

uint64_t made_number(const char hex[SHA256_HEX_BYTES]);

// Returns the folder's path; free() it.
char *made_folder_path(const char *cache_dir, const char *prefix, uint64_t number);

// Finds or makes the folder. *found: it existed. Errors: those of `fill` and of data/cache.h.
int made_once(const struct Made *m, bool *found, struct Error *e);

// Hashes the number of bytes, then the bytes, so that "ab" + "c" is not "a" + "bc".
void made_hash(struct Sha256 *h, const void *bytes, size_t n);

#endif
