// Finds the end of a JSON value: see value.h.
#include "data/chat/value.h"

#include <string.h>

// Passes one byte inside of a string. True: it ends the string.
static bool pass_text(struct Value *v, char c) {
    bool ends = !v->escaped && c == '"';
    v->escaped = !v->escaped && c == '\\';
    v->text = !ends;
    return ends;
}

// True if c cannot be in a number or a word, which ends before it.
static bool ends_before(const struct Value *v, char c) {
    return v->bytes && !v->depth && c && strchr(" \t\r\n,]}[{\"", c);
}

bool value_pass(struct Value *v, const char *from, size_t n) {
    while (v->bytes < n) {
        char c = from[v->bytes];
        if (!v->text && ends_before(v, c))
            return true;
        v->bytes++;
        v->newlines += c == '\n';
        if (v->text) {
            if (pass_text(v, c) && !v->depth)
                return true;
        } else if (c == '"') {
            v->text = true;
        } else if (c == '{' || c == '[') {
            v->depth++;
        } else if (c == '}' || c == ']') {
            v->depth -= v->depth > 0;
            if (!v->depth)
                return true;
        }
    }
    return false;
}
