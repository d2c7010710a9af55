// Token shards: what is written is read back, in the bytes that the format asks for, however little
// each call brings; every kind of damaged or foreign file is refused with its reason, also one that
// changes while it is read; and a disk that fills up at any write leaves nothing behind.
#include "data/text/tokens.h"
#include "tests/lib/full_disk.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

// ---- a disk that is slow to answer --------------------------------------------------------------
// Where read_most is set, each call brings so many bytes at most, and every third is interrupted.

static size_t read_most, read_calls;

ssize_t pread(int fd, void *bytes, size_t n, off_t at) {
    if (read_most && ++read_calls % 3 == 0)
        return errno = EINTR, -1;
    return syscall(SYS_pread64, fd, bytes, read_most ? size_min(n, read_most) : n, at);
}

// ---- helpers ------------------------------------------------------------------------------------

static void start_counting(int fail_at) {
    disk_calls = 0;
    disk_fail_at = fail_at;
}

static int32_t id_at(size_t i) {
    return (int32_t)(i * 2654435761u % 50000);
}

static int write_shard(const char *path, size_t count, struct Error *e) {
    struct TokenWriter w;
    int32_t ids[1000];
    int code = token_writer_open(&w, path, TOKENS_NARROW_MAX, false, e);
    if (code)
        return code;
    for (size_t at = 0, n; !code && at < count; at += n) {
        n = size_min(count - at, 1000);
        for (size_t i = 0; i < n; i++)
            ids[i] = id_at(at + i);
        code = token_writer_append(&w, ids, n, e);
    }
    if (code) {
        token_writer_abandon(&w);
        return code;
    }
    return token_writer_finish(&w, e);
}

static void expect_ids(struct TokenFile *f, size_t at, size_t n) {
    struct Error e;
    int32_t *ids = base_alloc(n * sizeof *ids);
    assert_ok(token_file_read(f, at, n, ids, &e), &e);
    for (size_t i = 0; i < n; i++)
        if (ids[i] != id_at(at + i))
            fail_msg("id %zu of %zu is %d", at + i, f->count, ids[i]);
    free(ids);
}

// ---- tests --------------------------------------------------------------------------------------

TEST(shards_are_read_back) {
    char *folder = *state, *path = base_format("%s/a.bin", folder);
    static const size_t counts[] = {1, 2, 999, 32767, 32768, 32769, 100000};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        struct Error e;
        struct TokenFile f;
        size_t count = counts[k];
        assert_ok(write_shard(path, count, &e), &e);
        assert_true(token_file_detect(path));
        assert_ok(token_file_open(&f, path, 50000, &e), &e);
        assert_int_equal(f.count, count);
        for (size_t at = 0, n; at < count; at += n) {
            n = size_min(count - at, 9999);
            expect_ids(&f, at, n);
        }
        token_file_close(&f);
    }
    assert_int_equal(scratch_count_files(folder), 1); // nothing left aside
    free(path);
}

TEST(the_bytes_are_llm_c_s) {
    char *folder = *state, *path = base_format("%s/a.bin", folder);
    struct Error e;
    struct TokenWriter w;
    assert_ok(token_writer_open(&w, path, TOKENS_NARROW_MAX, false, &e), &e);
    assert_ok(token_writer_append(&w, (int32_t[]){1, 0x1234, 65535}, 3, &e), &e);
    assert_ok(token_writer_finish(&w, &e), &e);
    unsigned char want[1030] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0, 3, 0, 0, 0}, got[2000];
    memcpy(want + 1024, "\x01\x00\x34\x12\xff\xff", 6);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(got, 1, sizeof got, f), 1030);
    fclose(f);
    assert_memory_equal(got, want, 1030);
    free(path);
}

// A file of `n` bytes whose header is magic, version, count, and whose ids are all `id`.
static void expect_refusal(const char *folder, int32_t magic, int32_t version, int32_t count,
                           uint16_t id, size_t n, const char *part) {
    char *bytes = base_alloc_zeroed(n + 2);
    for (size_t i = 1024; i + 1 < n; i += 2)
        memcpy(bytes + i, &id, 2);
    int32_t header[3] = {magic, version, count};
    memcpy(bytes, header, size_min(n, sizeof header));
    char *path = scratch_write(folder, "bad.bin", bytes, n);
    struct TokenFile f;
    struct Error e;
    assert_error(token_file_open(&f, path, 100, &e), -EINVAL, &e, part);
    assert_non_null(strstr(e.text, path));
    assert_null(f.path);
    free(bytes);
    free(path);
}

