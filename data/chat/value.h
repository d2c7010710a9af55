// Where a JSON value ends, found without reading it: by its brackets and quotes alone. Used by
// lines.c, which hands the value on to a reader that is strict.
#ifndef DATA_CHAT_VALUE_H
#define DATA_CHAT_VALUE_H
#include "kernels/base.h"

// Begins as {0}.
struct Value {
    size_t bytes, newlines; // passed until now
    size_t depth;           // of brackets
    bool text, escaped;     // inside of a text; behind a backslash
};

// Goes on in a value that begins at `from`, of which n bytes are there, at least those that were
// passed. True: it ends behind v->bytes. At least one byte is passed, if there is one.
bool value_pass(struct Value *v, const char *from, size_t n);

#endif
