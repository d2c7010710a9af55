// Matches a regular expression over symbols (pattern.h) with PCRE2, by its JIT compiler where the
// CPU has one.
//
// data/bpe/regex.c alone includes PCRE2. Without the library, regex_none.c takes its place and
// refuses each pattern that needs it. Used by read_steps.c and steps.c. Next: steps.h.
#ifndef DATA_BPE_REGEX_H
#define DATA_BPE_REGEX_H
#include "data/bpe/unicode.h"

struct Regex;

// Compiles an expression over symbols. Errors: -EINVAL with PCRE2's words, -ENOTSUP without PCRE2.
int regex_open(struct Regex **out, const struct Bytes *pattern, struct Error *e);
void regex_close(struct Regex *x); // NULL is allowed

// One thread's buffers for matching; NULL without the library.
struct RegexWork;
struct RegexWork *regex_work_open(void);
void regex_work_close(struct RegexWork *w); // NULL is allowed

// REGEX_OPEN: more text might change the matches from at[0] on. REGEX_LIMIT: the matcher has given
// up.
enum RegexFound { REGEX_NONE, REGEX_FOUND, REGEX_OPEN, REGEX_LIMIT };

// Finds the first match at or after `from`: text[at[0]] up to text[at[1]]. `open`: unknown text
// follows the n bytes.
enum RegexFound regex_find(const struct Regex *x, struct RegexWork *w, const uint8_t *text,
                           size_t n, size_t from, bool open, size_t at[2]);

#endif
