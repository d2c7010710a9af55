// The cache: a damaged file in it is noticed and made again, whichever bit it is; what dead runs
// have left is removed and nothing else; a cache of others is refused; and a link planted in it, or
// beside a file that is replaced, leads nowhere.
#include "data/cache.h"
#include "data/file.h"
#include "data/text/prepare.h"
#include "data/text/sums.h"
#include "kernels/dtype.h"
#include "tests/lib/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// A disk that is never waited for: these tests make some hundred folders.
int fsync(int fd) {
    (void)fd;
    return 0;
}

static unsigned user; // that HOME is missing for; 0: the real one

uid_t getuid(void) {
    return user ? user : geteuid();
}

static bool no_locks; // a disk without them

int flock(int fd, int how) {
    return no_locks ? errno = ENOSYS, -1 : (int)syscall(SYS_flock, fd, how);
}

struct Fixture {
    char *folder, *cache;
    struct SourceFile file;
    struct PrepareSpec spec;
    struct Prepared prepared;
};

static void prepare(struct Fixture *f) {
    struct Error e;
    prepare_free(&f->prepared);
    assert_ok(prepare_text(&f->prepared, &f->spec, &e), &e);
}

static int set_up(void **state) {
    static const char *const words[] = {"the ", "rank ", "shard ",   "tier ",
                                        "of ",  "a ",    "bucket\n", "is "};
    struct Fixture *f = base_alloc_zeroed(sizeof *f);
    char *text = base_alloc_zeroed(24000);
    for (uint32_t i = 0; i < 2000; i++)
        strcat(text, words[i * 2654435761u >> 29]);
    f->folder = scratch_make();
    f->cache = base_format("%s/cache", f->folder);
    f->file = (struct SourceFile){.path = scratch_write(f->folder, "text", text, strlen(text))};
    f->spec = (struct PrepareSpec){.files = &f->file, .file_count = 1, .cache_dir = f->cache};
    f->spec.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_BYTE};
    free(text);
    log_level = LOG_QUIET;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct Fixture *f = *state;
    log_level = LOG_NORMAL;
    prepare_free(&f->prepared);
    free(f->file.path);
    free(f->cache);
    scratch_remove(f->folder);
    free(f);
    return 0;
}

// ---- what is damaged ----------------------------------------------------------------------------

struct Content {
    char *bytes;
    size_t n;
};

static struct Content content_of(const char *path) {
    struct Content c;
    struct Error e;
    assert_ok(file_read(path, 1 << 24, &c.bytes, &c.n, &e), &e);
    return c;
}

// Flips bits of a file of the prepared folder, one at a time: each preparation makes it anew, and
// says that it did.
static void expect_found(struct Fixture *f, const char *name, int flips, uint64_t seed) {
    prepare(f);
    char *path = base_format("%.*s%s", (int)(strlen(f->prepared.train_path) - 9),
                             f->prepared.train_path, name);
    struct Content want = content_of(path);
    for (int i = 0; i < flips; i++) {
        uint64_t bit = rng_bits(seed, (uint64_t)i) % (8 * want.n);
        scratch_flip(path, bit);
        prepare(f);
        struct Content got = content_of(path);
        if (got.n != want.n || memcmp(got.bytes, want.bytes, want.n))
            fail_msg("bit %llu of %s is flipped and was not noticed", (unsigned long long)bit,
                     path);
        free(got.bytes);
    }
    free(want.bytes);
    free(path);
}

static void every_flip_in_a_shard_is_found(void **state) {
    expect_found(*state, "train.bin", 70, 1);
    expect_found(*state, "val.bin", 30, 2);
    assert_int_equal(scratch_count_files(((struct Fixture *)*state)->cache), 3);
}

static void every_flip_in_a_tokenizer_is_found(void **state) {
    struct Fixture *f = *state;
    f->spec.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_TRAIN, .pieces = 280};
    expect_found(f, "tokenizer.model", 100, 3);
    assert_int_equal(scratch_count_files(f->cache), 4);
}

