// Token shards for the tests of data: ids that tell where they come from.
#ifndef TESTS_LIB_SHARD_FILES_H
#define TESTS_LIB_SHARD_FILES_H
#include "data/text/data.h"
#include "data/text/tokens.h"
#include "tests/lib/scratch.h"

// A shard whose ids are base, base + 1, ...: an id tells where it comes from.
static inline char *write_numbers(const char *folder, const char *name, int32_t base,
                                  size_t count) {
    char *path = base_format("%s/%s", folder, name);
    struct TokenWriter w;
    struct Error e;
    assert_ok(token_writer_open(&w, path, TOKENS_NARROW_MAX, false, &e), &e);
    for (size_t i = 0; i < count; i++) {
        int32_t id = base + (int32_t)i;
        assert_ok(token_writer_append(&w, &id, 1, &e), &e);
    }
    assert_ok(token_writer_finish(&w, &e), &e);
    return path;
}

// Where the tests of whole data have theirs: a training shard of 1000 tokens from 0 on, one for
// validation of 100 from 50000 on, and room for a cache.
struct ShardFiles {
    char *folder, *train, *val, *cache, *glob; // glob: of all training shards
};

static inline int shard_files_open(void **state) {
    struct ShardFiles *f = base_alloc(sizeof *f);
    f->folder = scratch_make();
    f->cache = base_format("%s/cache", f->folder);
    f->glob = base_format("%s/train_*.bin", f->folder);
    f->train = write_numbers(f->folder, "train_1.bin", 0, 1000);
    f->val = write_numbers(f->folder, "val.bin", 50000, 100);
    *state = f;
    return 0;
}

static inline int shard_files_close(void **state) {
    struct ShardFiles *f = *state;
    scratch_remove(f->folder);
    free(f->train);
    free(f->val);
    free(f->cache);
    free(f->glob);
    free(f);
    return 0;
}

enum { T = 16, VOCAB = 60000 };

static inline struct Data *open_data(const char *data, const char *val, const struct ShardFiles *f,
                                     uint64_t seed) {
    struct DataSpec spec = {.data = data,
                            .val_data = val,
                            .cache_dir = f->cache,
                            .seq_len = T,
                            .vocab = VOCAB,
                            .seed = seed};
    struct Data *d;
    struct Error e;
    assert_ok(data_open(&d, &spec, &e), &e);
    return d;
}

// First token of sample i; checks that inputs and targets are the window that begins there.
static inline int32_t start_of(struct Data *d, uint64_t i) {
    int32_t x[T], y[T];
    struct Error e;
    assert_ok(data_train_batch(d, i, 1, &(struct Batch){x, y, NULL}, &e), &e);
    for (int t = 0; t < T; t++)
        if (x[t] != x[0] + t || y[t] != x[t] + 1)
            fail_msg("sample %d: x[%d] = %d, y = %d", (int)i, t, x[t], y[t]);
    return x[0];
}

// Data of this spec are refused so.
static inline void expect_error(const struct DataSpec *spec, int want, const char *said) {
    struct Data *d = (struct Data *)spec;
    struct Error e;
    assert_error(data_open(&d, spec, &e), want, &e, said);
    assert_null(d);
}

#endif
