// Splits text into the words in which byte pairs are merged: scanners for the regular expressions
// of the usual tokenizers, which are recognised by their text.
//
// Other expressions go through regex.h. Used by steps_split.c, read_steps.c and bpe.c. Next: bpe.h.
#ifndef DATA_BPE_SPLIT_H
#define DATA_BPE_SPLIT_H
#include "data/bpe/unicode.h"

enum SplitKind { SPLIT_GPT2, SPLIT_LLAMA3, SPLIT_QWEN2, SPLIT_SMOLLM, NSPLIT };

// The expression; NULL for what is no expression (SPLIT_SMOLLM: each digit alone, between them
// GPT-2's).
extern const char *const split_patterns[NSPLIT];
extern const char *const split_names[NSPLIT];

// The text that is still to be split, which is valid UTF-8.
struct Split {
    const struct Unicode *unicode;
    enum SplitKind kind;
    const uint8_t *at, *end, *stretch; // stretch: the end of the text before a digit (SPLIT_SMOLLM)
};

struct Split split_begin(const struct Unicode *u, enum SplitKind kind, const uint8_t *text,
                         size_t n);

// Returns the next word, *n bytes long; NULL: there is none left.
const uint8_t *split_next(struct Split *s, size_t *n);

// Returns an offset at or before `wanted` (> 0), or else the first after it, where the text can be
// cut into two that are split separately: before a space that follows no white space, or after a
// single newline between two characters that are no white space. n: there is none.
size_t split_cut(const struct Unicode *u, const uint8_t *text, size_t n, size_t wanted);

#endif
