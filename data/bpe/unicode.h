// Classes of characters, by the reference implementation's engines: letter, number, white space;
// and canonical composition (NFC, Unicode Standard Annex 15).
//
// The tables (unicode_tables.c) are what PyPI's `tokenizers` answers for each of the 1,112,064 code
// points: regular expressions of Unicode 16, a splitter of digits of Unicode 17, and an NFC of
// Unicode 9. They are short texts, spread into arrays when a tokenizer is opened. Used by split.c
// and read.c. Next: split.h.
#ifndef DATA_BPE_UNICODE_H
#define DATA_BPE_UNICODE_H
#include "data/utf8.h"
#include "kernels/base.h"

enum { UNICODE_POINTS = 0x110000 };

// A character's class in two bits, and flags.
enum {
    UNICODE_OTHER,
    UNICODE_LETTER, // \p{L}
    UNICODE_NUMBER, // \p{N}
    UNICODE_SPACE,  // \s
    UNICODE_CLASS = 3,
    UNICODE_DIGIT = 4,        // the Digits splitter takes it
    UNICODE_NFC = 8,          // NFC may change a text that has it
    UNICODE_PUNCTUATION = 16, // the Punctuation splitter takes it
    UNICODE_WORD = 32,        // the Whitespace splitter takes it into words
    UNICODE_WHITE = 64,       // UNICODE_SPACE as a flag
};

struct UnicodePair {
    uint32_t point, first, second; // second 0: none
    uint32_t composes;             // the pair to the point
};

// Compares two pairs by their parts, for qsort and bsearch.
int unicode_compare_parts(const void *a, const void *b);

struct Unicode {
    uint8_t *kind; // class and flags of each of UNICODE_POINTS characters
    // For NFC: combining classes of UNICODE_POINTS, decompositions in the order of their points,
    // and those that compose in the order of their parts.
    uint8_t *combining;
    struct UnicodePair *by_point, *by_parts;
    size_t nby_point, nby_parts;
};

void unicode_open(struct Unicode *u);
void unicode_close(struct Unicode *u);

// A growing array of bytes.
struct Bytes {
    uint8_t *data;
    size_t count, room;
};
void bytes_append(struct Bytes *b, const void *data, size_t n);

// Appends the NFC of valid UTF-8.
void unicode_compose(const struct Unicode *u, const uint8_t *text, size_t n, struct Bytes *out);

// The tables, and their reader: it returns the number at *at, and moves *at after it.
extern const char unicode_letters[], unicode_numbers[], unicode_space[], unicode_digits[],
    unicode_combining[], unicode_pairs[], unicode_categories[], unicode_word[],
    unicode_punctuation[], unicode_han[], unicode_hiragana[], unicode_katakana[], unicode_hangul[];
uint32_t unicode_number(const char **at);

#endif
