// How long the bytes of a block are in use: from the operation that writes them to the last one
// that reads them before they are written anew.
//
// A block is cut where any operation's bytes begin or end; between two cuts all bytes have the same
// lives, and neighbours with equal ones are joined. Bytes that a step reads before it writes them
// were in use before it, and so are in use after their last write. What is kept all the time, a
// shard of weights or optimizer state, is in use all step long. Next: write.c.
#include "zero/trace/record.h"

#include <stdlib.h>
#include <string.h>

struct Builder {
    const struct ZeroTrace *t;
    const struct Operations *p;
    struct Lives out;
    size_t room;
    const struct OpTouch **touch; // of one block, in order
    size_t ntouch;
    uint64_t *cut;
    size_t ncut;
    size_t previous; // the index at which the lives of the segment before this one begin
};

static void add_life(struct Builder *b, struct Life life) {
    b->out.life = base_grow(b->out.life, b->out.n, &b->room, sizeof life, "a trace of memory");
    b->out.life[b->out.n++] = life;
}

static int compare_cuts(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void gather_touches(struct Builder *b, int block) {
    b->ntouch = b->ncut = 0;
    for (size_t i = 0; i < b->p->ntouch; i++) {
        const struct OpTouch *touch = &b->p->touch[i];
        if (touch->block != block)
            continue;
        b->touch[b->ntouch++] = touch;
        b->cut[b->ncut++] = touch->offset;
        b->cut[b->ncut++] = touch->offset + touch->bytes;
    }
    qsort(b->cut, b->ncut, sizeof *b->cut, compare_cuts);
}

// Returns the group of parameters that an operation works for; -1: none.
static int group_of(const struct ZeroTrace *t, const struct Operation *p) {
    const struct Params *params = t->parts.zero->params;
    if (p->work.kind != ORIGIN_UNIT)
        return p->work.group;
    return params->unit[p->work.unit - params->first_unit].group;
}

// Lists the lives of bytes [at, end) of a block; *kept: they were in use before the step.
static void add_segment(struct Builder *b, int block, uint64_t at, uint64_t end, bool *kept) {
    enum { UNTOUCHED = -2 }; // the life has not begun
    struct Life life = {.block = block, .offset = at, .bytes = end - at, .from = UNTOUCHED};
    *kept = false;
    for (size_t i = 0; i < b->ntouch; i++) {
        const struct OpTouch *touch = b->touch[i];
        if (touch->offset > at || touch->offset + touch->bytes < end)
            continue;
        bool anew = touch->how == ACCESS_WRITE;
        if (life.from == UNTOUCHED) {
            *kept = !anew;
            life.from = anew ? touch->operation : -1;
            life.group = group_of(b->t, &b->p->operation[touch->operation]);
        } else if (anew && life.until != touch->operation) {
            add_life(b, life);
            life.from = touch->operation;
            life.group = group_of(b->t, &b->p->operation[touch->operation]);
        }
        life.until = touch->operation;
    }
    if (life.from == UNTOUCHED)
        return;
    if (*kept)
        life.until = -1;
    add_life(b, life);
}

// Joins the newest segment's lives, from `first` on, with those of the segment before, if equal.
static void join_segments(struct Builder *b, size_t first) {
    struct Life *life = b->out.life;
    size_t n = b->out.n - first;
    bool same = first - b->previous == n;
    for (size_t i = 0; i < n && same; i++) {
        const struct Life *x = &life[b->previous + i], *y = &life[first + i];
        same = x->offset + x->bytes == y->offset && x->from == y->from && x->until == y->until &&
               x->group == y->group;
    }
    if (!same || !n) {
        b->previous = first;
        return;
    }
    for (size_t i = 0; i < n; i++)
        life[b->previous + i].bytes += life[first + i].bytes;
    b->out.n = first;
}

// Lists the lives of a block; state that a step does not write anew has one, all step long.
static void add_block(struct Builder *b, int block) {
    const struct LoggedBlock *logged = &b->t->log.block[block];
    size_t first = b->out.n;
    bool is_state = logged->tag == TAG_PARAM || logged->tag == TAG_OPTIMIZER;
    bool kept = false, any_kept = false;
    gather_touches(b, block);
    b->previous = first;
    for (size_t i = 0; i + 1 < b->ncut; i++) {
        size_t begin = b->out.n;
        if (b->cut[i] == b->cut[i + 1])
            continue;
        add_segment(b, block, b->cut[i], b->cut[i + 1], &kept);
        any_kept |= kept;
        join_segments(b, begin);
    }
    if (!is_state || (b->ntouch && !any_kept))
        return;
    int group = b->out.n > first ? b->out.life[first].group : -1;
    b->out.n = first;
    add_life(b, (struct Life){block, 0, logged->bytes, group, -1, -1});
}

struct Lives lives_of(const struct ZeroTrace *t, const struct Operations *p) {
    struct Builder b = {.t = t, .p = p};
    b.touch = base_alloc((p->ntouch + 1) * sizeof(struct OpTouch *));
    b.cut = base_alloc((2 * p->ntouch + 1) * sizeof *b.cut);
    for (size_t i = 0; i < t->log.n; i++)
        add_block(&b, (int)i);
    free(b.touch);
    free(b.cut);
    return b.out;
}
