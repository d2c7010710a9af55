// Checkpoints under attack: damaged files, files of other runs, full disks, and a process that dies
// at any point of saving. (That a resumed run is bitwise the run that never stopped is
// tests/zero/test_bitwise.c.)
//
// The linker hands this program's calls of write, fsync, rename and renameat2 to the __wrap_
// functions below (Makefile: WRAP), which can fail or end the process at the n-th call.
#include "zero/state.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include "kernels/hash.h"
#include "zero/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

// ---- faults ----

enum Fault { FAULT_NONE, FAULT_FULL_DISK, FAULT_KILL };

static struct {
    enum Fault kind;
    int countdown; // calls until the fault
    int calls;
} fault;

static bool fault_is_due(void) {
    fault.calls++;
    if (fault.kind == FAULT_NONE || --fault.countdown > 0)
        return false;
    if (fault.kind == FAULT_KILL)
        _exit(9);
    errno = ENOSPC;
    return true;
}

ssize_t __real_write(int fd, const void *bytes, size_t n);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);

// A write that dies half way leaves the first half.
ssize_t __wrap_write(int fd, const void *bytes, size_t n) {
    if (fault.kind == FAULT_KILL && fault.countdown == 1)
        (void)!__real_write(fd, bytes, n / 2);
    return fault_is_due() ? -1 : __real_write(fd, bytes, n);
}
int __wrap_fsync(int fd) {
    return fault_is_due() ? -1 : __real_fsync(fd);
}
int __wrap_rename(const char *from, const char *to) {
    return fault_is_due() ? -1 : __real_rename(from, to);
}
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    return fault_is_due() ? -1 : __real_renameat2(from_dir, from, to_dir, to, flags);
}

// ---- helpers ----

static const char identity[] = "data 1\n--lr 0.001\n";

static void open_at_step(struct Rank *r, int steps) {
    struct RankSettings s = tiny_settings(F32);
    s.threads = 1;
    tiny_open(r, &s, 1);
    for (int i = 0; i < steps; i++)
        tiny_step(r);
}

static void save(struct Rank *r, const char *folder) {
    struct Error e = {0};
    if (checkpoint_save(&r->zero, folder, identity, NULL, &e))
        fail_msg("%s", e.text);
}

// The step from which a run would go on, or -1 with a damaged or missing checkpoint.
static int64_t resumed_step(const char *folder) {
    struct Rank r;
    struct Error e = {0};
    open_at_step(&r, 0);
    int err =
        checkpoint_resume(&r.zero, (const char *const[]){folder, NULL}, "auto", identity, NULL, &e);
    int64_t step = err ? -1 : (int64_t)r.zero.step;
    rank_close(&r);
    return step;
}

static bool exists(const char *folder, const char *name) {
    char *path = base_format("%s/%s", folder, name);
    struct stat st;
    bool yes = stat(path, &st) == 0;
    free(path);
    return yes;
}

// ---- tests ----

TEST(the_newest_are_kept) {
    char *folder = *state;
    struct Rank r;
    open_at_step(&r, 0);
    for (int i = 0; i < 4; i++) {
        tiny_step(&r);
        save(&r, folder);
    }
    save(&r, folder); // the same step again
    rank_close(&r);
    checkpoint_prune(folder, 4, (struct CheckpointKeep){.newest = 2});
    assert_false(exists(folder, "step-00000002"));
    assert_true(exists(folder, "step-00000003"));
    assert_true(exists(folder, "step-00000004"));
    assert_false(exists(folder, "writing"));
    assert_int_equal(resumed_step(folder), 4);
}