// The same file, named by hand: it cannot be made anew, so it is refused. A copy elsewhere is
// somebody's own.
static void a_damaged_tokenizer_is_refused(void **state) {
    struct Fixture *f = *state;
    struct Tokenizer *t;
    struct Error e;
    f->spec.tokenizer = (struct TokenizerSpec){.kind = TOKENIZER_TRAIN, .pieces = 280};
    prepare(f);
    const char *path = f->prepared.model_path;
    assert_ok(tokenizer_open_model(&t, path, &e), &e);
    tokenizer_close(t);
    struct Content model = content_of(path);
    for (int i = 0; i < 100; i++) {
        uint64_t bit = rng_bits(9, (uint64_t)i) % (8 * model.n);
        scratch_flip(path, bit);
        assert_error(tokenizer_open_model(&t, path, &e), -EBADMSG, &e, "E_CACHE_DAMAGED model");
        assert_true(error_is(&e, "E_CACHE_DAMAGED --tokenizer"));
        scratch_flip(path, bit);
    }
    char *copy = scratch_write(f->folder, "own.model", model.bytes, model.n);
    assert_ok(tokenizer_open_model(&t, copy, &e), &e);
    tokenizer_close(t);
    free(copy);
    free(model.bytes);
}

static void a_damaged_list_is_found(void **state) {
    expect_found(*state, "checksums", 40, 4);
}

// Of a cache that an earlier version has made nobody knows whether it is whole.
static void a_folder_without_checksums_is_made_anew(void **state) {
    struct Fixture *f = *state;
    prepare(f);
    struct Content want = content_of(f->prepared.train_path);
    char *list = base_format("%.*schecksums", (int)(strlen(f->prepared.train_path) - 9),
                             f->prepared.train_path);
    assert_int_equal(unlink(list), 0);
    scratch_flip(f->prepared.train_path, 8 * 5000);
    prepare(f);
    struct Content got = content_of(f->prepared.train_path);
    assert_memory_equal(got.bytes, want.bytes, want.n);
    assert_int_equal(access(list, F_OK), 0);
    assert_int_equal(unlink(f->prepared.val_path), 0); // a file that is missing
    prepare(f);
    assert_int_equal(access(f->prepared.val_path, F_OK), 0);
    assert_int_equal(scratch_count_files(f->cache), 3);
    free(list);
    free(want.bytes);
    free(got.bytes);
}

// A run that has the files open reads on in those that it opened.
static void a_run_keeps_what_is_made_anew(void **state) {
    struct Fixture *f = *state;
    prepare(f);
    int fd = open(f->prepared.train_path, O_RDONLY);
    scratch_flip(f->prepared.val_path, 8 * 1500);
    prepare(f);
    struct stat mine, made;
    assert_int_equal(fstat(fd, &mine), 0);
    assert_int_equal(stat(f->prepared.train_path, &made), 0);
    assert_int_not_equal(mine.st_ino, made.st_ino);
    assert_int_equal(mine.st_size, made.st_size);
    close(fd);
}

// ---- what dead runs leave -----------------------------------------------------------------------

static const char *const own[] = {"train.bin", "tokenizer.model", NULL};

static void write_in(const char *folder, const char *name) {
    free(scratch_write(folder, name, "x", 1));
}

