// What examples_read gives, as text to compare: "ID ID*|...", where * counts and | ends an example.
#ifndef TESTS_LIB_EXAMPLES_TEXT_H
#define TESTS_LIB_EXAMPLES_TEXT_H
#include "data/chat/example.h"
#include "tests/lib/refused.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// An ExampleTaker; its context is a char ** to append to. Not for more than 100 kB.
static inline int examples_text_take(void *context, const struct Example *example,
                                     struct Error *e) {
    (void)e;
    char **all = context;
    for (size_t i = 0; i < example->count; i++) {
        char *longer = base_format("%s%s%d%s", *all, i ? " " : "", example->ids[i],
                                   example->counts[i] ? "*" : "");
        free(*all);
        *all = longer;
    }
    char *longer = base_format("%s|", *all);
    free(*all);
    *all = longer;
    return strlen(longer) > 100000 ? -E2BIG : 0;
}

// A file of these bytes has these examples, or up to them this error (NULL: none).
static inline void expect_examples(const char *path, const struct Tokenizer *t,
                                   const struct ChatSpec *chat, const char *ids,
                                   const char *error) {
    char *all = base_format("%s", "");
    struct Error e = {0};
    int err = examples_read(path, "--data", t, chat, examples_text_take, &all, &e);
    if (err != (error ? -EINVAL : 0) || (error && !error_is(&e, error)))
        fail_msg("%s: %s: expected %s", ids, e.text, error ? error : "none");
    assert_string_equal(all, ids);
    free(all);
}

#endif
