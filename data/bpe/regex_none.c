// Stands in for data/bpe/regex.c where PCRE2 is not installed. Chosen by the Makefile.
#include "data/bpe/regex.h"

#include <errno.h>

int regex_open(struct Regex **out, const struct Bytes *pattern, struct Error *e) {
    (void)pattern;
    *out = NULL;
    return error_set(e, -ENOTSUP, E_BUILD_LACKS,
                     "this program was built without PCRE2; install libpcre2-dev and build again");
}

void regex_close(struct Regex *x) {
    (void)x;
}

struct RegexWork *regex_work_open(void) {
    return NULL;
}

void regex_work_close(struct RegexWork *w) {
    (void)w;
}

// Never called: regex_open has refused every expression.
enum RegexFound regex_find(const struct Regex *x, struct RegexWork *w, const uint8_t *text,
                           size_t n, size_t from, bool open, size_t at[2]) {
    CHECK(0, "regex_find(%p, %p, %p, %zu, %zu, %d, %p) without PCRE2", (const void *)x, (void *)w,
          (const void *)text, n, from, open, (void *)at);
}
