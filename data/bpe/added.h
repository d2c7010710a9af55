// Added tokens: stretches of a text that are a token as they stand ("<|im_end|>"), cut out before
// the rest is split into words.
//
// Of those that begin at the first place where any does, the longest is taken, as by the reference
// implementation. Used by bpe.c; filled by read.c.
#ifndef DATA_BPE_ADDED_H
#define DATA_BPE_ADDED_H
#include "kernels/base.h"

struct Added {
    char *name; // as it is written
    char *text; // what is looked for: normalized, if it is
    size_t bytes;
    int32_t id;
    bool special;        // a control token
    bool lstrip, rstrip; // it takes white space on its left, right with it
    bool normalized;     // it is looked for in what the normalizer has made
};

// A part of them, sorted by their texts.
struct AddedSet {
    const struct Added **token;
    size_t count;
    bool begins[256]; // does one begin with this byte?
};

// Sorts those of `count` tokens whose `normalized` is as given. The tokens stay the caller's.
void added_sort(struct AddedSet *s, const struct Added *tokens, size_t count, bool normalized);
void added_free(struct AddedSet *s);

// Finds the token with this text; NULL: there is none.
const struct Added *added_named(const struct AddedSet *s, const char *text, size_t bytes);

// Finds the first token at or after byte `from` of the text, at *begin; NULL: there is none.
const struct Added *added_find(const struct AddedSet *s, const uint8_t *text, size_t n, size_t from,
                               size_t *begin);

#endif
