// Folders of the cache that are made once: token shards, with what was made for them.
//
// A folder is called PREFIX-HASH, by a hash of everything that goes in, so a second run finds it,
// compares its files with their checksums, and is done. Where they differ, or an earlier version
// has kept none, it says so and makes all anew. One run at a time makes (cache_lock); what it makes
// lies in a folder aside, renamed when it is whole, so that runs that die leave no half-made one.
// Called by data/text/prepare.c and data/text/examples.c.
#ifndef DATA_TEXT_MADE_H
#define DATA_TEXT_MADE_H
#include "data/text/sha256.h"
#include "kernels/base.h"

struct Made {
    const char *cache_dir, *prefix;
    uint64_t number;          // the HASH: made_number of all of it
    const char *const *names; // its files', NULL behind the last; the last is SUMS_NAME
    size_t count;             // of them that are made, the first so many
    // Makes them in `folder`, which exists and is ours alone.
    int (*fill)(const void *context, const char *folder, struct Error *e);
    const void *context;
};

uint64_t made_number(const char hex[SHA256_HEX_BYTES]);

// The folder's path; free() it.
char *made_folder(const char *cache_dir, const char *prefix, uint64_t number);

// Finds or makes it. *found: it was there. Errors: those of `fill` and of data/cache.h.
int made_once(const struct Made *m, bool *found, struct Error *e);

// Adds bytes with their number in front, so that "ab" + "c" is not "a" + "bc".
void made_hash(struct Sha256 *h, const void *bytes, size_t n);

#endif
