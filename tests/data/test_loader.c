// The order of samples: without repetition, a pure function of (seed, index), the same
// for any number of ranks; validation tokens that training never sees; and data that cannot be
// used.
#include "data/text/data.h"
#include "tests/lib/shard_files.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Three training shards of 1000, 333 and 17 tokens (62, 20 and 1 samples) and a validation shard of
// 100.
static int set_up(void **state) {
    shard_files_open(state);
    struct ShardFiles *f = *state;
    free(write_numbers(f->folder, "train_2.bin", 1000, 333));
    free(write_numbers(f->folder, "train_3.bin", 1333, 17));
    return 0;
}

// ---- the order of samples -----------------------------------------------------------------------

TEST(an_epoch_repeats_nothing) {
    struct ShardFiles *f = *state;
    struct Data *d = open_data(f->glob, f->val, f, 1);
    assert_int_equal(data_epoch_samples(d), 83);
    assert_int_equal(data_train_tokens(d), 1350);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        bool seen[1350] = {false};
        for (uint64_t i = 0; i < 83; i++) {
            int32_t start = start_of(d, epoch * 83 + i);
            int32_t base = i < 62 ? 0 : i < 82 ? 1000 : 1333; // the shards in order
            int32_t end = i < 62 ? 1000 : i < 82 ? 1333 : 1350;
            assert_in_range(start, base, end - T - 1);
            assert_int_equal((start - base) % T, 0);
            assert_false(seen[start]);
            seen[start] = true;
        }
    }
    data_close(d);
}

static int count_equal(struct Data *a, uint64_t at_a, struct Data *b, uint64_t at_b) {
    int equal = 0;
    for (uint64_t i = 0; i < 62; i++)
        equal += start_of(a, at_a + i) == start_of(b, at_b + i);
    return equal;
}

TEST(seeds_and_epochs_differ) {
    struct ShardFiles *f = *state;
    struct Data *a = open_data(f->glob, f->val, f, 1), *b = open_data(f->glob, f->val, f, 2);
    struct Data *same = open_data(f->glob, f->val, f, 1);
    assert_int_equal(count_equal(a, 0, same, 0), 62);
    assert_in_range(count_equal(a, 0, b, 0), 0, 10); // 1 expected
    assert_in_range(count_equal(a, 0, a, 83), 0, 10);
    data_close(a);
    data_close(b);
    data_close(same);
}

// Checkpoints rely on the order: it must not change from one version of this program to the next.
TEST(the_order_is_fixed) {
    struct ShardFiles *f = *state;
    struct Data *d = open_data(f->glob, f->val, f, 1337);
    static const int32_t want[8] = {1128, 1176, 1333, 768, 816, 128, 464, 960};
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(start_of(d, i + 80), want[i]);
    data_close(d);
}

// However many ranks share the steps, together they see the samples that one rank sees, in its
// order; also after a resume on another number of ranks.
TEST(fault_17_order_is_the_same_for_any_world) {
    struct ShardFiles *f = *state;
    enum { GLOBAL = 12, STEPS = 20 };
    struct Data *alone = open_data(f->glob, f->val, f, 5);
    static const size_t worlds[] = {1, 2, 3, 4, 6, 12};
    for (size_t w = 0; w < 6; w++) {
        struct Data *ranks[12];
        for (size_t r = 0; r < worlds[w]; r++)
            ranks[r] = open_data(f->glob, f->val, f, 5);
        for (uint64_t step = 0; step < STEPS; step++) {
            size_t each = GLOBAL / worlds[w];
            int32_t x[GLOBAL * T], y[GLOBAL * T], want_x[GLOBAL * T], want_y[GLOBAL * T];
            struct Error e;
            assert_ok(data_train_batch(alone, step * GLOBAL, GLOBAL,
                                       &(struct Batch){want_x, want_y, NULL}, &e),
                      &e);
            for (size_t r = worlds[w]; r-- > 0;) // in no special order of ranks
                assert_ok(
                    data_train_batch(ranks[r], step * GLOBAL + r * each, each,
                                     &(struct Batch){x + r * each * T, y + r * each * T, NULL}, &e),
                    &e);
            assert_memory_equal(x, want_x, sizeof x);
            assert_memory_equal(y, want_y, sizeof y);
        }
        for (size_t r = 0; r < worlds[w]; r++)
            data_close(ranks[r]);
    }
    data_close(alone);
}