// Makes a folder aside in a child, which ends or waits to be killed; its path, free() it.
static char *leave_aside(const struct Fixture *f, bool dies, pid_t *child) {
    int pipes[2];
    char path[512] = "";
    assert_int_equal(pipe(pipes), 0);
    *child = fork();
    assert_true(*child >= 0);
    if (*child == 0) {
        struct AtomicFile aside;
        struct Error e;
        char *folder = base_format("%s/text-0123456789abcdef", f->cache);
        if (cache_aside_open(&aside, folder, &e))
            _exit(1);
        write_in(aside.tmp_path, "train.bin");
        write_in(aside.tmp_path, "tokenizer.model.abc123.tmp");
        write_in(aside.tmp_path, "train.bin.tmp");
        if (write(pipes[1], aside.tmp_path, strlen(aside.tmp_path)) < 0)
            _exit(1);
        alarm(60);
        while (!dies)
            pause();
        _exit(0);
    }
    assert_true(read(pipes[0], path, sizeof path - 1) > 0);
    close(pipes[0]);
    close(pipes[1]);
    if (dies)
        assert_int_equal(waitpid(*child, NULL, 0), *child);
    return base_format("%s", path);
}

static void what_dead_runs_leave_is_removed(void **state) {
    struct Fixture *f = *state;
    struct Error e;
    pid_t dead, alive;
    assert_ok(cache_make_folder(f->cache, &e), &e);
    char *left = leave_aside(f, true, &dead), *held = leave_aside(f, false, &alive);
    cache_sweep(f->cache, "text", own);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(scratch_count_files(held), 3);
    assert_int_equal(kill(alive, SIGKILL), 0);
    assert_int_equal(waitpid(alive, NULL, 0), alive);
    prepare(f); // sweeps too
    assert_int_equal(access(held, F_OK), -1);
    free(left);
    free(held);
}

// Folders of dead runs' naming that hold something else, or are links, belong to somebody.
static void what_is_not_ours_stays(void **state) {
    struct Fixture *f = *state;
    static const char *const names[] = {
        "text-0123456789abcdef.abcdef", "text-0123456789abcdef.ghijkl",
        "text-0123456789abcdef.mnopqr", "text-0123456789abcde.abcdef", "text-0123456789abcdef"};
    char *folder[5], *elsewhere = base_format("%s/elsewhere", f->folder), *link, *inner;
    struct Error e;
    assert_ok(cache_make_folder(f->cache, &e), &e);
    for (int i = 0; i < 5; i++) {
        folder[i] = base_format("%s/%s", f->cache, names[i]);
        assert_int_equal(mkdir(folder[i], 0700), 0);
        write_in(folder[i], "train.bin");
    }
    write_in(folder[0], "notes.txt"); // somebody's file
    inner = base_format("%s/tokenizer.model", folder[1]);
    assert_int_equal(symlink("/etc/passwd", inner), 0); // a link of our name
    free(inner);
    inner = base_format("%s/train.bin.abc123.tmp", folder[2]);
    assert_int_equal(mkdir(inner, 0700), 0); // a folder of our name
    assert_int_equal(mkdir(elsewhere, 0700), 0);
    write_in(elsewhere, "train.bin");
    link = base_format("%s/text-0123456789abcdef.uvwxyz", f->cache);
    assert_int_equal(symlink(elsewhere, link), 0);
    cache_sweep(f->cache, "text", own);
    for (int i = 0; i < 5; i++) {
        char *path = base_format("%s/train.bin", folder[i]);
        assert_int_equal(access(path, F_OK), 0);
        free(path);
        free(folder[i]);
    }
    assert_int_equal(scratch_count_files(elsewhere), 1);
    free(elsewhere);
    free(link);
    free(inner);
}

