// What examples_read gives, as text to compare: "ID ID*|...", where * counts and | ends an example.
#ifndef TESTS_LIB_EXAMPLES_TEXT_H
#define TESTS_LIB_EXAMPLES_TEXT_H
#include "data/chat/example.h"

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

#endif
