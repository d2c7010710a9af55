// Token shards for the tests of data: ids that tell where they come from.
#ifndef TESTS_LIB_SHARD_FILES_H
#define TESTS_LIB_SHARD_FILES_H
#include "data/text/tokens.h"
#include "tests/lib/scratch.h"

// A shard whose ids are base, base + 1, ...: an id tells where it comes from.
static inline char *write_numbers(const char *folder, const char *name, int32_t base,
                                  size_t count) {
    char *path = base_format("%s/%s", folder, name);
    struct TokenWriter w;
    struct Error e;
    assert_ok(token_writer_open(&w, path, &e), &e);
    for (size_t i = 0; i < count; i++) {
        int32_t id = base + (int32_t)i;
        assert_ok(token_writer_append(&w, &id, 1, &e), &e);
    }
    assert_ok(token_writer_finish(&w, &e), &e);
    return path;
}

#endif