static void dead_replacements_are_removed(void **state) {
    struct Fixture *f = *state;
    struct Error e;
    char *path = base_format("%s/a.txt", f->folder);
    struct AtomicFile aside;
    pid_t child = fork();
    if (child == 0) {
        if (atomic_file_open(&aside, path, &e))
            _exit(1);
        _exit(file_write(aside.fd, path, "half", 4, &e));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(scratch_count_files(f->folder), 2); // the text and what was left
    assert_ok(atomic_file_open(&aside, path, &e), &e);   // one that lives
    assert_int_equal(scratch_count_files(f->folder), 2);
    assert_ok(file_replace(path, "whole", 5, &e), &e);
    assert_int_equal(scratch_count_files(f->folder), 3);
    assert_ok(atomic_file_commit(&aside, &e), &e);
    assert_int_equal(scratch_count_files(f->folder), 2);
    write_in(f->folder, "a.txt.tmp"); // these are somebody's
    write_in(f->folder, "a.txt.abcdefg.tmp");
    write_in(f->folder, "b.txt.abcdef.tmp");
    assert_ok(file_replace(path, "whole", 5, &e), &e);
    assert_int_equal(scratch_count_files(f->folder), 5);
    free(path);
}

// ---- one maker at a time ------------------------------------------------------------------------

// Each of some processes that count in a file by reading and writing it loses nothing, and the lock
// is gone when all are done; one that dies with it is in nobody's way.
static void one_makes_at_a_time(void **state) {
    enum { PROCESSES = 6, ROUNDS = 40 };
    struct Fixture *f = *state;
    struct Error e;
    int lock, status, n = 0;
    assert_ok(cache_make_folder(f->cache, &e), &e);
    char *path = scratch_write(f->cache, "count", &(int){0}, sizeof(int));
    for (int i = 0; i < PROCESSES; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child)
            continue;
        for (int k = 0; k < ROUNDS; k++) {
            int fd = open(path, O_RDWR), code = cache_lock(f->cache, &lock, &e);
            if (code || pread(fd, &n, sizeof n, 0) != sizeof n)
                _exit(1);
            usleep(300); // long enough for another to come in between
            n++;
            if (pwrite(fd, &n, sizeof n, 0) != sizeof n)
                _exit(1);
            close(fd);
            if (i == 0 && k == ROUNDS - 1)
                _exit(0); // with the lock
            cache_unlock(f->cache, lock);
        }
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    struct Content c = content_of(path);
    memcpy(&n, c.bytes, sizeof n);
    assert_int_equal(n, PROCESSES * ROUNDS);
    assert_ok(cache_lock(f->cache, &lock, &e), &e);
    cache_unlock(f->cache, lock);
    assert_int_equal(scratch_count_files(f->cache), 1);
    free(c.bytes);
    free(path);
}

// Without locks the caller is told so, and nothing stays.
static void a_disk_without_locks_is_told(void **state) {
    struct Fixture *f = *state;
    struct Error e;
    int lock = 0;
    assert_ok(cache_make_folder(f->cache, &e), &e);
    no_locks = true;
    assert_ok(cache_lock(f->cache, &lock, &e), &e);
    assert_int_equal(lock, -1);
    assert_int_equal(scratch_count_files(f->cache), 0);
    cache_unlock(f->cache, lock);
    prepare(f); // what it makes aside is its own
    no_locks = false;
}

// ---- links and owners ---------------------------------------------------------------------------

static void planted_links_lead_nowhere(void **state) {
    struct Fixture *f = *state;
    struct Error e;
    char *victim = scratch_write(f->folder, "victim", "precious", 8);
    char *path = base_format("%s/a.txt", f->folder), *link = base_format("%s.tmp", path);
    assert_int_equal(symlink(victim, link), 0);
    assert_ok(file_replace(path, "new", 3, &e), &e);
    struct Content c = content_of(victim);
    assert_string_equal(c.bytes, "precious");
    free(c.bytes);
    assert_int_equal(unlink(path), 0); // and where the name itself is a link, it is replaced
    assert_int_equal(symlink(victim, path), 0);
    assert_ok(file_replace(path, "new", 3, &e), &e);
    c = content_of(victim);
    assert_string_equal(c.bytes, "precious");
    free(c.bytes);
    free(victim);
    free(path);
    free(link);
}

static void the_cache_is_its_users_alone(void **state) {
    struct Fixture *f = *state;
    struct Error e;
    struct stat st;
    char *deep = base_format("%s/a/b", f->cache);
    mode_t mask = umask(0);
    assert_ok(cache_make_folder(deep, &e), &e);
    umask(mask);
    assert_int_equal(stat(f->cache, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(deep, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    free(deep);
    setenv("XDG_CACHE_HOME", f->cache, 1);
    char *usual = cache_default_folder();
    assert_int_equal(mkdir(usual, 0700), 0);
    assert_int_equal(chmod(usual, 0775), 0); // as an earlier version has made it
    assert_ok(cache_check(usual, &e), &e);
    assert_int_equal(stat(usual, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(chmod(usual, 0777), 0);
    assert_error(cache_check(usual, &e), -EPERM, &e, "E_CACHE_UNSAFE");
    unsetenv("XDG_CACHE_HOME");
    assert_ok(cache_check(usual, &e), &e); // where it was asked for
    free(usual);
}

// As root one can give a folder away; others find / to be somebody else's.
static void a_cache_of_another_user_is_refused(void **state) {
    struct Fixture *f = *state;
    struct Error e;
    const char *path = "/";
    if (geteuid() == 0) {
        path = f->cache;
        assert_int_equal(mkdir(path, 0777), 0);
        assert_int_equal(chown(path, 54321, 54321), 0);
    }
    assert_error(cache_check(path, &e), -EPERM, &e, "E_CACHE_UNSAFE");
    assert_error(cache_make_folder(path, &e), -EPERM, &e, "E_CACHE_UNSAFE --cache DIR");
    f->spec.cache_dir = path;
    assert_error(prepare_text(&f->prepared, &f->spec, &e), -EPERM, &e, "E_CACHE_UNSAFE");
}

// Without a home the name can be foreseen, and /tmp is everybody's.
static void a_link_in_tmp_is_refused(void **state) {
    struct Fixture *f = *state;
    struct Error e;
    user = 100000000 + (unsigned)getpid(); // a name that nobody else uses
    char *path = base_format("/tmp/zero.c-%u", user);
    assert_int_equal(mkdir(f->cache, 0700), 0);
    assert_int_equal(symlink(f->cache, path), 0);
    int code = cache_make_folder(path, &e);
    assert_int_equal(unlink(path), 0);
    assert_error(code, -EPERM, &e, "E_CACHE_UNSAFE");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0777), 0);
    code = cache_make_folder(path, &e);
    assert_int_equal(rmdir(path), 0);
    assert_error(code, -EPERM, &e, "E_CACHE_UNSAFE");
    user = 0;
    free(path);
}

// Files may have so many bytes, for every number up to what is needed: a line that names --cache,
// and nothing is left. (A disk that is full says it in the same places.)
static void a_full_cache_is_told(void **state) {
    struct Fixture *f = *state;
    struct Error e;
    struct rlimit usual, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small = usual;
    signal(SIGXFSZ, SIG_IGN);
    for (size_t most = 0; most < 60000; most += 3000) {
        small.rlim_cur = most;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        int code = prepare_text(&f->prepared, &f->spec, &e);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
        if (!code)
            return; // nothing more is written
        assert_error(code, -EFBIG, &e, "E_FILE_WRITE --cache");
        assert_int_equal(scratch_count_files(f->cache), 0);
    }
    fail_msg("it never came to an end");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_flip_in_a_shard_is_found),
        TEST(every_flip_in_a_tokenizer_is_found),
        TEST(a_damaged_tokenizer_is_refused),
        TEST(a_damaged_list_is_found),
        TEST(a_folder_without_checksums_is_made_anew),
        TEST(a_run_keeps_what_is_made_anew),
        TEST(what_dead_runs_leave_is_removed),
        TEST(what_is_not_ours_stays),
        TEST(dead_replacements_are_removed),
        TEST(one_makes_at_a_time),
        TEST(a_disk_without_locks_is_told),
        TEST(planted_links_lead_nowhere),
        TEST(the_cache_is_its_users_alone),
        TEST(a_cache_of_another_user_is_refused),
        TEST(a_link_in_tmp_is_refused),
        TEST(a_full_cache_is_told),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
