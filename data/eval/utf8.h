// Characters of valid UTF-8 (checked by text_find_invalid of data/text/text.h).
#ifndef DATA_EVAL_UTF8_H
#define DATA_EVAL_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Returns the character at text[*at], *at < n; *at moves after it.
static inline int32_t utf8_next(const char *text, size_t n, size_t *at) {
    uint8_t lead = (uint8_t)text[(*at)++];
    int32_t c = lead < 0x80   ? lead
                : lead < 0xe0 ? lead & 0x1f
                : lead < 0xf0 ? lead & 0xf
                              : lead & 7;
    while (*at < n && ((uint8_t)text[*at] & 0xc0) == 0x80)
        c = c << 6 | ((uint8_t)text[(*at)++] & 0x3f);
    return c;
}

// Writes a character of at most 4 bytes. Returns its bytes.
static inline size_t utf8_write(int32_t c, char *out) {
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

static inline size_t utf8_count(const char *text, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((uint8_t)text[i] & 0xc0) != 0x80;
    return count;
}

// True for white space of Python's str.strip.
static inline bool utf8_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

#endif
