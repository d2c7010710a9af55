// The symbols of a pattern: see pattern.h.
//
// The ends of all ranges of all sets cut the characters past ASCII into intervals. Intervals that
// lie in the same sets (a bit mask) share one symbol.
#include "data/bpe/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SETS_MAX = 256, WORDS = SETS_MAX / 64, FIRST = 0x80, SYMBOLS_MAX = 0x80 };

struct Membership {
    uint64_t in[WORDS]; // the sets that a character is in
};

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

// Returns the starts of the intervals, sorted, some repeated; the last is UNICODE_POINTS.
static uint32_t *find_interval_starts(const struct PatternReader *r, size_t *count) {
    size_t n = 2;
    for (size_t i = 0; i < r->nset; i++)
        n += 2 * r->set[i].count;
    uint32_t *start = base_alloc(n * sizeof *start);
    start[0] = FIRST, start[1] = UNICODE_POINTS;
    n = 2;
    for (size_t i = 0; i < r->nset; i++)
        for (size_t k = 0; k < r->set[i].count; k++) {
            start[n++] = r->set[i].range[k].first;
            start[n++] = r->set[i].range[k].last + 1;
        }
    qsort(start, n, sizeof *start, compare);
    *count = n;
    return start;
}

static struct Membership find_sets(const struct PatternReader *r, uint32_t point) {
    struct Membership k = {{0}};
    for (size_t i = 0; i < r->nset; i++)
        if (set_has(&r->set[i], point))
            k.in[i / 64] |= (uint64_t)1 << i % 64;
    return k;
}

// Writes *s, set number `set`, as a class of bytes: its ASCII characters and its symbols. Symbol
// FIRST + i stands for characters in the sets of member[i].
static void write_set(struct Bytes *out, const struct PointSet *s, size_t set,
                      const struct Membership *member, size_t nmember) {
    char text[16];
    bool any = false;
    for (uint32_t c = 0; c < FIRST + nmember; c++) {
        bool has = c < FIRST ? set_has(s, c) : member[c - FIRST].in[set / 64] >> set % 64 & 1;
        if (has)
            bytes_append(out, text,
                         (size_t)snprintf(text, sizeof text, "%s\\x%02x", any ? "" : "[", c));
        any = any || has;
    }
    if (any)
        bytes_append(out, "]", 1);
    else
        bytes_append(out, "(?!)", 4); // which never matches
}

int pattern_assign_symbols(struct Pattern *p, const struct PatternReader *r) {
    struct Membership member[SYMBOLS_MAX];
    size_t nmember = 0, n;
    if (r->nset > SETS_MAX)
        return error_set(r->e, -EINVAL, E_BPE_PATTERN,
                         "more than %d classes of characters are not supported", SETS_MAX);
    uint32_t *start = find_interval_starts(r, &n);
    p->symbol = base_alloc(UNICODE_POINTS);
    for (uint32_t c = 0; c < FIRST; c++)
        p->symbol[c] = (uint8_t)c;
    for (size_t i = 0; i + 1 < n; i++) {
        if (start[i] < FIRST || start[i] == start[i + 1] || start[i] >= UNICODE_POINTS)
            continue;
        struct Membership k = find_sets(r, start[i]);
        size_t at = 0;
        while (at < nmember && memcmp(&member[at], &k, sizeof k))
            at++;
        if (at == SYMBOLS_MAX) {
            free(start);
            return error_set(
                r->e, -EINVAL, E_BPE_PATTERN,
                "its character classes cut Unicode into more than %d sets, which is not "
                "supported",
                SYMBOLS_MAX);
        }
        member[at] = k;
        nmember += at == nmember;
        memset(p->symbol + start[i], (int)(FIRST + at), start[i + 1] - start[i]);
    }
    free(start);
    for (size_t i = 0; i < r->nitem; i++)
        if (*r->item[i].text)
            bytes_append(&p->bytes, r->item[i].text, strlen(r->item[i].text));
        else
            write_set(&p->bytes, &r->set[r->item[i].set], r->item[i].set, member, nmember);
    return 0;
}

size_t pattern_symbols(const struct Pattern *p, const uint8_t *text, size_t n_bytes, uint8_t *out) {
    size_t count = 0;
    uint64_t eight;
    for (size_t i = 0, w; i < n_bytes; i += w) {
        for (; n_bytes - i >= sizeof eight; i += sizeof eight, count += sizeof eight) {
            memcpy(&eight, text + i, sizeof eight);
            if (eight & 0x8080808080808080u)
                break;
            memcpy(out + count, &eight, sizeof eight); // ASCII is itself
        }
        if (i == n_bytes)
            break;
        out[count++] = p->symbol[unicode_at(text + i, &w)];
    }
    return count;
}

void pattern_close(struct Pattern *p) {
    free(p->symbol);
    free(p->bytes.data);
    *p = (struct Pattern){0};
}
