// Added tokens: strings that are tokens as they stand ("<|im_end|>"), cut out of a text before the
// rest is split into words.
//
// The leftmost match is taken, and the longest of those that begin there, as by the reference
// implementation. Used by bpe.c; filled by read.c.
#ifndef DATA_BPE_ADDED_H
#define DATA_BPE_ADDED_H
#include "kernels/base.h"

struct Added {
    char *name; // as tokenizer.json writes it
    char *text; // the string to find: the name, normalized if `normalized`
    size_t bytes;
    int32_t id;
    bool special;        // a control token
    bool lstrip, rstrip; // it takes the white space on its left, right with it
    bool normalized;     // it is found in the normalized text
};

// The raw or the normalized added tokens, sorted by their texts.
struct AddedSet {
    const struct Added **token;
    size_t count;
    bool begins[256]; // true if one begins with this byte
};

// Fills s->token with sorted pointers to those of the `count` tokens whose `normalized` is as
// given. The tokens must outlive s.
void added_sort(struct AddedSet *s, const struct Added *tokens, size_t count, bool normalized);
void added_free(struct AddedSet *s);

// Finds the token with this text; NULL: there is none.
const struct Added *added_with_text(const struct AddedSet *s, const char *text, size_t bytes);

// Finds the first token at or after byte `from` of the text, at *begin; NULL: there is none.
const struct Added *added_find(const struct AddedSet *s, const uint8_t *text, size_t n, size_t from,
                               size_t *begin);

#endif
