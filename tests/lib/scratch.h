// What the tests of data/ share: a folder of their own that vanishes, files in it, and one line to
// check an error line with.
#ifndef TESTS_LIB_SCRATCH_H
#define TESTS_LIB_SCRATCH_H
#include "data/file.h"
#include "tests/lib/refused.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A fresh folder; scratch_remove() it.
static inline char *scratch_make_in(const char *root) {
    char *path = base_format("%s/zero-test-XXXXXX", root);
    assert_non_null(mkdtemp(path));
    return path;
}
static inline char *scratch_make(void) {
    const char *root = getenv("TMPDIR");
    return scratch_make_in(root && *root ? root : "/tmp");
}

static inline void scratch_remove(char *path) {
    char *command = base_format("rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
    free(command);
    free(path);
}

// For a group of tests: *state is such a folder.
static inline int scratch_set_up(void **state) {
    *state = scratch_make();
    return 0;
}
static inline int scratch_tear_down(void **state) {
    scratch_remove(*state);
    return 0;
}

// Writes FOLDER/NAME and returns its path; free() it.
static inline char *scratch_write(const char *folder, const char *name, const void *bytes,
                                  size_t n) {
    char *path = base_format("%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

// The bytes of FOLDER/NAME, at most a MiB; free() them.
static inline char *scratch_read(const char *folder, const char *name, size_t *bytes) {
    char *path = base_format("%s/%s", folder, name), *text = NULL;
    struct Error e;
    if (file_read(path, 1 << 20, &text, bytes, &e))
        fail_msg("%s", e.text);
    free(path);
    return text;
}

// Flips a bit of a file.
static inline void scratch_flip(const char *path, uint64_t bit) {
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (uint8_t)(1 << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
    close(fd);
}

static inline size_t scratch_count_files(const char *folder) {
    char *command = base_format("find '%s' -type f | wc -l", folder);
    FILE *f = popen(command, "r");
    size_t n = 0;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu", &n), 1);
    pclose(f);
    free(command);
    return n;
}

// The call went well; if not, says why.
static inline void assert_ok(int code, const struct Error *e) {
    if (code)
        fail_msg("code %d: %s", code, e->text);
}

#endif
