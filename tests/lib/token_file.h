// Opens a token shard and checks all of its ids, for tests and a fuzzer of data/text/tokens.h.
#ifndef TESTS_LIB_TOKEN_FILE_H
#define TESTS_LIB_TOKEN_FILE_H
#include "data/text/tokens.h"

static inline int token_file_open(struct TokenFile *f, const char *path, size_t vocab,
                                  struct Error *e) {
    int code = token_file_attach(f, path, vocab, e);
    if (!code)
        code = token_file_check(f, e);
    if (code)
        token_file_close(f);
    return code;
}

#endif
