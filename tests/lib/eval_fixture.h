// The items of tests/fixtures/eval and what the references make of them, for tests of evaluation.
// What is where: scripts/gen/eval_fixtures.py.
#ifndef TESTS_LIB_EVAL_FIXTURE_H
#define TESTS_LIB_EVAL_FIXTURE_H
#include "data/eval/evals.h"
#include "data/file.h"
#include "tests/lib/scratch.h"

#include <cjson/cJSON.h>

enum { FIXTURE_VOCAB = 211, FIXTURE_T = 24 };

struct Fixture {
    struct Tokenizer *tokenizer; // pieces.model
    cJSON *expected;
};

static inline const cJSON *json_get(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!item)
        fail_msg("no \"%s\" in expected.json", name);
    return item;
}

static inline const cJSON *fixture_get(const struct Fixture *f, const char *name) {
    return json_get(f->expected, name);
}

static inline char *fixture_bytes(const char *name, size_t *n) {
    char *path = base_format("tests/fixtures/eval/%s", name), *bytes;
    struct Error e = {0};
    assert_ok(file_read(path, 1 << 20, &bytes, n, &e), &e);
    free(path);
    return bytes;
}

static inline void fixture_read(const struct Fixture *f, const char *name,
                                const struct Tokenizer *tokenizer, struct EvalItems *items) {
    struct EvalSpec spec = {tokenizer, FIXTURE_VOCAB, FIXTURE_T, 0};
    struct Error e = {0};
    size_t n;
    char *bytes = fixture_bytes(name, &n);
    (void)f;
    *items = (struct EvalItems){0};
    assert_ok(hellaswag_parse(items, &spec, name, bytes, n, &e), &e);
    free(bytes);
}

// The references' log-probabilities of all sequences of a protocol. free() them.
static inline double *fixture_sums(const struct Fixture *f, const char *file,
                                   const char *protocol) {
    const cJSON *item, *sequence;
    size_t n = 0;
    double *sums = base_alloc_zeroed(1000 * sizeof *sums);
    cJSON_ArrayForEach(item, fixture_get(f, file))
        cJSON_ArrayForEach(sequence, json_get(item, protocol)) sums[n++] =
            json_get(sequence, "sum")->valuedouble;
    return sums;
}

static inline int fixture_setup(void **state) {
    struct Fixture *f = base_alloc_zeroed(sizeof *f);
    struct Error e = {0};
    size_t n;
    char *text = fixture_bytes("expected.json", &n);
    f->expected = cJSON_ParseWithLength(text, n);
    free(text);
    if (tokenizer_open_model(&f->tokenizer, "tests/fixtures/eval/pieces.model", &e))
        print_error("%s\n", e.text);
    *state = f;
    return f->expected && f->tokenizer ? 0 : -1;
}

static inline int fixture_teardown(void **state) {
    struct Fixture *f = *state;
    tokenizer_close(f->tokenizer);
    cJSON_Delete(f->expected);
    free(f);
    return 0;
}

#endif
