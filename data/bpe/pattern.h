// Translates a regular expression of the reference implementation (Oniguruma's syntax, Unicode 16)
// into one over bytes that PCRE2 reads.
//
// A pattern distinguishes characters by its letters and classes alone, so every character of a text
// can be one byte, its symbol: an ASCII character is itself, and all others that lie in the same of
// the pattern's classes share one symbol. Classes become sets of bytes, so that PCRE2's own Unicode
// tables, of whatever release, do not matter. A construct that the two engines read differently and
// that is not translated is refused.
//
// Used by read_steps.c. Files: pattern.c reads, pattern_class.c reads brackets and escapes,
// symbols.c makes the symbols. Next: regex.h.
#ifndef DATA_BPE_PATTERN_H
#define DATA_BPE_PATTERN_H
#include "data/bpe/sets.h"

struct Pattern {
    uint8_t *symbol;    // the symbol of each of UNICODE_POINTS characters
    struct Bytes bytes; // the expression over symbols
    bool looks_back;    // it depends on the text before a match, or on where the text begins
};

// Translates a pattern of n bytes. Errors: -EINVAL, with the unsupported construct and its byte.
int pattern_open(struct Pattern *p, const char *text, size_t n, struct Error *e);
void pattern_close(struct Pattern *p);

// Writes the symbols of a text of n_bytes bytes to out (at least n_bytes bytes), one for each
// character. Returns their number.
size_t pattern_symbols(const struct Pattern *p, const uint8_t *text, size_t n_bytes, uint8_t *out);

// ---- between the files ----

// A part of the expression: text that is copied, or a set (text is empty).
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

// Returns -EINVAL, with the error "WHAT (byte N of the pattern) is not supported".
int pattern_refuse(struct PatternReader *r, size_t at, const char *what);

// Reads the character at r->at, and moves r->at after it. r->at < r->n.
uint32_t pattern_next(struct PatternReader *r);

// Adds the characters that the escape at r->at stands for to the set. *found false: it stands for
// none, and r->at has not moved.
int pattern_read_escape(struct PatternReader *r, struct PointSet *s, bool in_brackets, bool *found);
// Adds the class at r->at, from its "[" to its "]", to the set. depth: the classes around it.
int pattern_read_class(struct PatternReader *r, struct PointSet *s, size_t depth);
// Adds the other cases of the set's characters, for (?i). at: its byte of the pattern, for errors.
int pattern_fold(struct PatternReader *r, struct PointSet *s, size_t at);

// Writes the symbols of the sets, and the expression, into p. Errors: -EINVAL: too many symbols.
int pattern_assign_symbols(struct Pattern *p, const struct PatternReader *r);

#endif