// Flips one bit, or cuts the file, at many places: each must be refused, and the one before used.
TEST(a_damaged_checkpoint_is_refused) {
    char *folder = *state;
    struct Rank r;
    open_at_step(&r, 1);
    save(&r, folder);
    tiny_step(&r);
    save(&r, folder);
    rank_close(&r);
    assert_int_equal(resumed_step(folder), 2);
    char *path = base_format("%s/step-00000002/rank-0000.state", folder);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    log_level = LOG_QUIET;
    for (int i = 0; i < 24; i++) {
        off_t at = i < 8 ? i * 9 : st.st_size * (i - 7) / 17 - 1;
        int fd = open(path, O_RDWR);
        char byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (char)(1 << i % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_int_equal(resumed_step(folder), 1);
        byte ^= (char)(1 << i % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    assert_int_equal(resumed_step(folder), 2);
    for (int i = 1; i <= 4; i++) {
        assert_int_equal(truncate(path, st.st_size * (4 - i) / 4), 0);
        assert_int_equal(resumed_step(folder), 1);
    }
    log_level = LOG_NORMAL;
    free(path);
}

TEST(a_checkpoint_of_another_run_is_refused_by_name) {
    char *folder = *state;
    struct Rank r;
    struct Error e = {0};
    open_at_step(&r, 1);
    save(&r, folder);
    uint64_t hash = zero_weights_hash(&r.zero);
    tiny_step(&r);
    uint64_t later = zero_weights_hash(&r.zero);
    assert_true(hash != later);
    int err = checkpoint_resume(&r.zero, (const char *const[]){folder, NULL}, "auto",
                                "data 1\n--lr 0.002\n", NULL, &e);
    assert_int_equal(err, -EINVAL);
    assert_true(error_is(&e, "E_CHECKPOINT_IDENTITY --lr 0.001"));
    assert_true(error_is(&e, "E_CHECKPOINT_IDENTITY --lr 0.002"));
    assert_true(later == zero_weights_hash(&r.zero)); // and nothing was loaded
    rank_close(&r);

    struct RankSettings s =
        tiny_settings(F32); // the same flags, another shape: no flag can hide it
    s.model.channels = 48;
    tiny_open(&r, &s, 1);
    assert_int_equal(
        checkpoint_resume(&r.zero, (const char *const[]){folder, NULL}, "auto", identity, NULL, &e),
        -EINVAL);
    rank_close(&r);
}

TEST(what_differs_is_a_flag_by_its_name) {
    char *folder = *state;
    struct Rank r;
    struct Error e = {0};
    open_at_step(&r, 1);
#define RUN "text of --data 12\n--kernels plain\n--lr 1\n--batch 4\n"
    const char *mine = RUN "--master-dtype split\n";
    static const struct {
        const char *identity, *said;
    } other[] = {
        {RUN "--window 8\n--master-dtype split\n", "E_CHECKPOINT_IDENTITY \"--window 8\""},
        {RUN, "E_CHECKPOINT_IDENTITY \"--master-dtype split\""},
        {RUN "--window 8\n--master-dtype bf16\n", "E_CHECKPOINT_IDENTITY \"--master-dtype split\""},
        {"text of --data 13\n--kernels plain\n--lr 2\n--batch 4\n--master-dtype split\n",
         "E_CHECKPOINT_IDENTITY \"--lr 1\""},
        {"text of --data 13\n--kernels plain\n--lr 1\n--batch 4\n--master-dtype split\n",
         "E_CHECKPOINT_IDENTITY \"text of --data 12\""},
        {"text of --data 12\n--device cuda\n--lr 1\n--batch 4\n--master-dtype split\n",
         "E_CHECKPOINT_IDENTITY \"--kernels plain\""},
        {"text of --data 12\n--kernels plain\n--lr 1\n--batch 8\n--master-dtype split\n",
         "E_CHECKPOINT_IDENTITY \"--batch 4\""},
        {"", "E_CHECKPOINT_IDENTITY \"--kernels plain\""},
    };
#undef RUN
    assert_int_equal(checkpoint_save(&r.zero, folder, mine, NULL, &e), 0);
    char *path = checkpoint_path(folder, 1);
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        assert_int_equal(checkpoint_load(&r.zero, path, other[i].identity, &e), -EINVAL);
        if (!error_is(&e, other[i].said) || e.text[strlen(e.text) - 1] == '\n')
            fail_msg("%s; not %s", e.text, other[i].said);
    }
    const char *moved =
        "--master-dtype split\n--batch 4\n--lr 1\n--kernels plain\ntext of --data 12\n";
    assert_int_equal(checkpoint_load(&r.zero, path, moved, &e), 0);
    rank_close(&r);
    free(path);
}

// The number in a file's first line, with the right hash behind the file.
static void set_format(const char *path, char number) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    size_t n = (size_t)st.st_size;
    char *bytes = base_alloc(n);
    int fd = open(path, O_RDWR);
    assert_int_equal(read(fd, bytes, n), (ssize_t)n);
    assert_memory_equal(bytes, "zero.c state 5\n", 16);
    bytes[13] = number;
    uint64_t hash = hash64(bytes, n - sizeof hash, 0);
    memcpy(bytes + n - sizeof hash, &hash, sizeof hash);
    assert_int_equal(pwrite(fd, bytes, n, 0), (ssize_t)n);
    close(fd);
    free(bytes);
}

TEST(a_checkpoint_of_another_format_is_refused) {
    static const struct {
        char number;
        const char *said;
    } formats[] = {{'4', "E_CHECKPOINT_FORMAT"},
                   {':', "E_CHECKPOINT_FORMAT"},
                   {'9', "E_CHECKPOINT_DAMAGED sizes"}}; // its table of groups is longer
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        char *folder = scratch_make();
        char *path = base_format("%s/step-00000002/rank-0000.state", folder);
        struct Rank r;
        struct Error e = {0};
        open_at_step(&r, 2);
        save(&r, folder);
        set_format(path, formats[i].number);
        assert_int_equal(checkpoint_resume(&r.zero, (const char *const[]){folder, NULL}, "auto",
                                           identity, NULL, &e),
                         -EBADMSG);
        if (!error_is(&e, formats[i].said) || !strstr(e.text, path))
            fail_msg("%s; not %s", e.text, formats[i].said);
        rank_close(&r);
        free(path);
        scratch_remove(folder);
    }
}