// ---- validation ---------------------------------------------------------------------------------

static void check_val(struct Data *d, int32_t first, uint64_t samples) {
    int32_t x[T], y[T];
    struct Error e;
    assert_int_equal(data_val_samples(d), samples);
    for (uint64_t i = 0; i < samples; i++) {
        assert_ok(data_val_batch(d, i, 1, &(struct Batch){x, y, NULL}, &e), &e);
        assert_int_equal(x[0], first + (int32_t)i * T);
        assert_int_equal(y[T - 1], x[0] + T);
    }
}

TEST(validation_files_are_read_in_order) {
    struct ShardFiles *f = *state;
    struct Data *d = open_data(f->glob, f->val, f, 1);
    check_val(d, 50000, 6);
    data_close(d);
}

TEST(training_never_sees_a_validation_token) {
    struct ShardFiles *f = *state;
    struct Data *d = open_data(f->train, NULL, f, 1);
    assert_int_equal(data_train_tokens(d), 900);
    assert_int_equal(data_val_tokens(d), 100);
    check_val(d, 900, 6);
    for (uint64_t i = 0; i < 3 * data_epoch_samples(d); i++)
        assert_true(start_of(d, i) + T < 900); // the last target
    data_close(d);
    // Over several files the last tenth is cut from all of them together: 135 of 1350 tokens.
    d = open_data(f->glob, NULL, f, 1);
    assert_int_equal(data_train_tokens(d), 1215);
    assert_int_equal(data_val_tokens(d), 135);
    for (uint64_t i = 0; i < 3 * data_epoch_samples(d); i++)
        assert_true(start_of(d, i) + T < 1215);
    data_close(d);
}

// ---- text, random ids, names --------------------------------------------------------------------

TEST(text_becomes_samples) {
    struct ShardFiles *f = *state;
    char text[2001];
    for (int i = 0; i < 2000; i++)
        text[i] = (char)('a' + i % 26);
    char *path = scratch_write(f->folder, "text.txt", text, 2000);
    struct DataSpec spec = {.data = path, .tokenizer = "byte", .cache_dir = f->cache, .seq_len = T};
    struct Data *d;
    struct Error e;
    int32_t x[2 * T], y[2 * T];
    assert_ok(data_open(&d, &spec, &e), &e);
    assert_int_equal(data_vocab(d), 256);
    assert_int_equal(data_train_tokens(d), 1800);
    assert_int_equal(data_val_tokens(d), 200);
    assert_null(data_tokenizer_path(d));
    assert_ok(data_val_batch(d, 0, 2, &(struct Batch){x, y, NULL}, &e), &e);
    for (int i = 0; i < 2 * T; i++) {
        assert_int_equal(x[i], text[1800 + i]);
        assert_int_equal(y[i], text[1801 + i]);
    }
    data_close(d);
    free(path);
}

TEST(random_ids_need_no_file) {
    struct ShardFiles *f = *state;
    struct DataSpec spec = {.data = "random", .cache_dir = f->cache, .seq_len = T, .vocab = 37};
    struct Data *d;
    struct Error e;
    int32_t x[64 * T], y[64 * T], again[64 * T];
    assert_ok(data_open(&d, &spec, &e), &e);
    assert_int_equal(data_vocab(d), 37);
    assert_ok(data_train_batch(d, 5, 64, &(struct Batch){x, y, NULL}, &e), &e);
    bool seen[37] = {false};
    for (int i = 0; i < 64 * T; i++) {
        assert_in_range(x[i], 0, 36);
        seen[x[i]] = true;
        if (i % T)
            assert_int_equal(x[i], y[i - 1]);
    }
    for (int i = 0; i < 37; i++)
        assert_true(seen[i]);
    assert_int_equal(data_val_samples(d), 8);
    assert_ok(data_val_batch(d, 0, 8, &(struct Batch){again, y, NULL}, &e), &e);
    assert_memory_not_equal(x, again, 8 * T * sizeof *x);
    data_close(d);
}

static int open_fetched(struct Data **d, const struct ShardFiles *f, uint64_t samples,
                        struct Error *e) {
    struct DataSpec spec = {.data = "fineweb10B",
                            .cache_dir = f->cache,
                            .seq_len = T,
                            .vocab = VOCAB,
                            .seed = 1,
                            .samples = samples};
    return data_open(d, &spec, e);
}

