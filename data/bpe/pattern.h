// A regular expression as the reference implementation reads it (Oniguruma's syntax, over Unicode
// 16) into one over bytes that PCRE2 reads.
//
// A pattern tells characters apart by its letters and classes alone, so every character of a text
// can be one byte, its symbol: an ASCII character is itself, and all others that the same of the
// pattern's classes take are one symbol. Classes become sets of bytes; what PCRE2 was told of
// Unicode, by whichever release, is never asked. What the two engines read differently, and this
// does not spell out, is refused.
//
// Used by read_steps.c. Files: pattern.c reads, pattern_class.c what stands in brackets and behind
// a backslash, symbols.c makes the symbols. Next: regex.h.
#ifndef DATA_BPE_PATTERN_H
#define DATA_BPE_PATTERN_H
#include "data/bpe/sets.h"

struct Pattern {
    uint8_t *symbol;    // of UNICODE_POINTS
    struct Bytes bytes; // the expression over symbols
    bool looks_back;    // it asks for what lies before a match, or where the text begins
};

// Errors: -EINVAL, with what is not built and its byte of the pattern.
int pattern_open(struct Pattern *p, const char *text, size_t n, struct Error *e);
void pattern_close(struct Pattern *p);

// Writes the symbols of a text of n_bytes bytes to out, one a character; out has room for n_bytes.
// Returns their number.
size_t pattern_symbols(const struct Pattern *p, const uint8_t *text, size_t n_bytes, uint8_t *out);

// ---- between the files ----

// A part of the expression: as it stands, or a set (text is empty).
struct PatternItem {
    char text[24];
    size_t set;
};

struct PatternReader {
    const char *text;
    size_t n, at;
    bool any_case; // (?i)
    struct PatternItem *item;
    size_t nitem, item_room;
    struct PointSet *set;
    size_t nset, set_room;
    bool looks_back;
    struct Error *e;
};

// Errors: -EINVAL; "WHAT is not built (byte N of the pattern)".
int pattern_refuse(struct PatternReader *r, size_t at, const char *what);

// Reads the character at r->at, and moves r->at after it. r->at < r->n.
uint32_t pattern_next(struct PatternReader *r);

// At a backslash: the set that it stands for. *found false: it stands for none, and r->at is where
// it was.
int pattern_read_escape(struct PatternReader *r, struct PointSet *s, bool in_brackets, bool *found);
// At "[": all to its "]".
int pattern_read_class(struct PatternReader *r, struct PointSet *s);
// Adds the other cases of what is in the set.
int pattern_fold(struct PatternReader *r, struct PointSet *s, size_t at);

// The symbols of the sets, into p. Errors: -EINVAL: there are too many.
int pattern_number(struct Pattern *p, const struct PatternReader *r);

#endif
