// Matches of a regular expression over symbols (pattern.h), by PCRE2 and its compiler to machine
// code, where there is one.
//
// data/bpe/regex.c is the only file that knows PCRE2. Where the library is missing regex_none.c
// takes its place, and a tokenizer that needs it is refused by its pattern. Used by read_steps.c
// and steps.c. Next: steps.h.
#ifndef DATA_BPE_REGEX_H
#define DATA_BPE_REGEX_H
#include "data/bpe/unicode.h"

struct Regex;

// Compiles an expression over symbols. Errors: -EINVAL with PCRE2's words, -ENOTSUP without PCRE2.
int regex_open(struct Regex **out, const struct Bytes *pattern, struct Error *e);
void regex_close(struct Regex *x); // NULL is allowed

// What one thread needs to match with; NULL without the library.
struct RegexWork;
struct RegexWork *regex_work_open(void);
void regex_work_close(struct RegexWork *w); // NULL is allowed

// REGEX_OPEN: more text might change what there is from at[0] on. REGEX_LIMIT: the matcher has
// given up.
enum RegexFound { REGEX_NONE, REGEX_FOUND, REGEX_OPEN, REGEX_LIMIT };

// Finds the first match at or after `from`: text[at[0]] up to text[at[1]]. `open`: more text
// follows the n bytes, which is not known.
enum RegexFound regex_find(const struct Regex *x, struct RegexWork *w, const uint8_t *text,
                           size_t n, size_t from, bool open, size_t at[2]);

#endif
