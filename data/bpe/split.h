// Text into the words that byte pairs are merged in: four regular expressions, as four scanners.
//
// A tokenizer.json names its expression by its text, and one that is not known is refused: there is
// no engine for regular expressions here. Used by bpe.c and read.c. Next: bpe.h.
#ifndef DATA_BPE_SPLIT_H
#define DATA_BPE_SPLIT_H
#include "data/bpe/unicode.h"

enum SplitKind { SPLIT_GPT2, SPLIT_LLAMA3, SPLIT_QWEN2, SPLIT_SMOLLM, NSPLIT };

// The expression; NULL for what is no expression (SPLIT_SMOLLM: each digit alone, between them
// GPT-2's).
extern const char *const split_patterns[NSPLIT];
extern const char *const split_names[NSPLIT];

// What is still to be split. It is valid UTF-8.
struct Split {
    const struct Unicode *unicode;
    enum SplitKind kind;
    const uint8_t *at, *end, *stretch; // stretch: the end of what has no digit (SPLIT_SMOLLM)
};

struct Split split_begin(const struct Unicode *u, enum SplitKind kind, const uint8_t *text,
                         size_t n);

// Returns the next word, *n bytes long; NULL: there is none left.
const uint8_t *split_next(struct Split *s, size_t *n);

// A place at or before `wanted`, or else the first behind it, where the text may be cut in two that
// are split each by itself: in front of a space that follows none, or behind a single newline
// between two characters that are no white space. n: there is none. 0 < wanted.
size_t split_cut(const struct Unicode *u, const uint8_t *text, size_t n, size_t wanted);

#endif
