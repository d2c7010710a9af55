// NFC of UTF-8: Unicode Standard Annex 15, with Hangul as in the Standard's section 3.12. See
// unicode.h.
//
// Most text is in NFC, as the flags of its characters show. Where a character has the flag that NFC
// may change it, the text from the last character without the flag (it may compose with that) to
// the next one without it is decomposed, put in order and composed.
#include "data/bpe/unicode.h"

#include <stdlib.h>
#include <string.h>

enum {
    S_BASE = 0xac00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11a7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT
};

struct Points {
    uint32_t *data;
    size_t count, room;
};

static void add_point(struct Points *p, uint32_t point) {
    p->data = base_grow(p->data, p->count, &p->room, sizeof *p->data, "a normalized text");
    p->data[p->count++] = point;
}

static int compare_point(const void *key, const void *pair) {
    uint32_t a = *(const uint32_t *)key, b = ((const struct UnicodePair *)pair)->point;
    return a < b ? -1 : a > b;
}

// Appends a character's canonical decomposition, recursively. U+00C0 is the first that has one.
static void decompose(const struct Unicode *u, uint32_t point, struct Points *out) {
    if (point - S_BASE < S_COUNT) {
        uint32_t s = point - S_BASE;
        add_point(out, L_BASE + s / (V_COUNT * T_COUNT));
        add_point(out, V_BASE + s / T_COUNT % V_COUNT);
        if (s % T_COUNT)
            add_point(out, T_BASE + s % T_COUNT);
        return;
    }
    const struct UnicodePair *p = point < 0xc0 ? NULL
                                               : bsearch(&point, u->by_point, u->nby_point,
                                                         sizeof *u->by_point, compare_point);
    if (!p) {
        add_point(out, point);
        return;
    }
    decompose(u, p->first, out);
    if (p->second)
        decompose(u, p->second, out);
}

// Sorts n characters by class[character], stably, by merging; `half` has room for n / 2 of them.
static void sort_by_class(const uint8_t *class, uint32_t *run, uint32_t *half, size_t n) {
    if (n < 2)
        return;
    size_t m = n / 2, i = 0, k = m, at = 0;
    sort_by_class(class, run, half, m);
    sort_by_class(class, run + m, half, n - m);
    memcpy(half, run, m * sizeof *half);
    while (i < m)
        run[at++] = k < n && class[run[k]] < class[half[i]] ? run[k++] : half[i++];
}

// Sorts the marks between two characters of combining class 0 by their classes; the sort is stable.
static void sort_marks(const struct Unicode *u, struct Points *p) {
    uint32_t *half = base_alloc(p->count * sizeof *half);
    for (size_t i = 0, end; i < p->count; i = end) {
        end = i + 1;
        if (!u->combining[p->data[i]])
            continue;
        while (end < p->count && u->combining[p->data[end]])
            end++;
        sort_by_class(u->combining, p->data + i, half, end - i);
    }
    free(half);
}

// Returns the character that the two compose to, or 0.
static uint32_t composite(const struct Unicode *u, uint32_t first, uint32_t second) {
    if (first - L_BASE < L_COUNT && second - V_BASE < V_COUNT)
        return S_BASE + ((first - L_BASE) * V_COUNT + (second - V_BASE)) * T_COUNT;
    if (first - S_BASE < S_COUNT && (first - S_BASE) % T_COUNT == 0 &&
        second - T_BASE - 1 < T_COUNT - 1)
        return first + (second - T_BASE);
    struct UnicodePair key = {.first = first, .second = second};
    const struct UnicodePair *p =
        bsearch(&key, u->by_parts, u->nby_parts, sizeof *u->by_parts, unicode_compare_parts);
    return p ? p->point : 0;
}

// Composes each character with the last one of combining class 0, unless one of its own class or of
// class 0 stands between.
static void compose_points(const struct Unicode *u, struct Points *p) {
    size_t starter = SIZE_MAX, n = 0;
    uint8_t last = 0;
    for (size_t i = 0; i < p->count; i++) {
        uint32_t point = p->data[i];
        uint8_t class = u->combining[point];
        bool may_compose = starter != SIZE_MAX && (n == starter + 1 || (last && last < class));
        uint32_t composed = may_compose ? composite(u, p->data[starter], point) : 0;
        if (composed) {
            p->data[starter] = composed;
            continue;
        }
        if (!class)
            starter = n;
        last = class;
        p->data[n++] = point;
    }
    p->count = n;
}

static void compose_stretch(const struct Unicode *u, const uint8_t *text, size_t n,
                            struct Points *p, struct Bytes *out) {
    uint8_t b[4];
    p->count = 0;
    for (size_t i = 0, w; i < n; i += w)
        decompose(u, unicode_at(text + i, &w), p);
    sort_marks(u, p);
    compose_points(u, p);
    for (size_t i = 0; i < p->count; i++)
        bytes_append(out, b, unicode_put(b, p->data[i]));
}

void unicode_compose(const struct Unicode *u, const uint8_t *text, size_t n, struct Bytes *out) {
    struct Points points = {0};
    size_t done = 0, before = 0; // before: the last character that NFC does not change
    for (size_t i = 0, w; i < n; i += w) {
        if (!(u->kind[unicode_at(text + i, &w)] & UNICODE_NFC)) {
            before = i;
            continue;
        }
        size_t begin = size_max(before, done), end = i;
        while (end < n && u->kind[unicode_at(text + end, &w)] & UNICODE_NFC)
            end += w;
        bytes_append(out, text + done, begin - done);
        compose_stretch(u, text + begin, end - begin, &points, out);
        before = done = i = end;
        w = 0;
    }
    bytes_append(out, text + done, n - done);
    free(points.data);
}