// A name's shards come from its home, as many as the run's samples lie in: here from a folder that
// plays it, with only some of the files there.
TEST(shards_are_fetched_as_needed) {
    struct ShardFiles *f = *state;
    char *home = base_format("%s/home", f->folder), *inner = base_format("%s/fineweb10B", home);
    char *url = base_format("file://%s", home), *cached = base_format("%s/fineweb10B", f->cache);
    assert_int_equal(mkdir(home, 0777), 0);
    assert_int_equal(mkdir(inner, 0777), 0);
    free(write_numbers(inner, "fineweb_val_000000.bin", 50000, 100));
    free(write_numbers(inner, "fineweb_train_000001.bin", 0, 100));
    free(write_numbers(inner, "fineweb_train_000002.bin", 100, 100));
    free(write_numbers(inner, "fineweb_train_000003.bin", 200, 100));
    setenv("ZERO_MIRROR", url, 1);
    struct Data *d;
    struct Error e;
    for (uint64_t samples = 0; samples <= 6; samples += 6) {
        assert_ok(open_fetched(&d, f, samples, &e), &e);
        check_val(d, 50000, 6);
        assert_int_equal(data_epoch_samples(d), 6);
        // The validation shard and the first, each with its checksum.
        assert_int_equal(scratch_count_files(cached), 4);
        assert_in_range(start_of(d, 5), 0, 99);
        data_close(d);
    }
    assert_ok(open_fetched(&d, f, 18, &e), &e);
    assert_int_equal(scratch_count_files(cached), 8);
    assert_in_range(start_of(d, 7), 100, 199);
    assert_in_range(start_of(d, 14), 200, 299);
    assert_int_equal(data_epoch_samples(d), 18);
    uint64_t fingerprint = data_fingerprint(d);
    data_close(d);
    assert_error(open_fetched(&d, f, 19, &e), -ENOENT, &e, "E_FILE_READ fineweb_train_000004.bin");
    setenv("ZERO_MIRROR", "file:///no/such/home", 1); // what has come is not asked for again
    assert_ok(open_fetched(&d, f, 13, &e), &e);
    assert_int_equal(data_fingerprint(d), fingerprint);
    assert_in_range(start_of(d, 14), 200, 299);
    data_close(d);
    unsetenv("ZERO_MIRROR");
    free(home);
    free(inner);
    free(url);
    free(cached);
}

