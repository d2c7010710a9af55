// Expands the tables: see unicode.h, and scripts/gen/unicode_tables.py for how they are spelled.
#include "data/bpe/unicode.h"

#include <stdlib.h>
#include <string.h>

static uint32_t digit_of(char c) {
    if (c >= 'A' && c <= 'Z')
        return (uint32_t)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (uint32_t)(c - 'a') + 26;
    if (c >= '0' && c <= '9')
        return (uint32_t)(c - '0') + 52;
    return c == '+' ? 62 : 63;
}

// Reads the next number of a table: 5 bits a character, the lowest first; bit 32: more follow.
uint32_t unicode_number(const char **at) {
    uint32_t number = 0, digit = 32;
    for (int shift = 0; digit & 32; shift += 5) {
        digit = digit_of(*(*at)++);
        number |= (digit & 31) << shift;
    }
    return number;
}

static void mark_table(struct Unicode *u, const char *table, uint8_t bits) {
    uint32_t point = 0;
    for (const char *at = table; *at;) {
        point += unicode_number(&at);                      // the gap before a range
        for (uint32_t n = unicode_number(&at) + 1; n; n--) // its length less 1 is written
            u->kind[point++] |= bits;
    }
}

int unicode_compare_parts(const void *a, const void *b) {
    const struct UnicodePair *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->second < y->second ? -1 : x->second > y->second;
}

static void read_combining(struct Unicode *u) {
    uint32_t point = 0;
    u->combining = base_alloc_zeroed(UNICODE_POINTS);
    for (const char *at = unicode_combining; *at;) {
        point += unicode_number(&at);
        uint32_t n = unicode_number(&at) + 1;
        uint8_t class = (uint8_t)unicode_number(&at);
        for (; n; n--) {
            u->kind[point] |= UNICODE_NFC;
            u->combining[point++] = class;
        }
    }
}

static void read_pairs(struct Unicode *u) {
    size_t bytes = strlen(unicode_pairs) / 4 * sizeof *u->by_point; // 4 numbers make a pair
    u->by_point = base_alloc(bytes);
    u->by_parts = base_alloc(bytes);
    struct UnicodePair p = {0};
    for (const char *at = unicode_pairs; *at;) {
        p.point += unicode_number(&at);
        uint32_t away = unicode_number(&at); // bit 0: upwards
        p.first = away & 1 ? p.point + away / 2 : p.point - away / 2;
        p.second = unicode_number(&at);
        p.composes = unicode_number(&at);
        u->by_point[u->nby_point++] = p;
        if (p.composes) {
            u->by_parts[u->nby_parts++] = p;
            u->kind[p.second] |= UNICODE_NFC; // it may compose with the one before
        } else {
            u->kind[p.point] |= UNICODE_NFC; // it decomposes, and stays so
        }
    }
    qsort(u->by_parts, u->nby_parts, sizeof *u->by_parts, unicode_compare_parts);
}

// Marks letters, marks, decimal digits, connectors, their like and the joiners. Categories are
// numbered as in scripts/gen/unicode_tables.py.
static void mark_words(struct Unicode *u) {
    enum { LETTERS_AND_MARKS = 7, DECIMAL = 8, CONNECTOR = 11 };
    uint32_t point = 0;
    mark_table(u, unicode_word, UNICODE_WORD);
    for (const char *at = unicode_categories; *at;) {
        uint32_t category = unicode_number(&at);
        bool word = category <= LETTERS_AND_MARKS || category == DECIMAL || category == CONNECTOR;
        for (uint32_t n = unicode_number(&at) + 1; n; n--)
            u->kind[point++] |= word ? UNICODE_WORD : 0;
    }
    u->kind[0x200c] |= UNICODE_WORD;
    u->kind[0x200d] |= UNICODE_WORD;
}

void unicode_open(struct Unicode *u) {
    *u = (struct Unicode){.kind = base_alloc_zeroed(UNICODE_POINTS)};
    mark_table(u, unicode_letters, UNICODE_LETTER);
    mark_table(u, unicode_numbers, UNICODE_NUMBER | UNICODE_DIGIT);
    mark_table(u, unicode_space, UNICODE_SPACE | UNICODE_WHITE);
    mark_table(u, unicode_digits, UNICODE_DIGIT);
    mark_table(u, unicode_punctuation, UNICODE_PUNCTUATION);
    mark_words(u);
    read_combining(u);
    read_pairs(u);
    // Hangul vowels and last letters, which compose with what is before them.
    for (uint32_t point = 0x1161; point <= 0x11c2; point++)
        u->kind[point] |= UNICODE_NFC;
}

void unicode_close(struct Unicode *u) {
    free(u->kind);
    free(u->combining);
    free(u->by_point);
    free(u->by_parts);
    *u = (struct Unicode){0};
}

void bytes_append(struct Bytes *b, const void *data, size_t n) {
    if (!n)
        return;
    if (b->room - b->count < n) {
        b->room = size_max(2 * b->room, b->count + n + 64);
        b->data = base_realloc(b->data, b->room, "a normalized text");
    }
    memcpy(b->data + b->count, data, n);
    b->count += n;
}
