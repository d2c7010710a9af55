// Cleans texts by four replacements, one after the other: see clean.h.
#include "data/eval/clean.h"

#include "data/eval/case.h"
#include "data/eval/utf8.h"
#include "kernels/base.h"

#include <stdlib.h>
#include <string.h>

size_t clean_length(const char *text) {
    size_t n = strlen(text), end = 0;
    for (size_t at = 0; at < n;)
        if (!utf8_is_space(utf8_next(text, n, &at)))
            end = at;
    return end;
}

static char *stripped(const char *text) {
    size_t end = clean_length(text), begin = 0, next = 0;
    while (next < end && utf8_is_space(utf8_next(text, end, &next)))
        begin = next;
    char *copy = base_alloc(end - begin + 1);
    memcpy(copy, text + begin, end - begin);
    copy[end - begin] = 0;
    return copy;
}

// Replaces from left to right, in place: `to` is not longer than `from`, and is not searched again.
static void replace(char *text, const char *from, const char *to) {
    size_t skip = strlen(from), n = strlen(to);
    char *out = text;
    while (*text) {
        bool here = strncmp(text, from, skip) == 0;
        memmove(out, here ? to : text, here ? n : 1);
        out += here ? n : 1;
        text += here ? skip : 1;
    }
    *out = 0;
}

// Removes each [...] up to the nearest closing bracket on the same line.
static void drop_brackets(char *text) {
    char *out = text;
    while (*text) {
        size_t inside = *text == '[' ? strcspn(text, "]\n") : 0;
        if (inside && text[inside] == ']')
            text += inside + 1;
        else
            *out++ = *text++;
    }
    *out = 0;
}

char *clean_text(const char *text) {
    char *copy = stripped(text);
    replace(copy, " [title]", ". ");
    drop_brackets(copy);
    replace(copy, "  ", " ");
    return copy;
}

char *clean_query(const char *label, const char *a, const char *b) {
    size_t n = strlen(b);
    char *capital = base_alloc(CASE_GROWTH * n + 1), *clean = NULL;
    if (case_capitalize(b, n, capital) >= 0) {
        char *query = base_format("%s: %s %s", label, a, capital);
        clean = clean_text(query);
        free(query);
    }
    free(capital);
    return clean;
}
