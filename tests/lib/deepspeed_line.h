// What the tests of DeepSpeed's configurations share: a line of ./train with --deepspeed, as far as
// flags are read, and what must have become of it.
#ifndef TESTS_LIB_DEEPSPEED_LINE_H
#define TESTS_LIB_DEEPSPEED_LINE_H
#include "data/flags/options.h"
#include "tests/lib/scratch.h"
#include "zero/settings/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/fixtures/deepspeed/"

struct Line {
    struct Settings train;
    struct Options run;
};

struct Read {
    struct Line line;
    struct Flags flags;
    struct DeepSpeed resolved;
    struct Error e;
};

// Reads a line of words, a space between two.
static inline int read_line(struct Read *r, const char *words) {
    const struct FlagPart parts[] = {{settings_table, settings_count, offsetof(struct Line, train)},
                                     {options_table, options_count, offsetof(struct Line, run)}};
    char *text = base_format("train %s", words), *argv[40], *rest = text;
    int argc = 0;
    while (argc < 40 && (argv[argc] = strtok_r(rest, " ", &rest)))
        argc++;
    *r = (struct Read){0};
    flags_init(&r->flags, parts, 2, &r->line);
    r->line.run.resolved = &r->resolved;
    int err = options_read(&r->flags, &r->line.run, argc, argv, &r->e);
    free(text);
    return err;
}

static inline void close_line(struct Read *r) {
    flags_free(&r->flags);
    deepspeed_close(&r->resolved);
}

static inline void expect_flag(struct Read *r, const char *name, const char *expected) {
    char *value = flags_value(&r->flags, name);
    if (strcmp(value, expected) != 0)
        fail_msg("--%s is %s; expected %s", name, value, expected);
    free(value);
}

static inline void expect_part(const struct Error *e, const char *part) {
    if (!error_is(e, "E_DEEPSPEED_KEYS") || !strstr(e->text, part))
        fail_msg("\"%s\" does not have \"%s\"", e->text, part);
}

// Reads a text as a file of the line's.
static inline int read_text(struct Read *r, const char *text, const char *words) {
    char *folder = scratch_make(), *path = scratch_write(folder, "ds.json", text, strlen(text));
    char *line = base_format("--data random --deepspeed %s %s", path, words);
    int err = read_line(r, line);
    free(line);
    free(path);
    scratch_remove(folder);
    return err;
}

static inline void refused(const char *text, const char *words, const char *said) {
    struct Read r;
    assert_error(read_text(&r, text, words), -EINVAL, &r.e, said);
    close_line(&r);
}

static inline void is_set(const char *text, const char *words, const char *flag,
                          const char *value) {
    struct Read r;
    if (read_text(&r, text, words))
        fail_msg("%s", r.e.text);
    expect_flag(&r, flag, value);
    close_line(&r);
}

#endif