// What one process has prepared others open as it lies in the cache, also where what it was made of
// is gone.
TEST(others_open_what_was_found) {
    struct ShardFiles *f = *state;
    char text[20000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 50 == 49 ? '\n' : (char)('a' + (i * i / 7 + i / 50) % 26);
    char *path = scratch_write(f->folder, "text.txt", text, sizeof text);
    char *jsonl = scratch_write(f->folder, "a.jsonl",
                                "{\"text\": \"one example\"}\n"
                                "{\"text\": \"and another one\"}\n",
                                sizeof "{\"text\": \"one example\"}\n"
                                       "{\"text\": \"and another one\"}\n" -
                                    1);
    const char *const names[][2] = {{path, NULL}, {path, "train:300"}, {jsonl, "byte"}};
    const char *const gone[] = {NULL, path, jsonl};
    for (int i = 0; i < 3; i++) {
        struct DataSpec spec = {.data = names[i][0],
                                .tokenizer = names[i][1],
                                .cache_dir = f->cache,
                                .seq_len = T,
                                .seed = 1};
        struct Data *a, *b;
        struct DataFound found;
        struct Error e;
        int32_t x[2 * T], y[2 * T], x_b[2 * T], y_b[2 * T];
        assert_ok(data_open(&a, &spec, &e), &e);
        data_found(a, &found);
        if (gone[i])
            assert_int_equal(unlink(gone[i]), 0);
        spec.found = &found;
        assert_ok(data_open(&b, &spec, &e), &e);
        assert_int_equal(data_vocab(b), data_vocab(a));
        assert_int_equal(data_seq_len(b), data_seq_len(a));
        assert_int_equal(data_fingerprint(b), data_fingerprint(a));
        assert_int_equal(data_val_samples(b), data_val_samples(a));
        assert_true(data_bits_per_byte(b, 1) == data_bits_per_byte(a, 1));
        if (i == 0)
            assert_string_equal(data_chosen_tokenizer(b), "byte");
        assert_ok(data_train_batch(a, 3, 2, &(struct Batch){x, y, NULL}, &e), &e);
        assert_ok(data_train_batch(b, 3, 2, &(struct Batch){x_b, y_b, NULL}, &e), &e);
        assert_memory_equal(x, x_b, sizeof x);
        assert_memory_equal(y, y_b, sizeof y);
        data_close(a);
        data_close(b);
    }
    free(path);
    free(jsonl);
}

// Who opens what another process has looked at finds no wrong id there, unless somebody has changed
// the file meanwhile.
TEST(what_was_found_has_been_checked) {
    struct ShardFiles *f = *state;
    char *path = write_numbers(f->folder, "found.bin", 0, 1000);
    struct DataSpec spec = {.data = path,
                            .val_data = f->val,
                            .cache_dir = f->cache,
                            .seq_len = T,
                            .vocab = VOCAB,
                            .seed = 1};
    struct Data *d;
    struct DataFound found;
    struct Error e;
    int32_t x[T], y[T];
    assert_ok(data_open(&d, &spec, &e), &e);
    data_found(d, &found);
    data_close(d);
    free(write_numbers(f->folder, "found.bin", VOCAB, 1000));
    spec.found = &found;
    assert_ok(data_open(&d, &spec, &e), &e);
    assert_error(data_train_batch(d, 0, 1, &(struct Batch){x, y, NULL}, &e), -EIO, &e,
                 "E_FILE_CHANGED found.bin");
    data_close(d);
    free(path);
}

// Opens 40 shards in a process that may have `most` files open, and has few of them at first.
static int open_many(const char *folder, rlim_t most) {
    struct rlimit files = {16, most};
    struct DataSpec spec = {.data = folder, .cache_dir = folder, .seq_len = T, .vocab = VOCAB};
    struct Data *d;
    struct Error e;
    if (setrlimit(RLIMIT_NOFILE, &files))
        return 2;
    int code = data_open(&d, &spec, &e);
    data_close(d);
    return code == -EMFILE && error_is(&e, "E_DATA_OPEN_FILES of 40 shards each stays open") &&
                   strstr(e.text, "may have 32 files")
               ? 1
               : (code ? 2 : 0);
}

// All shards stay open: as many as the process may have, which is told where that is too few.
TEST(many_shards_are_allowed_or_told) {
    char *folder = scratch_make(), name[32];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "train_%d.bin", i);
        free(write_numbers(folder, name, 100 * i, 40));
    }
    for (int told = 0; told < 2; told++) {
        int status;
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child)
            _exit(open_many(folder, told ? 32 : 100));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), told);
    }
    scratch_remove(folder);
}

TEST(a_url_is_told_by_its_content) {
    struct ShardFiles *f = *state;
    char *url = base_format("file://%s", f->train);
    struct Data *d = open_data(url, NULL, f, 1), *local = open_data(f->train, NULL, f, 1);
    assert_int_equal(data_train_tokens(d), 900);
    assert_int_equal(data_fingerprint(d), data_fingerprint(local));
    data_close(d);
    data_close(local);
    free(url);
}

// ---- fingerprints -------------------------------------------------------------------------------

static uint64_t fingerprint_of(const char *data, const char *val, const struct ShardFiles *f,
                               size_t seq_len, uint64_t seed) {
    struct DataSpec spec = {.data = data,
                            .val_data = val,
                            .cache_dir = f->cache,
                            .seq_len = seq_len,
                            .vocab = VOCAB,
                            .seed = seed};
    struct Data *d;
    struct Error e;
    assert_ok(data_open(&d, &spec, &e), &e);
    uint64_t fingerprint = data_fingerprint(d);
    data_close(d);
    return fingerprint;
}

