// A tokenizer of a few lines, in place of the program's: a byte-level BPE over whole texts, without
// words, with control tokens behind its pieces. Tokens cross every border that text has, so that
// what is joined before it is encoded, and whose each token is, shows in the ids.
//
// Whoever includes it is linked with the calls of TOY_TOKENIZER wrapped (tests/tests.mk), so that
// data/chat/ gets this one. Its ids are those of scripts/gen/chat_fixtures.py.
#ifndef TESTS_LIB_TOY_TOKENIZER_H
#define TESTS_LIB_TOY_TOKENIZER_H
#include "data/text/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TOY_MERGES_MAX = 1024, TOY_CONTROLS_MAX = 16 };

struct Toy {
    int32_t left[TOY_MERGES_MAX], right[TOY_MERGES_MAX]; // of merge i, which makes id 256 + i
    size_t merges;
    struct {
        int32_t id;
        char text[32];
    } control[TOY_CONTROLS_MAX];
    size_t controls;
    int32_t begin, end;
    const char *chat_template;
    bool folds; // 'A' is encoded as "a" with two primes behind it: decoded text has other places
};

static inline const struct Toy *toy_of(const struct Tokenizer *t) {
    return (const struct Toy *)(const void *)t;
}
static inline const struct Tokenizer *toy_tokenizer(const struct Toy *toy) {
    return (const struct Tokenizer *)(const void *)toy;
}

// The first merge that two neighbours have, everywhere in the list; false: none has any.
static inline bool toy_merge_once(const struct Toy *toy, int32_t *ids, size_t *count) {
    size_t best = toy->merges;
    for (size_t i = 0; i + 1 < *count; i++)
        for (size_t m = 0; m < best; m++)
            if (ids[i] == toy->left[m] && ids[i + 1] == toy->right[m])
                best = m;
    if (best == toy->merges)
        return false;
    size_t n = 0;
    for (size_t i = 0; i < *count; i++) {
        bool pair = i + 1 < *count && ids[i] == toy->left[best] && ids[i + 1] == toy->right[best];
        ids[n++] = pair ? 256 + (int32_t)best : ids[i];
        i += pair;
    }
    *count = n;
    return true;
}

int __wrap_tokenizer_encode_plain(const struct Tokenizer *t, const char *text, size_t bytes,
                                  struct Ids *ids, struct Error *e);
int __wrap_tokenizer_encode_plain(const struct Tokenizer *t, const char *text, size_t bytes,
                                  struct Ids *ids, struct Error *e) {
    (void)e;
    size_t begin = ids->count;
    for (size_t i = 0; i < bytes; i++) {
        bool fold = toy_of(t)->folds && text[i] == 'A';
        ids_append(ids, fold ? 'a' : (unsigned char)text[i]);
        for (int prime = 0; fold && prime < 2; prime++)
            ids_append(ids, '\'');
    }
    size_t n = ids->count - begin;
    while (n > 1 && toy_merge_once(toy_of(t), ids->data + begin, &n))
        ;
    ids->count = begin + n;
    return 0;
}

int32_t __wrap_tokenizer_control(const struct Tokenizer *t, const char *text);
int32_t __wrap_tokenizer_control(const struct Tokenizer *t, const char *text) {
    for (size_t i = 0; i < toy_of(t)->controls; i++)
        if (!strcmp(toy_of(t)->control[i].text, text))
            return toy_of(t)->control[i].id;
    return -1;
}

int __wrap_tokenizer_encode(const struct Tokenizer *t, const char *text, size_t bytes,
                            struct Ids *ids, struct Error *e);
int __wrap_tokenizer_encode(const struct Tokenizer *t, const char *text, size_t bytes,
                            struct Ids *ids, struct Error *e) {
    const struct Toy *toy = toy_of(t);
    size_t from = 0;
    for (size_t i = 0; i < bytes; i++)
        for (size_t c = 0; c < toy->controls; c++) {
            size_t n = strlen(toy->control[c].text);
            if (n > bytes - i || memcmp(text + i, toy->control[c].text, n) != 0)
                continue;
            __wrap_tokenizer_encode_plain(t, text + from, i - from, ids, e);
            ids_append(ids, toy->control[c].id);
            from = i + n;
            i += n - 1;
            break;
        }
    return __wrap_tokenizer_encode_plain(t, text + from, bytes - from, ids, e);
}

int32_t __wrap_tokenizer_begin(const struct Tokenizer *t);
int32_t __wrap_tokenizer_begin(const struct Tokenizer *t) {
    return toy_of(t)->begin;
}

int32_t __wrap_tokenizer_end(const struct Tokenizer *t);
int32_t __wrap_tokenizer_end(const struct Tokenizer *t) {
    return toy_of(t)->end;
}

char *__wrap_tokenizer_token_text(const struct Tokenizer *t, int32_t id);
char *__wrap_tokenizer_token_text(const struct Tokenizer *t, int32_t id) {
    for (size_t i = 0; i < toy_of(t)->controls; i++)
        if (toy_of(t)->control[i].id == id)
            return base_format("%s", toy_of(t)->control[i].text);
    return NULL;
}

const char *__wrap_tokenizer_chat_template(const struct Tokenizer *t);
const char *__wrap_tokenizer_chat_template(const struct Tokenizer *t) {
    return toy_of(t)->chat_template;
}

const char *__wrap_tokenizer_describe(const struct Tokenizer *t);
const char *__wrap_tokenizer_describe(const struct Tokenizer *t) {
    (void)t;
    return "toy";
}

static inline size_t toy_spell(const struct Toy *toy, int32_t id, char *out) {
    if (id < 256) {
        *out = (char)id;
        return 1;
    }
    if ((size_t)id - 256 >= toy->merges)
        return 0;
    size_t n = toy_spell(toy, toy->left[id - 256], out);
    return n + toy_spell(toy, toy->right[id - 256], out + n);
}

char *__wrap_tokenizer_decode(const struct Tokenizer *t, const int32_t *ids, size_t count,
                              size_t *bytes);
char *__wrap_tokenizer_decode(const struct Tokenizer *t, const int32_t *ids, size_t count,
                              size_t *bytes) {
    enum { PIECE_BYTES = 64 }; // merges of fixtures make 8 bytes at most
    char *text = base_alloc(count * PIECE_BYTES + 1);
    *bytes = 0;
    for (size_t i = 0; i < count; i++)
        *bytes += toy_spell(toy_of(t), ids[i], text + *bytes);
    text[*bytes] = 0;
    return text;
}

#endif
