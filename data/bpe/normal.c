// See normal.h.
#include "data/bpe/normal.h"

#include <stdlib.h>
#include <string.h>

static void replace(struct Bytes *out, const struct NormalStep *p, const uint8_t *text, size_t n) {
    size_t have = strlen(p->text), with = strlen(p->with);
    for (size_t i = 0, end; i < n; i = end + have) {
        const uint8_t *found = memmem(text + i, n - i, p->text, have);
        end = found ? (size_t)(found - text) : n;
        bytes_append(out, text + i, end - i);
        if (found)
            bytes_append(out, p->with, with);
    }
}

static void apply_part(const struct Unicode *u, const struct NormalStep *p, struct Bytes *out,
                       const uint8_t *text, size_t n) {
    if (p->kind == NORMAL_NFC)
        unicode_compose(u, text, n, out);
    else if (p->kind == NORMAL_REPLACE)
        replace(out, p, text, n);
    else // NORMAL_PREPEND: its text is there already
        bytes_append(out, text, n);
}

void normal_apply(const struct Normal *m, const struct Unicode *u, struct Bytes room[2],
                  struct Stretch *s) {
    for (size_t i = 0, turn = 0; i < m->count; i++) {
        const struct NormalStep *p = &m->step[i];
        struct Bytes *out = &room[turn % 2];
        if (!s->n || (p->kind == NORMAL_PREPEND && s->middle))
            continue;
        turn++;
        out->count = 0;
        if (p->kind == NORMAL_PREPEND)
            bytes_append(out, p->text, strlen(p->text));
        size_t front = size_min(s->n, s->cut);
        apply_part(u, p, out, s->text, front);
        if (s->cut <= s->n)
            s->cut = out->count;
        apply_part(u, p, out, s->text + front, s->n - front);
        s->text = out->data;
        s->n = out->count;
    }
}

void normal_close(struct Normal *m) {
    for (size_t i = 0; i < m->count; i++) {
        free(m->step[i].text);
        free(m->step[i].with);
    }
    *m = (struct Normal){0};
}