TEST(fingerprints_tell_data_apart) {
    struct ShardFiles *f = *state;
    uint64_t a = fingerprint_of(f->train, f->val, f, T, 1);
    assert_int_equal(a, fingerprint_of(f->train, f->val, f, T, 2)); // the seed is no data
    assert_int_not_equal(a, fingerprint_of(f->train, f->val, f, T + 1, 1));
    assert_int_not_equal(a, fingerprint_of(f->train, NULL, f, T, 1));
    assert_int_not_equal(a, fingerprint_of(f->glob, f->val, f, T, 1));
    assert_int_not_equal(a, fingerprint_of(f->val, f->train, f, T, 1));
    char *copy = write_numbers(f->folder, "copy.bin", 0, 1000);
    assert_int_equal(a, fingerprint_of(copy, f->val, f, T, 1)); // the path is no data
    free(copy);
    copy = write_numbers(f->folder, "copy.bin", 1, 1000);
    assert_int_not_equal(a, fingerprint_of(copy, f->val, f, T, 1));
    free(copy);
}

// ---- bad input ----------------------------------------------------------------------------------

TEST(bad_data_is_told) {
    struct ShardFiles *f = *state;
    struct DataSpec s = {.cache_dir = f->cache, .seq_len = T, .vocab = VOCAB};
    char *pattern = base_format("%s/nothing_*.bin", f->folder);
    char *all = base_format("%s/*", f->folder), *text;
    s.data = "/no/such/thing";
    expect_error(&s, -ENOENT, "E_FILE_READ --data /no/such/thing");
    struct Data *none;
    struct Error e;
    s.data = "-"; // with which "--data" begins
    assert_int_equal(data_open(&none, &s, &e), -ENOENT);
    assert_true(strncmp(e.text, "--data -: ", 10) == 0); // said once
    s.data = pattern;
    expect_error(&s, -ENOENT, "E_DATA_NO_MATCH nothing_*.bin");
    text = scratch_write(f->folder, "empty.txt", "", 0);
    s.data = text;
    expect_error(&s, -EINVAL, "E_FILE_EMPTY empty.txt");
    free(text);
    text = scratch_write(f->folder, "a.txt", "a text of a few words", 21);
    s.data = all;
    expect_error(&s, -EINVAL, "E_DATA_KINDS");
    s.data = text;
    s.tokenizer = "byte";
    expect_error(&s, -EINVAL, "E_DATA_TOO_SMALL");
    s.tokenizer = "ids";
    expect_error(&s, -EINVAL, "E_TOKENIZER_DATA --tokenizer ids");
    s.tokenizer = "bytes";
    expect_error(&s, -EINVAL, "E_TOKENIZER_NAME --tokenizer bytes");
    s.tokenizer = "byte";
    s.val_data = f->val;
    expect_error(&s, -EINVAL, "E_DATA_KINDS --val-data");
    s.val_data = "/no/such/val";
    expect_error(&s, -ENOENT, "E_FILE_READ --val-data /no/such/val");
    s.val_data = NULL;
    s.vocab = 255;
    expect_error(&s, -EINVAL, "E_VOCAB_SIZE --vocab 255");
    free(text);
    free(pattern);
    free(all);
}

TEST(bad_shards_are_told) {
    struct ShardFiles *f = *state;
    struct DataSpec s = {.data = f->train, .cache_dir = f->cache, .seq_len = T, .vocab = 999};
    expect_error(&s, -EINVAL, "E_SHARD_VOCAB token 999");
    s.vocab = 0; // the default holds them
    s.val_data = f->val;
    s.tokenizer = "train:8192";
    expect_error(&s, -EINVAL, "E_TOKENIZER_DATA ids");
    s.tokenizer = "byte";
    expect_error(&s, -EINVAL, "E_SHARD_VOCAB token 256");
    s.tokenizer = NULL;
    s.val_data = NULL;
    s.seq_len = 100; // 100 tokens held out: no window of 101
    expect_error(&s, -EINVAL, "E_DATA_TOO_SMALL 100");
    s.seq_len = 1000;
    expect_error(&s, -EINVAL, "E_DATA_TOO_SMALL 900");
    // A damaged file among good ones is found before training begins.
    char *folder = base_format("%s/set", f->folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    free(write_numbers(folder, "a.bin", 0, 1000));
    free(scratch_write(folder, "b.bin", "damaged", 7));
    s.data = folder;
    s.val_data = f->val;
    s.seq_len = T;
    expect_error(&s, -EINVAL, "E_SHARD_SIZE b.bin: 7");
    free(folder);
}

AROUND_ALL(set_up, shard_files_close);
