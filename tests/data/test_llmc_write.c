// llm.c's model files are written as it has them, held against a file that is laid out by hand; a
// file is complete or not there, whichever call the disk refuses; what a dead run has left goes,
// and what somebody else has put there stays.
#include "data/hf/kind.h"
#include "tests/lib/full_disk.h"
#include "tests/lib/llmc_by_hand.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// ---- a disk that fails on purpose (full_disk.h), and another export ----

// Bytes that are left on it.
static uint64_t disk_room = 1 << 30;

int statvfs(const char *restrict where, struct statvfs *restrict fs) {
    assert_true(is_there(where)); // it is the folder that will hold the export
    *fs = (struct statvfs){.f_frsize = 1, .f_bavail = disk_room};
    return 0;
}

// Another export to the same place, which comes between our making of the file and its lock.
static const struct ExportSink *overtaker;

int flock(int fd, int how) {
    const struct ExportSink *other = overtaker;
    struct Error e = {0};
    overtaker = NULL;
    if (other)
        assert_ok(other->make(other->context, &e), &e);
    return (int)syscall(SYS_flock, fd, how);
}

// ---- writing ------------------------------------------------------------------------------------

static void write_values(const struct ExportSink *s, int layer, const char *param, size_t begin,
                         const struct WeightsRange *range) {
    struct Error e = {0};
    float values[64];
    for (size_t i = 0; i < range->n; i++)
        values[i] = value(begin + weights_at(range, i));
    assert_ok(s->write(s->context, layer, param, range, values, &e), &e);
}

// In two halves; a matrix that places of tensor parallelism have columns of, by its columns.
static void write_one(void *sink, int layer, const char *param, size_t begin, size_t count) {
    size_t half = count / 2, cols = strcmp(param, "attention.proj.weight") ? count : C;
    cols = strcmp(param, "mlp.out.weight") ? cols : 4 * C;
    struct WeightsRange second = {.at = half, .n = count - half}, first = {.at = 0, .n = half};
    if (cols < count) {
        first = (struct WeightsRange){0, half, 0, cols / 2, cols};
        second = (struct WeightsRange){cols / 2, half, 0, cols / 2, cols};
    }
    write_values(sink, layer, param, begin, &second);
    write_values(sink, layer, param, begin, &first);
}

// As ranks of two processes: one makes the file, the other writes it.
static void write_all(enum Dtype dtype) {
    struct ExportSink s[2];
    struct Error e = {0};
    const struct ExportModel model = {.flags = model_flags, .dtype = dtype};
    for (int i = 0; i < 2; i++)
        assert_ok(llmc_weights.make(path, &model, &s[i], &e), &e);
    assert_ok(s[0].make(s[0].context, &e), &e);
    assert_ok(s[1].join(s[1].context, &e), &e);
    for_all(write_one, &s[1]);
    for (int i = 0; i < 2; i++)
        assert_ok(s[i].sync(s[i].context, &e), &e);
    assert_true(is_there(aside) && !is_there(path));
    assert_ok(s[0].commit(s[0].context, &e), &e);
    assert_true(!is_there(aside) && is_there(path));
    for (int i = 0; i < 2; i++)
        s[i].close(s[i].context);
}

TEST(a_file_is_as_llm_c_has_it) {
    for (int half = 0; half < 2; half++) {
        int32_t head[256];
        float one = 0;
        size_t bytes = half ? 2 : 4;
        write_all(half ? BF16 : F32);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        assert_int_equal(fread(head, 4, 256, f), 256);
        const int32_t want[8] = {20240326, half ? 5 : 3, T, V, L, 2, C, 128};
        assert_memory_equal(head, want, sizeof want);
        for (int i = 8; i < 256; i++)
            assert_int_equal(head[i], 0);
        for (size_t i = 0; i < ELEMENTS + PAD; i++) {
            bool padding = i >= V * C && i < 128 * C;
            float right = padding ? 0 : value(i < V * C ? i : i - PAD);
            assert_int_equal(fread((char *)&one + 4 - bytes, bytes, 1, f), 1);
            if (one != right)
                fail_msg("element %zu: %g, not %g", i, (double)one, (double)right);
        }
        assert_int_equal(fgetc(f), EOF);
        fclose(f);
        unlink(path);
    }
}

TEST(other_models_are_refused) {
    static const struct {
        const char *from, *to, *line;
    } cases[] = {
        {"gpt2", "qwen3", "E_EXPORT_MODEL --family qwen3"},
        {"\"on\"", "\"off\"", "E_EXPORT_MODEL --tie off"},
        {"\"kv-heads\":2", "\"kv-heads\":1", "E_EXPORT_MODEL kv-heads 1, only 2"},
        {"\"head-size\":2", "\"head-size\":4", "E_EXPORT_MODEL head-size 4, only 2"},
        {"\"ffn\":16", "\"ffn\":12", "E_EXPORT_MODEL ffn 12, only 16"},
        {"\"ffn\":16", "\"ffn\":16,\"attention-window\":2", "E_EXPORT_MODEL attention-window 2"},
        {"1e-05", "1e-06", "E_EXPORT_MODEL norm-eps 1e-06, only 1e-05"},
    };
    struct ExportSink s;
    struct Error e = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *at = strstr(model_flags, cases[i].from);
        char *flags = base_format("%.*s%s%s", (int)(at - model_flags), model_flags, cases[i].to,
                                  at + strlen(cases[i].from));
        const struct ExportModel model = {.flags = flags, .dtype = F32};
        assert_error(llmc_weights.make(path, &model, &s, &e), -EINVAL, &e, cases[i].line);
        free(flags);
    }
    const struct ExportModel fp16 = {.flags = model_flags, .dtype = F16};
    assert_error(llmc_weights.make(path, &fp16, &s, &e), -EINVAL, &e, "E_EXPORT_DTYPE fp16");
    assert_int_equal(scratch_count_files(folder), 0);
}

