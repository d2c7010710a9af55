// Finds where a JSON value ends, by its brackets and quotes alone. Used by lines.c, which passes
// the value to a strict reader.
#ifndef DATA_CHAT_VALUE_H
#define DATA_CHAT_VALUE_H
#include "kernels/base.h"

// Begins as {0}.
struct Value {
    size_t bytes, newlines; // passed until now
    size_t depth;           // open brackets
    bool text, escaped;     // inside of a string; after a backslash
};

// Continues a value that begins at `from`, of which n >= v->bytes bytes are there. True: it ends
// after v->bytes. Passes at least one byte, if there is one.
bool value_pass(struct Value *v, const char *from, size_t n);

#endif
