// A vocabulary that lies on several ranks: which has which of its rows.
#ifndef TESTS_KERNELS_PARTS_H
#define TESTS_KERNELS_PARTS_H
#include "kernels/base.h"

enum { MAX_PARTS = 4 };

// v tokens in parts of vp rows each, a multiple of `unit`: the last may be padding in part or all.
struct Split {
    size_t v, parts, unit;
};

static inline size_t vp_of(const struct Split *s) {
    return round_up(ceil_div(s->v, s->parts), s->unit);
}

// How many tokens a part has.
static inline size_t tokens_in(const struct Split *s, size_t part) {
    size_t vp = vp_of(s);
    return size_min(vp, s->v - size_min(s->v, part * vp));
}

#endif