// ---- complete or not there ----------------------------------------------------------------------

static const struct ExportModel model32 = {.flags = model_flags, .dtype = F32};

TEST(existing_files_stay) {
    struct ExportSink s, other;
    struct Error e = {0};
    write_version(3);
    assert_error(llmc_weights.make(path, &model32, &s, &e), -EEXIST, &e, "E_FILE_EXISTS m.bin");
    unlink(path);
    assert_ok(llmc_weights.make(path, &model32, &s, &e), &e);
    assert_ok(llmc_weights.make(path, &model32, &other, &e), &e);
    assert_ok(s.make(s.context, &e), &e);
    // It comes to be meanwhile.
    write_version(5);
    assert_error(s.commit(s.context, &e), -EEXIST, &e, "E_FILE_WRITE");
    s.abandon(s.context);
    assert_true(is_there(path) && !is_there(aside));
    assert_error(other.make(other.context, &e), -EEXIST, &e, "E_FILE_EXISTS m.bin");
    assert_true(!is_there(aside));
    s.close(s.context);
    other.close(other.context);
}

// A dead run's file aside goes; that of a living one, and what is no export's, stay.
// Of both kinds, before anything is made.
TEST(a_disk_that_is_too_small_is_told_early) {
    const struct WeightsKind *const kinds[] = {&llmc_weights, &hf_weights};
    for (int i = 0; i < 2; i++) {
        struct ExportSink s;
        struct Error e = {0};
        assert_ok(kinds[i]->make(path, &model32, &s, &e), &e);
        if (s.list)
            assert_ok(s.list(s.context, -1, "wte", &e), &e);
        disk_room = 1 << 30;
        assert_ok(s.check_room(s.context, &e), &e);
        disk_room = 100;
        assert_error(s.check_room(s.context, &e), -ENOSPC, &e, "E_DISK_FULL 0.000");
        disk_room = 1 << 30;
        s.close(s.context);
        assert_true(!is_there(path) && !is_there(aside));
    }
}

// It took our file, still empty, for a dead run's, and made its own of the same name.
TEST(an_overtaker_keeps_its_file) {
    struct ExportSink s, other;
    struct Error e = {0};
    assert_ok(llmc_weights.make(path, &model32, &s, &e), &e);
    assert_ok(llmc_weights.make(path, &model32, &other, &e), &e);
    overtaker = &other;
    assert_error(s.make(s.context, &e), -EEXIST, &e, "E_EXPORT_BUSY");
    s.abandon(s.context);
    s.close(s.context);
    assert_true(is_there(aside));
    assert_ok(other.commit(other.context, &e), &e);
    assert_true(is_there(path) && !is_there(aside));
    other.close(other.context);
}

TEST(dead_runs_are_swept) {
    struct ExportSink s, other;
    struct Error e = {0};
    pid_t child = fork();
    if (!child) { // dies in the middle
        bool made = !llmc_weights.make(path, &model32, &s, &e) && !s.make(s.context, &e);
        _exit(made ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(is_there(aside));
    assert_ok(llmc_weights.make(path, &model32, &s, &e), &e);
    assert_ok(llmc_weights.make(path, &model32, &other, &e), &e);
    assert_ok(s.make(s.context, &e), &e);
    assert_error(other.make(other.context, &e), -EEXIST, &e, "E_EXPORT_BUSY m.bin.writing");
    other.abandon(other.context);
    assert_true(is_there(aside));
    assert_ok(s.commit(s.context, &e), &e);
    s.close(s.context);
    unlink(path);
    free(scratch_write(folder, "m.bin.writing", "somebody's", 10));
    assert_error(other.make(other.context, &e), -EEXIST, &e, "E_FILE_EXISTS m.bin.writing");
    unlink(aside);
    assert_int_equal(symlink("nowhere", aside), 0);
    assert_error(other.make(other.context, &e), -EEXIST, &e, "E_FILE_EXISTS m.bin.writing");
    assert_true(is_there(aside));
    other.close(other.context);
}

static int write_some(struct Error *e) {
    struct ExportSink s;
    float values[C] = {1, 2, 3, 4};
    assert_ok(llmc_weights.make(path, &model32, &s, e), e);
    int code = s.make(s.context, e);
    if (!code) {
        code =
            s.write(s.context, -1, "norm.bias", &(struct WeightsRange){.at = 0, .n = C}, values, e);
        if (!code)
            code = s.sync(s.context, e);
        if (!code)
            code = s.commit(s.context, e);
        if (code)
            s.abandon(s.context);
    }
    s.close(s.context);
    return code;
}

TEST(nothing_stays_of_a_failure) {
    int failures = 0;
    for (int fail_at = 1;; fail_at++) {
        struct Error e = {0};
        disk_calls = 0;
        disk_fail_at = fail_at;
        int code = write_some(&e);
        disk_fail_at = 0;
        assert_false(is_there(aside));
        if (!code)
            break;
        assert_error(code, -ENOSPC, &e, "E_FILE_WRITE");
        failures++;
        struct ImportSource from;
        if (is_there(path)) { // behind the rename it is whole
            assert_ok(llmc_weights.open(path, &from, &e), &e);
            from.close(from.context);
            unlink(path);
        }
    }
    assert_true(failures > 6);
    assert_true(is_there(path));
}

AROUND_EACH(set_up, tear_down);
