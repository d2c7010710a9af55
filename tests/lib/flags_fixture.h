// What test_flags.c and test_config.c share: a small table with every type, and a folder for one
// file.
#ifndef TESTS_LIB_FLAGS_FIXTURE_H
#define TESTS_LIB_FLAGS_FIXTURE_H
#include "data/flags/flags.h"
#include "tests/lib/refused.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct Options {
    size_t batch, memory;
    double lr, beta2;
    int dtype, stage, shift;
    bool overlap, quiet;
    const char *out, *prompt, *config;
    size_t layers;
};

static const struct Flag table[] = {
    {"config", FLAG_STRING, offsetof(struct Options, config), NULL, "Run", .argument = "FILE",
     .help = "reads flags from FILE", .identity = FLAG_NOW},
    {"out", FLAG_STRING, offsetof(struct Options, out), "out", "Run", .argument = "DIR",
     .help = "where everything goes"},
    {"prompt", FLAG_STRING, offsetof(struct Options, prompt), NULL, "Run", .argument = "TEXT",
     .help = "begins the sample"},
    {"batch", FLAG_SIZE, offsetof(struct Options, batch), "8", "Training", .argument = "N>=1",
     .help = "sequences per micro-batch"},
    {"layers", FLAG_SIZE, offsetof(struct Options, layers), "0", "Model", .argument = "1<=N<=1000",
     .help = "blocks; 0: as the model has"},
    {"lr", FLAG_FLOAT, offsetof(struct Options, lr), "6e-4", "Training", .argument = "X>0",
     .help = "learning rate"},
    {"beta2", FLAG_FLOAT, offsetof(struct Options, beta2), "0.95", "Training", .argument = "0<=X<1",
     .help = "AdamW's decay of v"},
    {"device-mem", FLAG_SIZE, offsetof(struct Options, memory), "16G", "Memory",
     .argument = "BYTES", .help = "capacity", .was = "memory-cap"},
    {"shift", FLAG_INT, offsetof(struct Options, shift), "-3", "Run",
     .argument = "-2147483648<=N<=2147483647", .help = "a signed number"},
    {"dtype", FLAG_CHOICE, offsetof(struct Options, dtype), "fp32", "Run",
     .words = FLAG_WORDS("fp32", "bf16", "fp16"), .help = "number format"},
    {"zero", FLAG_CHOICE, offsetof(struct Options, stage), "0", "Memory",
     .words = FLAG_WORDS("0", "1", "2", "3"), .help = "ZeRO stage", .also = "stage zero-stage"},
    {"overlap", FLAG_BOOL, offsetof(struct Options, overlap), "true", "Memory",
     .help = "overlap copies and compute"},
    {"quiet", FLAG_BOOL, offsetof(struct Options, quiet), NULL, "Run",
     .help = "predict memory, and exit"},
};
enum { NFLAG = sizeof table / sizeof *table };
static const struct FlagPart part = {table, NFLAG, 0};

struct Fixture {
    struct Options options;
    struct Flags flags;
    struct Error error;
    char folder[64], path[96];
};

static inline int setup(void **state) {
    struct Fixture *x = base_alloc_zeroed(sizeof *x);
    flags_init(&x->flags, &part, 1, &x->options);
    strcpy(x->folder, "/tmp/test_flags.XXXXXX");
    if (!mkdtemp(x->folder))
        return -1;
    snprintf(x->path, sizeof x->path, "%s/config.json", x->folder);
    *state = x;
    return 0;
}

static inline int teardown(void **state) {
    struct Fixture *x = *state;
    unlink(x->path);
    int left = rmdir(x->folder); // fails if a test has left another file, such as config.json.tmp
    flags_free(&x->flags);
    free(x);
    return left;
}

// Parses the words as the line. The array ends with NULL.
static inline int parse(struct Fixture *x, const char *const *words) {
    char *argv[32] = {(char *)"train"};
    int argc = 1;
    for (; words[argc - 1]; argc++)
        argv[argc] = (char *)words[argc - 1];
    x->error.text[0] = 0;
    return flags_parse(&x->flags, argc, argv, &x->error);
}
#define PARSE(x, ...) parse(x, (const char *const[]){__VA_ARGS__, NULL})

// The first of the parts is the error's id, the others are values in its line.
static inline void expect_parts(const struct Error *e, const char *const *parts) {
    if (!error_is(e, *parts))
        fail_msg("'%s' [%s] is not %s", e->text, error_name(e->id), *parts);
    while (*++parts)
        if (!strstr(e->text, *parts))
            fail_msg("'%s' does not say '%s'", e->text, *parts);
}
#define ERROR_SAYS(x, ...) expect_parts(&(x)->error, (const char *const[]){__VA_ARGS__, NULL})

#endif