// ---- adapters ----

static struct RankSettings with_adapters(void) {
    struct RankSettings s = tiny_settings(F32);
    s.model.lora = (struct Lora){.rank = 3, .alpha = 6, .targets = lora_targets_all(true)};
    return s;
}

static void open_on_base(struct Rank *r, const struct RankSettings *s, uint64_t seed) {
    tiny_open(r, s, seed);
    r->zero.base_hash = zero_base_hash(&r->zero);
}

static void load_refused(CheckpointLoad *load, struct Rank *r, const char *path, const char *said) {
    struct Error e = {0};
    uint64_t hash = zero_weights_hash(&r->zero);
    assert_int_equal(load(&r->zero, path, identity, &e), -EINVAL);
    if (!error_is(&e, said) || !strstr(e.text, path))
        fail_msg("%s; not %s", e.text, said);
    assert_true(zero_weights_hash(&r->zero) == hash);
}

// They are saved alone, and loaded beside the weights that they were trained on and no others.
TEST(adapters_are_of_their_base) {
    char *adapters = base_format("%s/adapters", (char *)*state), *model = *state;
    struct RankSettings s = with_adapters(), plain = tiny_settings(F32);
    struct Rank r, other;
    struct Error e = {0};
    char *path = checkpoint_path(adapters, 1), *whole = checkpoint_path(model, 1);
    char *file = base_format("%s/rank-0000.state", path);
    assert_int_equal(mkdir(adapters, 0755), 0);
    open_on_base(&r, &s, 1);
    tiny_step(&r);
    save(&r, adapters);
    FILE *f = fopen(file, "rb");
    char magic[16];
    struct stat st;
    assert_non_null(f);
    assert_int_equal(fread(magic, 1, sizeof magic, f), sizeof magic);
    assert_int_equal(fclose(f), 0);
    assert_memory_equal(magic, "zero.c state 13", 16);
    assert_int_equal(stat(file, &st), 0); // three numbers for each weight, and a head
    uint64_t trained = params_trained(&s.model);
    assert_in_range(st.st_size, 12 * trained, 12 * trained + 1000);

    open_on_base(&other, &s, 1);
    assert_true(zero_weights_hash(&other.zero) != zero_weights_hash(&r.zero));
    assert_int_equal(checkpoint_load(&other.zero, path, identity, &e), 0);
    assert_true(zero_weights_hash(&other.zero) == zero_weights_hash(&r.zero));
    rank_close(&other);

    open_on_base(&other, &s, 2);
    load_refused(checkpoint_load, &other, path, "E_CHECKPOINT_BASE --init");
    load_refused(checkpoint_load_weights, &other, path, "E_CHECKPOINT_BASE --export");
    rank_close(&r);
    open_on_base(&r, &plain, 1);
    load_refused(checkpoint_load, &r, path, "E_CHECKPOINT_BASE holds adapters");
    tiny_step(&r);
    save(&r, model);
    load_refused(checkpoint_load, &other, whole, "E_CHECKPOINT_BASE --init run:DIR");
    // A model of a run without adapters is a base.
    assert_int_equal(checkpoint_load_weights(&other.zero, whole, identity, &e), 0);
    assert_true(zero_base_hash(&other.zero) == zero_weights_hash(&r.zero));
    rank_close(&other);
    rank_close(&r);
    char *const all[] = {adapters, path, whole, file};
    for (int i = 0; i < 4; i++)
        free(all[i]);
}

