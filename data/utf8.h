// Characters of valid UTF-8 (checked by text_find_invalid of data/text/text.h).
#ifndef DATA_UTF8_H
#define DATA_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Decodes the character at p; it takes *n bytes.
static inline uint32_t unicode_at(const uint8_t *p, size_t *n) {
    if (p[0] < 0x80) {
        *n = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *n = 2;
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        *n = 3;
        return (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *n = 4;
    return (p[0] & 7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

// Writes a character as UTF-8. Returns how many bytes it takes.
static inline size_t unicode_put(uint8_t b[4], uint32_t c) {
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        b[i] = (uint8_t)(0x80 | (c & 0x3f));
    b[0] = (uint8_t)(n == 1 ? c : (0xf00u >> n & 0xffu) | c); // 0xc0, 0xe0, 0xf0 for n = 2, 3, 4
    return n;
}

// True for white space of Python's str.strip.
static inline bool unicode_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

// Counts the bytes of the text before the white space at its end.
static inline size_t utf8_rstrip(const char *text, size_t bytes) {
    size_t end = 0;
    for (size_t at = 0, n; at < bytes; at += n)
        if (!unicode_is_space(unicode_at((const uint8_t *)text + at, &n)))
            end = at + n;
    return end;
}

// Returns the text behind the white space that opens it; *bytes becomes its length without the
// white space at its end.
static inline const char *utf8_strip(const char *text, size_t *bytes) {
    size_t end = utf8_rstrip(text, *bytes), at = 0, n;
    while (at < end && unicode_is_space(unicode_at((const uint8_t *)text + at, &n)))
        at += n;
    *bytes = end - at;
    return text + at;
}

#endif
