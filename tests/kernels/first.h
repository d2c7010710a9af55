// The first key that each query sees, as tests of attention want it: a window, documents packed one
// behind the other, or both.
//
// Used by test_kernels_attention.c and test_kernels_seen.c.
#ifndef TESTS_KERNELS_FIRST_H
#define TESTS_KERNELS_FIRST_H
#include "tests/lib/rig.h"

#include <stdlib.h>

// window: keys that a query sees, itself among them; document: tokens of a document, of which the
// first is cut, by more in later sequences. 0: none.
struct Pattern {
    size_t window, document;
};

static inline int32_t pattern_first(const struct Pattern *p, size_t b, size_t time) {
    size_t first = 0;
    if (p->window && time >= p->window)
        first = time - p->window + 1;
    if (p->document) {
        size_t cut = 7 * (b + 1) % p->document, begin = (time + cut) / p->document * p->document;
        first = size_max(first, begin > cut ? begin - cut : 0);
    }
    return (int32_t)first;
}

// first (B, T) as an operand of a run; NULL: the pattern is dense.
static inline const int32_t *input_pattern(struct Run *r, const struct Pattern *p, size_t b,
                                           size_t t) {
    if (!p->window && !p->document)
        return NULL;
    int32_t *first = base_alloc(b * t * sizeof *first);
    for (size_t i = 0; i < b * t; i++)
        first[i] = pattern_first(p, i / t, i % t);
    const int32_t *mem = input_bytes(r, b * t * sizeof *first, first);
    free(first);
    return mem;
}

#endif
