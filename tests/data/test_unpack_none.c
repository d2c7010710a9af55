// A build without zlib and libzstd refuses what is packed, by name, and reads all else: the two
// files that stand in for theirs (data/unpack.h) are part of this program, not the library's.
#include "data/unpack_gz_none.c"
#include "data/unpack_zst_none.c"

#include "data/stream.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <errno.h>

TEST(what_is_packed_is_refused) {
    static const struct {
        const char *name, *error;
    } files[] = {{"a.jsonl.gz", "E_BUILD_LACKS zlib1g-dev"},
                 {"a.txt.zst", "E_BUILD_LACKS libzstd-dev"}};
    for (size_t i = 0; i < 2; i++) {
        char *path = scratch_write(*state, files[i].name, "x", 1);
        struct DataStream s;
        struct Error e;
        assert_error(stream_open(&s, path, "--data", &e), -ENOTSUP, &e, files[i].error);
        stream_close(&s);
        free(path);
    }
}

TEST(all_else_is_read) {
    char *path = scratch_write(*state, "a.jsonl", "xyz", 3), text[8];
    struct DataStream s;
    struct Error e;
    assert_ok(stream_open(&s, path, "--data", &e), &e);
    assert_int_equal(stream_read(&s, text, 8, &e), 3);
    assert_memory_equal(text, "xyz", 3);
    stream_close(&s);
    free(path);
}

AROUND_ALL(scratch_set_up, scratch_tear_down);
