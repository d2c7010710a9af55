// A log in a folder of its own, for the tests of log.jsonl: test_log.c and test_log_cut.c.
#ifndef TESTS_DATA_TEST_LOG_H
#define TESTS_DATA_TEST_LOG_H

#include "data/file.h"
#include "data/log/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

struct Fixture {
    char folder[64], path[96];
    struct Appender log;
    struct Error error;
    char *text; // what read_log found
};

static inline int setup(void **state) {
    struct Fixture *x = base_alloc_zeroed(sizeof *x);
    strcpy(x->folder, "/tmp/test_log.XXXXXX");
    if (!mkdtemp(x->folder))
        return -1;
    snprintf(x->path, sizeof x->path, "%s/log.jsonl", x->folder);
    log_level = LOG_QUIET;
    *state = x;
    return 0;
}

static inline int teardown(void **state) {
    struct Fixture *x = *state;
    appender_close(&x->log, &x->error);
    unlink(x->path);
    int left = rmdir(x->folder); // fails where a test leaves log.jsonl.tmp behind
    free(x);
    return left;
}

static inline void open_log(struct Fixture *x, int64_t last_step) {
    if (runlog_open(&x->log, x->folder, last_step, &x->error))
        fail_msg("%s", x->error.text);
}

static inline char *read_log(struct Fixture *x) {
    size_t n;
    if (file_read(x->path, 1 << 24, &x->text, &n, &x->error))
        fail_msg("%s", x->error.text);
    return x->text;
}

static inline void expect_log(struct Fixture *x, const char *expected) {
    char *text = read_log(x);
    assert_string_equal(text, expected);
    free(text);
}

#endif