TEST(no_checkpoint_is_a_fresh_start) {
    char *folder = *state;
    assert_int_equal(resumed_step(folder), 0);
    struct Rank r;
    struct Error e = {0};
    open_at_step(&r, 0);
    assert_true(checkpoint_load(&r.zero, folder, identity, &e) <
                0); // but one that is named must exist
    assert_non_null(strstr(e.text, folder));
    rank_close(&r);
}

TEST(a_second_folder_that_cannot_be_read_is_an_error) {
    char *folder = *state, *path = folder;
    const char *folders[] = {folder, "/proc/self/maps", NULL}; // no folder
    struct Rank r;
    struct Error e = {0};
    uint64_t step;
    open_at_step(&r, 1);
    save(&r, folder);
    assert_true(checkpoint_newest(folders, UINT64_MAX, &path, &step, &e) < 0);
    assert_null(path);
    assert_true(checkpoint_resume(&r.zero, folders, "auto", identity, NULL, &e) < 0);
    assert_true(error_is(&e, "E_CHECKPOINT_READ /proc/self/maps"));
    rank_close(&r);
}

// Saves step 1, then step 2 with a fault at call n. Returns the exit status of the process that did
// it: 0 saved, 1 an error was returned, 9 it died.
static int save_with_fault(const char *folder, enum Fault kind, int n) {
    pid_t child = fork();
    if (child == 0) {
        struct Rank r;
        struct Error e = {0};
        open_at_step(&r, 1);
        if (!exists(folder, "step-00000001"))
            save(&r, folder);
        tiny_step(&r);
        fault.kind = kind;
        fault.countdown = n;
        int err = checkpoint_save(&r.zero, folder, identity, NULL, &e);
        _exit(err ? (strchr(e.text, '/') && !strchr(e.text, '\n') ? 1 : 2) : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

// Faults 18 and 19: whatever call of saving fails, or is the process's last, a resume finds a whole
// checkpoint, the old one or the new one; and a full disk leaves no half-made one behind.
static void attack(enum Fault kind, int expected) {
    int faults = 0;
    for (int n = 1;; n++) {
        char *folder = scratch_make();
        int status = save_with_fault(folder, kind, n);
        int64_t step = resumed_step(folder);
        bool leftover = exists(folder, "writing");
        if (status != 0) {
            assert_int_equal(status, expected);
            assert_true(step == 1 || step == 2);
            assert_false(kind == FAULT_FULL_DISK && leftover);
            faults++;
            assert_int_equal(save_with_fault(folder, FAULT_NONE, 0),
                             0); // and the next save succeeds
            assert_int_equal(resumed_step(folder), 2);
        }
        scratch_remove(folder);
        if (status == 0)
            break;
    }
    assert_true(faults >= 16); // 14 writes, fsync of file and folders, the rename
}

TEST(fault_18_killed_at_every_write_fsync_and_rename) {
    attack(FAULT_KILL, 9);
}

TEST(fault_19_disk_full_at_every_write) {
    attack(FAULT_FULL_DISK, 1);
}

AROUND_EACH(scratch_set_up, scratch_tear_down);
