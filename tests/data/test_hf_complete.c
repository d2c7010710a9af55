// The folder of a model that is written is complete or not there, whichever call the disk refuses;
// what a dead run has left goes, and what somebody else has put there stays.
#include "data/hf/folder.h"
#include "tests/lib/full_disk.h"
#include "tests/lib/hf_out.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <math.h>

// ---- another export, and a full disk ----

// Another export to the same place, which comes right behind our mkdir.
static struct HfWriter *overtaker;

int mkdir(const char *path, mode_t mode) {
    int made = disk_fails() ? -1 : (int)syscall(SYS_mkdir, path, mode);
    struct HfWriter *other = overtaker;
    struct Error e = {0};
    overtaker = NULL;
    if (other)
        assert_ok(hf_writer_make(other, &e), &e);
    return made;
}

// ---- helpers ----

static int write_two(struct HfWriter *w, struct Error *e) {
    int code = hf_writer_make(w, e);
    if (code)
        return code;
    code = hf_write_range(w, 0, 0, 10, counted, e);
    if (!code)
        code = hf_write_range(w, 1, 0, 6, counted, e);
    if (!code)
        code = hf_writer_put(w, "config.json", "{}\n", 3, e);
    if (!code)
        code = hf_writer_sync(w, e);
    if (!code)
        code = hf_writer_commit(w, e);
    if (code)
        hf_writer_abandon(w);
    return code;
}

// ---- complete or not there ----------------------------------------------------------------------

TEST(nothing_stays_of_a_failure) {
    int failures = 0;
    for (int fail_at = 1;; fail_at++) {
        struct HfWriter w;
        struct Error e = {0};
        hf_writer_init(&w, out, HF_MODEL_STEM, two, 2, F32, 50);
        disk_calls = 0;
        disk_fail_at = fail_at;
        int code = write_two(&w, &e);
        disk_fail_at = 0;
        hf_writer_free(&w);
        assert_false(is_there(aside));
        if (!code)
            break;
        assert_error(code, -ENOSPC, &e, "E_FILE_WRITE");
        failures++;
        // Behind the rename the folder is whole; it may only not be on the disk yet.
        if (is_there(out)) {
            struct HfFolder f;
            assert_ok(hf_folder_open(&f, out, &e), &e);
            hf_folder_close(&f);
            char *command = base_format("rm -r '%s'", out);
            assert_int_equal(system(command), 0);
            free(command);
        }
    }
    assert_true(failures > 12);
    assert_true(is_there(out));
}

TEST(files_are_sized_without_fallocate) {
    struct HfWriter w;
    struct Error e = {0};
    struct stat st;
    no_fallocate = true;
    hf_writer_init(&w, out, HF_MODEL_STEM, two, 2, F32, HF_SHARD_BYTES);
    assert_ok(hf_writer_make(&w, &e), &e);
    assert_int_equal(fstat(w.file[0].fd, &st), 0);
    assert_int_equal(st.st_size, w.file[0].bytes);
    hf_writer_abandon(&w);
    hf_writer_free(&w);
    assert_false(is_there(aside) || is_there(out));
}

TEST(existing_folders_stay) {
    struct HfWriter w;
    struct Error e = {0};
    hf_writer_init(&w, out, HF_MODEL_STEM, two, 2, F32, HF_SHARD_BYTES);
    assert_ok(hf_writer_check(out, "--export", &e), &e);
    assert_int_equal(mkdir(out, 0700), 0);
    assert_error(hf_writer_check(out, "--export", &e), -EEXIST, &e, "E_FILE_EXISTS out");
    assert_int_equal(strncmp(e.text, "--export ", 9), 0);
    assert_error(hf_writer_make(&w, &e), -EEXIST, &e, "E_FILE_EXISTS out");
    assert_true(is_there(out) && !is_there(aside));
    // It comes to be meanwhile: the new one does not take its place, though it is empty.
    assert_int_equal(rmdir(out), 0);
    assert_ok(hf_writer_make(&w, &e), &e);
    assert_int_equal(mkdir(out, 0700), 0);
    assert_error(hf_writer_commit(&w, &e), -EEXIST, &e, "E_FILE_WRITE");
    assert_true(is_there(aside));
    hf_writer_abandon(&w);
    assert_true(is_there(out) && !is_there(aside));
    assert_int_equal(scratch_count_files(out), 0);
    hf_writer_free(&w);
    char *nowhere = base_format("%s/no/out", folder);
    assert_int_equal(symlink("nowhere", nowhere), -1);
    hf_writer_init(&w, nowhere, HF_MODEL_STEM, two, 2, F32, HF_SHARD_BYTES);
    assert_error(hf_writer_make(&w, &e), -ENOENT, &e, "E_FILE_WRITE");
    hf_writer_free(&w);
    free(nowhere);
}

