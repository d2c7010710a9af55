// JSONL to a token shard in the cache: what is in it, that it is found again and told from others,
// made anew where it is damaged, and that whoever fails or dies leaves nothing behind.
#include "data/text/examples.h"
#include "data/text/tokens.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/token_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// In a child that is to die: at so many files and folders that it would finish.
static int dies_at;

int fsync(int fd) {
    if (dies_at && !--dies_at)
        _exit(9);
    return (int)syscall(SYS_fsync, fd);
}

static const char LINES[] = "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n"
                            "{\"text\": \"efg\"}\n";

struct Fixture {
    char *folder, *cache, *path;
    struct SourceFile file;
    struct Tokenizer *tokenizer;
    struct ExamplesSpec spec;
};

static int set_up(void **state) {
    struct Fixture *f = base_alloc_zeroed(sizeof *f);
    f->folder = scratch_make();
    f->cache = base_format("%s/cache", f->folder);
    f->path = scratch_write(f->folder, "a.jsonl", LINES, sizeof LINES - 1);
    f->file.path = f->path;
    tokenizer_open_byte(&f->tokenizer);
    f->spec = (struct ExamplesSpec){.files = &f->file,
                                    .file_count = 1,
                                    .flag = "--data",
                                    .tokenizer = f->tokenizer,
                                    .cache_dir = f->cache};
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct Fixture *f = *state;
    tokenizer_close(f->tokenizer);
    scratch_remove(f->folder);
    free(f->cache);
    free(f->path);
    free(f);
    return 0;
}

static char *prepare(const struct Fixture *f) {
    char *path, hex[SHA256_HEX_BYTES];
    struct Error e;
    assert_ok(examples_prepare(&f->spec, &path, hex, &e), &e);
    assert_non_null(strstr(path, "/examples-"));
    assert_memory_equal(strstr(path, "/examples-") + 10, hex, 16);
    return path;
}

TEST(examples_become_documents) {
    struct Fixture *f = *state;
    char *path = prepare(f);
    struct TokenFile t;
    struct Error e;
    int32_t ids[7];
    uint8_t counts[7], starts[7];
    assert_ok(token_file_open(&t, path, 256, &e), &e);
    assert_int_equal(t.count, 7);
    assert_ok(token_file_read(&t, 0, 7, ids, &e), &e);
    assert_ok(token_file_read_bits(&t, TOKEN_COUNTS, 0, 7, counts, &e), &e);
    assert_ok(token_file_read_bits(&t, TOKEN_STARTS, 0, 7, starts, &e), &e);
    for (int i = 0; i < 7; i++)
        assert_int_equal(ids[i], 'a' + i);
    assert_memory_equal(counts, "\0\1\1\0\1\1\0", 7);
    assert_memory_equal(starts, "\1\0\0\0\1\0\0", 7);
    token_file_close(&t);
    free(path);
}

// What the folder is named by, made or not: the tokenizer of these tests has no control tokens, so
// every template is refused.
static char *key_of(const struct Fixture *f) {
    char *path, hex[SHA256_HEX_BYTES];
    struct Error ignored;
    examples_prepare(&f->spec, &path, hex, &ignored);
    free(path);
    return base_format("/examples-%.16s/", hex);
}

// Whether it is part of `path`.
static void expect_key(const struct Fixture *f, const char *path, bool same) {
    char *key = key_of(f);
    assert_int_equal(strstr(path, key) != NULL, same);
    free(key);
}

TEST(what_goes_in_is_told_apart) {
    struct Fixture *f = *state;
    struct stat before, after;
    char *path = prepare(f), *again;
    assert_int_equal(stat(path, &before), 0);
    again = prepare(f);
    assert_string_equal(again, path);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); // not made again
    free(again);
    expect_key(f, path, true);
    f->spec.chat.name = "chatml";
    expect_key(f, path, false);
    f->spec.chat.name = f->folder; // no file
    expect_key(f, path, false);
    char *form = scratch_write(f->folder, "form.json", "1", 1);
    f->spec.chat.name = form;
    char *with = key_of(f);
    expect_key(f, with, true);
    free(scratch_write(f->folder, "form.json", "2", 1));
    expect_key(f, with, false);
    f->spec.chat.name = NULL;
    free(with);
    free(form);
    free(scratch_write(f->folder, "a.jsonl", "{\"text\": \"efh\"}\n", 16));
    expect_key(f, path, false);
    free(path);
}

TEST(a_damaged_one_is_made_anew) {
    struct Fixture *f = *state;
    char *path = prepare(f), *list = base_format("%s/cache/*/checksums", f->folder);
    char *remove = base_format("rm %s", list);
    struct TokenFile t;
    struct Error e;
    for (int round = 0; round < 2; round++) {
        if (round)
            assert_int_equal(system(remove), 0);
        else
            assert_int_equal(truncate(path, 1100), 0);
        free(prepare(f));
        assert_ok(token_file_open(&t, path, 256, &e), &e);
        token_file_close(&t);
        assert_int_equal(scratch_count_files(f->cache), 2);
    }
    free(remove);
    free(list);
    free(path);
}

TEST(failures_leave_nothing) {
    struct Fixture *f = *state;
    char *path, hex[SHA256_HEX_BYTES];
    struct Error e;
    free(scratch_write(f->folder, "a.jsonl", "{\"text\": \"efg\"}\n{\"txt\": 1}\n", 28));
    assert_error(examples_prepare(&f->spec, &path, hex, &e), -EINVAL, &e,
                 "E_EXAMPLE_KIND a.jsonl: line 2");
    assert_null(path);
    assert_int_equal(scratch_count_files(f->cache), 0);
    free(scratch_write(f->folder, "a.jsonl", "", 0));
    assert_error(examples_prepare(&f->spec, &path, hex, &e), -EINVAL, &e, "E_EXAMPLES_NONE");
    assert_int_equal(scratch_count_files(f->cache), 0);
    f->file.path = "/no/such.jsonl";
    assert_error(examples_prepare(&f->spec, &path, hex, &e), -ENOENT, &e,
                 "E_FILE_READ --data /no/such.jsonl");
    f->file.path = f->path;
}

static void start(const struct Fixture *f, int at) {
    char *path, hex[SHA256_HEX_BYTES];
    struct Error e;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child)
        return;
    log_level = LOG_QUIET;
    dies_at = at;
    _exit(examples_prepare(&f->spec, &path, hex, &e) != 0);
}

static void expect_end(int want) {
    int status;
    assert_true(wait(&status) > 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), want);
}

// Those that die leave a folder aside, which the next removes; those at the same time share.
TEST(the_dead_are_cleared_away) {
    struct Fixture *f = *state;
    char *one = base_format("test $(ls '%s' | wc -l) = 1", f->cache);
    char *clear = base_format("rm -rf '%s'", f->cache);
    size_t most = 0;
    for (int at = 1; at <= 3; at++) {
        assert_int_equal(system(clear), 0);
        start(f, at);
        expect_end(9);
        most = size_max(most, scratch_count_files(f->cache));
        start(f, 0);
        expect_end(0);
        assert_int_equal(scratch_count_files(f->cache), 2);
        assert_int_equal(system(one), 0);
    }
    assert_true(most > 0); // something was left to clear away
    assert_int_equal(system(clear), 0);
    for (int i = 0; i < 4; i++)
        start(f, 0);
    for (int i = 0; i < 4; i++)
        expect_end(0);
    assert_int_equal(scratch_count_files(f->cache), 2);
    assert_int_equal(system(one), 0);
    free(clear);
    free(one);
}

AROUND_EACH(set_up, tear_down);