TEST(wrong_files_are_refused) {
    char *folder = *state;
    const int32_t magic = 20240520;
    expect_refusal(folder, magic, 1, 10, 0, 0, "E_SHARD_SIZE 0");
    expect_refusal(folder, magic, 1, 10, 0, 1023, "E_SHARD_SIZE 1023");
    expect_refusal(folder, magic + 1, 1, 10, 0, 1044, "E_SHARD_HEADER 20240521");
    expect_refusal(folder, magic, 2, 10, 0, 1044, "E_SHARD_HEADER version 2");
    expect_refusal(folder, magic, 1, 0, 0, 1024, "E_SHARD_HEADER says 0");
    expect_refusal(folder, magic, 1, -5, 0, 1044, "E_SHARD_HEADER -5");
    expect_refusal(folder, magic, 1, 10, 0, 1043, "E_SHARD_SIZE says 10");
    expect_refusal(folder, magic, 1, 10, 0, 1024, "E_SHARD_SIZE");
    expect_refusal(folder, magic, 1, 2147483647, 0, 1044, "E_SHARD_SIZE");
    expect_refusal(folder, magic, 1, 10, 0, 1045, "E_SHARD_SIZE");
    expect_refusal(folder, magic, 1, 10, 0, 1046, "E_SHARD_SIZE");
    expect_refusal(folder, magic, 1, 10, 100, 1044, "E_SHARD_VOCAB token 0");
    struct TokenFile f;
    struct Error e;
    assert_error(token_file_open(&f, "/no/such/file", 100, &e), -ENOENT, &e,
                 "E_FILE_READ /no/such/file");
    assert_error(token_file_open(&f, folder, 100, &e), -EISDIR, &e, "E_FILE_KIND");
}

TEST(the_last_id_is_checked_too) {
    char *folder = *state, *path = base_format("%s/a.bin", folder);
    struct Error e;
    struct TokenWriter w;
    struct TokenFile f;
    int32_t ids[501] = {0};
    ids[500] = 99;
    assert_ok(token_writer_open(&w, path, TOKENS_NARROW_MAX, false, &e), &e);
    assert_ok(token_writer_append(&w, ids, 501, &e), &e);
    assert_ok(token_writer_finish(&w, &e), &e);
    assert_ok(token_file_open(&f, path, 100, &e), &e);
    token_file_close(&f);
    assert_error(token_file_open(&f, path, 99, &e), -EINVAL, &e, "E_SHARD_VOCAB token 500");
    free(path);
}

TEST(a_short_read_is_read_on) {
    char *folder = *state, *path = base_format("%s/a.bin", folder);
    struct Error e;
    struct TokenFile f;
    assert_ok(write_shard(path, 20000, &e), &e);
    static const size_t most[] = {1, 3, 1000, 4097};
    for (size_t k = 0; k < sizeof most / sizeof *most; k++) {
        read_most = most[k];
        assert_true(token_file_detect(path));
        assert_ok(token_file_open(&f, path, 50000, &e), &e);
        expect_ids(&f, 17, 9000);
        token_file_close(&f);
        read_most = 0;
    }
    free(path);
}

// ---- files that change while they are read ------------------------------------------------------

struct Changing {
    char *folder, *path;
    struct TokenFile f;
    struct stat before;
};

static void changing_open(struct Changing *c) {
    struct Error e;
    c->folder = scratch_make();
    c->path = base_format("%s/a.bin", c->folder);
    assert_ok(write_shard(c->path, 5000, &e), &e);
    assert_ok(token_file_open(&c->f, c->path, 50000, &e), &e);
    assert_int_equal(stat(c->path, &c->before), 0);
    expect_ids(&c->f, 0, 5000);
}

static void changing_write(const struct Changing *c, size_t token, uint16_t id) {
    int fd = open(c->path, O_WRONLY);
    off_t at = (off_t)(TOKENS_HEADER_BYTES + 2 * token);
    assert_int_equal(pwrite(fd, &id, sizeof id, at), sizeof id);
    close(fd);
}