TEST(links_are_not_followed) {
    struct HfWriter w;
    struct Error e = {0};
    char *other = base_format("%s/other", folder);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(symlink("other", aside), 0);
    hf_writer_init(&w, out, HF_MODEL_STEM, two, 2, F32, HF_SHARD_BYTES);
    assert_error(hf_writer_make(&w, &e), -EEXIST, &e, "E_FILE_EXISTS out.writing");
    assert_int_equal(unlink(aside), 0);
    assert_int_equal(symlink("nowhere", out), 0);
    assert_error(hf_writer_make(&w, &e), -EEXIST, &e, "E_FILE_EXISTS out");
    assert_true(is_there(other));
    hf_writer_free(&w);
    free(other);
}

// A dead run's folder aside goes; that of a living one, and what is no export's, stay.
TEST(dead_runs_are_swept) {
    struct HfWriter w, again;
    struct Error e = {0};
    hf_writer_init(&w, out, HF_MODEL_STEM, two, 2, F32, HF_SHARD_BYTES);
    hf_writer_init(&again, out, HF_MODEL_STEM, two, 2, F32, HF_SHARD_BYTES);
    assert_ok(hf_writer_make(&w, &e), &e);
    assert_error(hf_writer_make(&again, &e), -EEXIST, &e, "E_EXPORT_BUSY out.writing");
    hf_writer_free(&w); // as a death: what is on the disk stays
    assert_true(is_there(aside));
    assert_ok(hf_writer_make(&again, &e), &e);
    hf_writer_abandon(&again);
    assert_false(is_there(aside));
    assert_int_equal(mkdir(aside, 0700), 0); // dead behind its first call
    assert_ok(hf_writer_make(&again, &e), &e);
    hf_writer_abandon(&again);
    assert_int_equal(mkdir(aside, 0700), 0);
    free(scratch_write(aside, "thesis.txt", "x", 1));
    assert_error(hf_writer_make(&again, &e), -EEXIST, &e, "E_FILE_EXISTS");
    assert_int_equal(scratch_count_files(aside), 1);
    // Marked, but with a folder in it: its files go, it stays.
    free(scratch_write(aside, ".writing", "", 0));
    char *inner = base_format("%s/inner", aside);
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_error(hf_writer_make(&again, &e), -EEXIST, &e, "E_FILE_EXISTS");
    assert_true(is_there(inner));
    hf_writer_free(&again);
    free(inner);
}

// It took our folder, still unmarked, for a dead run's, and made its own of the same name.
TEST(an_overtaker_keeps_its_files) {
    struct HfWriter late, other;
    struct Error e = {0};
    hf_writer_init(&late, out, HF_MODEL_STEM, two, 2, F32, HF_SHARD_BYTES);
    hf_writer_init(&other, out, HF_MODEL_STEM, two, 2, F32, HF_SHARD_BYTES);
    overtaker = &other;
    assert_error(hf_writer_make(&late, &e), -EEXIST, &e, "E_EXPORT_BUSY");
    hf_writer_free(&late);
    assert_int_equal(scratch_count_files(aside), 2); // its marker and its tensors
    assert_ok(hf_writer_commit(&other, &e), &e);
    assert_int_equal(scratch_count_files(out), 1);
    hf_writer_free(&other);
}

// In all formats: the largest, and what is rounded to it, are written; what is no number never is.
TEST(no_value_becomes_infinite) {
    static const struct {
        enum Dtype dtype;
        float fits, over;
    } rows[] = {{F16, 65519.99f, -65520.0f}, {BF16, 0x1.fefffep127f, 0x1.ffp127f}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct HfWriter w;
        struct Error e = {0};
        float values[3] = {rows[i].fits, 0, rows[i].over};
        hf_writer_init(&w, out, HF_MODEL_STEM, two, 2, rows[i].dtype, HF_SHARD_BYTES);
        assert_ok(hf_writer_make(&w, &e), &e);
        assert_ok(hf_write_range(&w, 0, 3, 2, values, &e), &e);
        assert_error(hf_write_range(&w, 0, 3, 3, values, &e), -ERANGE, &e,
                     i ? "E_EXPORT_VALUE 3.39617753e+38" : "E_EXPORT_VALUE -65520");
        values[1] = i ? NAN : -INFINITY;
        assert_error(hf_write_range(&w, 0, 3, 2, values, &e), -ERANGE, &e,
                     "E_EXPORT_VALUE first.weight");
        hf_writer_abandon(&w);
        hf_writer_free(&w);
    }
}

TEST(no_file_is_put_in_place_of_another) {
    struct HfWriter w;
    struct Error e = {0};
    hf_writer_init(&w, out, HF_MODEL_STEM, two, 2, F32, HF_SHARD_BYTES);
    assert_ok(hf_writer_make(&w, &e), &e);
    assert_error(hf_writer_put(&w, "model.safetensors", "", 0, &e), -EEXIST, &e, "E_FILE_WRITE");
    hf_writer_abandon(&w);
    hf_writer_free(&w);
}

AROUND_EACH(set_up, tear_down);
