// One text, for tests that continue no other beside it.
#ifndef TESTS_LIB_GENERATE_H
#define TESTS_LIB_GENERATE_H
#include "zero/rank/generate.h"

#include <string.h>

// Continues it to its end: appends at most `count` tokens to the `length` of `text`, which has
// space for them. Returns how many.
static inline size_t rank_generate(struct Rank *r, int32_t *text, size_t length, size_t count,
                                   const struct Sampling *s) {
    struct Generation g;
    generation_open(&g, r);
    generation_begin(&g, 0, text, length, count, s);
    while (generation_step(&g))
        ;
    size_t made = g.text[0].count - length;
    memcpy(text + length, g.text[0].ids + length, made * sizeof *text);
    generation_close(&g);
    return made;
}

#endif