// As if it had not been written to.
static void changing_set_time(const struct Changing *c, time_t later) {
    struct timespec times[2] = {c->before.st_atim, c->before.st_mtim};
    times[1].tv_sec += later;
    assert_int_equal(utimensat(AT_FDCWD, c->path, times, 0), 0);
}

static void changing_expect(struct Changing *c, const char *part) {
    int32_t ids[100];
    struct Error e;
    int code = token_file_read(&c->f, 4900, 100, ids, &e);
    assert_error(code, -EIO, &e, "E_FILE_CHANGED");
    assert_error(code, -EIO, &e, part);
    assert_non_null(strstr(e.text, c->path));
    token_file_close(&c->f);
    free(c->path);
    scratch_remove(c->folder);
}

TEST(fault_20_a_shard_that_changes_is_told) {
    struct Changing c;
    changing_open(&c); // cut: to read a mapping would be the end
    assert_int_equal(truncate(c.path, TOKENS_HEADER_BYTES + 2 * 100), 0);
    changing_expect(&c, "E_FILE_CHANGED had 11024");
    changing_open(&c); // written to, at another place
    changing_write(&c, 3, 7);
    changing_set_time(&c, 60);
    changing_expect(&c, "E_FILE_CHANGED");
    changing_open(&c); // written to without a trace
    changing_write(&c, 4950, 50000);
    changing_set_time(&c, 0);
    changing_expect(&c, "E_FILE_CHANGED token 4950");
}

// Ids that nobody has looked at before are told when they are read.
TEST(ids_that_were_not_checked_are_told) {
    struct Changing c;
    struct TokenFile f;
    struct Error e;
    int32_t ids[100];
    changing_open(&c);
    changing_write(&c, 4950, 50000);
    assert_ok(token_file_attach(&f, c.path, 50000, &e), &e);
    assert_ok(token_file_read(&f, 4850, 100, ids, &e), &e);
    assert_error(token_file_read(&f, 4900, 100, ids, &e), -EINVAL, &e, "E_SHARD_VOCAB token 4950");
    assert_error(token_file_check(&f, &e), -EINVAL, &e, "E_SHARD_VOCAB token 4950");
    token_file_close(&f);
    changing_expect(&c, "E_FILE_CHANGED");
}

// A pipe without a writer, whatever its name: nobody waits for it.
TEST(a_pipe_is_no_shard) {
    char *folder = *state, *path = base_format("%s/a.bin", folder);
    struct TokenFile f;
    struct Error e;
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    assert_false(token_file_detect(path));
    assert_error(token_file_open(&f, path, 100, &e), -EINVAL, &e, "E_FILE_KIND a.bin");
    assert_error(token_file_open(&f, "/dev/zero", 100, &e), -EINVAL, &e, "E_FILE_KIND");
    alarm(0);
    free(path);
}

// A disk that is full at write, fsync or rename number k, for every k until none is left to fail:
// the error is told, the old file stands as it was, and nothing else lies about.
TEST(fault_19_disk_full_at_every_write) {
    char *folder = *state, *path = base_format("%s/a.bin", folder);
    const size_t count = 70000;
    struct Error e;
    assert_ok(write_shard(path, 7, &e), &e);
    int failures = 0;
    for (int k = 1;; k++) {
        start_counting(k);
        int code = write_shard(path, count, &e);
        bool failed = disk_calls >= k;
        start_counting(0);
        if (!failed)
            break;
        failures++;
        struct Error ignored;
        struct TokenFile f;
        assert_ok(token_file_attach(&f, path, 50000, &ignored), &ignored);
        size_t left = f.count;
        token_file_close(&f);
        assert_int_equal(scratch_count_files(folder), 1);
        // The sync of the folder comes after the rename: the new file is whole then, but may not
        // last.
        assert_error(code, -ENOSPC, &e, "E_FILE_WRITE");
        assert_true(left == 7 || left == count);
        if (left == count)
            assert_ok(write_shard(path, 7, &e), &e);
    }
    assert_true(failures >=
                6); // header, three flushes, header again, fsync, rename, fsync of the folder
    free(path);
}

TEST(an_unwritable_folder_is_told) {
    struct TokenWriter w;
    struct Error e;
    assert_error(token_writer_open(&w, "/proc/none/a.bin", TOKENS_NARROW_MAX, false, &e), -ENOENT,
                 &e, "E_FILE_WRITE /proc/none/a.bin");
}

AROUND_EACH(scratch_set_up, scratch_tear_down);
