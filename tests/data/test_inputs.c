// Data that others can reach: files that change while training reads them, more files than a
// process may hold open, pipes, and what is no file at all. Nothing waits for a pipe that nobody
// writes to, nothing reads a device, and no signal ends the process.
#include "data/text/data.h"
#include "tests/lib/shard_files.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

// More files than a process may hold open, unless it asks for more.
TEST(a_set_of_many_files_is_read) {
    struct ShardFiles *f = *state;
    enum { FILES = 150 };
    char *folder = base_format("%s/many", f->folder), name[16];
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%03d.bin", i);
        free(write_numbers(folder, name, 100 * i, 2 * T + 1));
    }
    struct rlimit usual, few = {100, 100};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    few.rlim_max = usual.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct Data *d = open_data(folder, f->val, f, 1);
    for (uint64_t i = 0; i < 2 * 2 * FILES; i++)
        assert_int_equal(start_of(d, i) / 100, i / 2 % FILES);
    data_close(d);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    free(folder);
}

// ---- what changes, and what is no file ----------------------------------------------------------

// Training goes on as long as the files are those that were opened; then there is a line.
TEST(fault_20_a_file_that_is_cut_is_told) {
    struct ShardFiles *f = *state;
    struct Data *d = open_data(f->train, f->val, f, 1);
    int32_t x[T], y[T];
    struct Error e;
    assert_ok(data_train_batch(d, 0, 1, &(struct Batch){x, y, NULL}, &e), &e);
    assert_ok(data_val_batch(d, 0, 1, &(struct Batch){x, y, NULL}, &e), &e);
    assert_int_equal(truncate(f->train, 1500), 0);
    int code = data_train_batch(d, 1, 1, &(struct Batch){x, y, NULL}, &e);
    assert_error(code, -EIO, &e, "E_FILE_CHANGED train_1.bin");
    assert_int_equal(strncmp(e.text, "--data ", 7), 0);
    assert_int_equal(truncate(f->val, 1100), 0);
    code = data_val_batch(d, 1, 1, &(struct Batch){x, y, NULL}, &e);
    assert_error(code, -EIO, &e, "E_FILE_CHANGED");
    assert_int_equal(strncmp(e.text, "--val-data ", 11), 0);
    data_close(d);
}

// A child that writes so many bytes into a pipe of that name, and ends.
static pid_t start_writer(const char *path, const void *bytes, size_t n) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        int fd = open(path, O_WRONLY);
        _exit(fd < 0 || write(fd, bytes, n) != (ssize_t)n);
    }
    return child;
}

static int open_pipe(struct Data **d, const struct DataSpec *spec, const void *bytes, size_t n,
                     struct Error *e) {
    pid_t writer = start_writer(spec->data, bytes, n);
    int status;
    alarm(20);
    int code = data_open(d, spec, e);
    alarm(0);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    return code;
}

TEST(a_pipe_is_read_whole) {
    struct ShardFiles *f = *state;
    enum { BYTES = 200000 }; // more than a pipe holds at once
    char *text = base_alloc(BYTES), *path = base_format("%s/pipe", f->folder);
    for (int i = 0; i < BYTES; i++)
        text[i] = (char)('a' + i % 26);
    char *copy = scratch_write(f->folder, "text.txt", text, BYTES);
    struct DataSpec spec = {.data = copy, .tokenizer = "byte", .cache_dir = f->cache, .seq_len = T};
    struct Data *d;
    struct Error e;
    assert_ok(data_open(&d, &spec, &e), &e);
    uint64_t fingerprint = data_fingerprint(d);
    data_close(d);
    assert_int_equal(mkfifo(path, 0600), 0);
    spec.data = path;
    assert_ok(open_pipe(&d, &spec, text, BYTES, &e), &e);
    assert_int_equal(data_train_tokens(d) + data_val_tokens(d), BYTES);
    assert_int_equal(data_fingerprint(d), fingerprint);
    data_close(d);
    assert_error(open_pipe(&d, &spec, text, 0, &e), -EINVAL, &e, "E_DATA_PIPE pipe");
    int32_t shard[3] = {20240520, 1, 1000};
    assert_error(open_pipe(&d, &spec, shard, sizeof shard, &e), -EINVAL, &e, "E_DATA_PIPE pipe");
    assert_error(open_pipe(&d, &spec, "caf\xe9", 4, &e), -EINVAL, &e, "E_UTF8 byte 3");
    spec.processes = 2; // nobody writes, and nobody waits
    alarm(20);
    assert_error(data_open(&d, &spec, &e), -EINVAL, &e, "E_DATA_PIPE 2");
    spec.data = copy;
    spec.val_data = path;
    assert_error(data_open(&d, &spec, &e), -EINVAL, &e, "E_DATA_PIPE --val-data");
    alarm(0);
    free(path);
    free(copy);
    free(text);
}

// A pipe without an end: what may be read is, and then there is a line.
TEST(an_endless_pipe_is_given_up) {
    struct ShardFiles *f = *state;
    char *path = base_format("%s/pipe", f->folder), *text = NULL;
    char bytes[5000] = {0};
    size_t n;
    struct Error e;
    int status;
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    pid_t writer = start_writer(path, bytes, sizeof bytes);
    assert_error(file_read_pipe(path, 4999, &text, &n, &e), -EFBIG, &e, "E_FILE_TOO_LARGE 4999");
    assert_int_equal(waitpid(writer, &status, 0), writer);
    writer = start_writer(path, bytes, sizeof bytes);
    assert_ok(file_read_pipe(path, 5000, &text, &n, &e), &e);
    assert_int_equal(n, 5000);
    free(text);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_error(file_read_pipe(f->train, 5000, &text, &n, &e), -EINVAL, &e, "E_FILE_CHANGED");
    alarm(0);
    free(path);
}

TEST(what_is_no_file_is_refused) {
    struct ShardFiles *f = *state;
    struct DataSpec s = {.cache_dir = f->cache, .seq_len = T, .vocab = VOCAB};
    char *pipe = base_format("%s/train_0.bin", f->folder);
    alarm(20);
    s.data = "/dev/zero";
    expect_error(&s, -EINVAL, "E_FILE_KIND --data /dev/zero");
    s.data = "/dev/ze[r]o";
    expect_error(&s, -EINVAL, "E_FILE_KIND /dev/zero");
    s.data = "file:///dev/zero";
    expect_error(&s, -EINVAL, "E_FILE_KIND file:///dev/zero");
    s.data = "file:///dev/%7aero";
    expect_error(&s, -EINVAL, "E_FILE_KIND file:///dev/%7aero");
    s.data = f->train;
    s.val_data = "/dev/urandom";
    expect_error(&s, -EINVAL, "E_FILE_KIND --val-data /dev/urandom");
    s.val_data = f->val;
    s.tokenizer = "/dev/shm/../zero.model";
    expect_error(&s, -ENOENT, "E_FILE_READ --tokenizer");
    assert_int_equal(mkfifo(pipe, 0600), 0); // among shards, without a writer
    s.tokenizer = NULL;
    s.data = f->glob;
    expect_error(&s, -EINVAL, "E_FILE_KIND train_0.bin");
    s.data = f->folder;
    expect_error(&s, -EINVAL, "E_FILE_KIND train_0.bin");
    alarm(0);
    free(pipe);
}

AROUND_EACH(shard_files_open, shard_files_close);
