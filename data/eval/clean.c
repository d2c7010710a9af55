// Cleans texts by four replacements, one after the other: see clean.h.
#include "data/eval/clean.h"

#include "data/utf8.h"
#include "kernels/base.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

static const char CAPITAL_SIGMA[] = "\xce\xa3";

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
    size_t n = strlen(text);
    const char *from = utf8_strip(text, &n);
    char *copy = base_format("%.*s", (int)n, from);
    replace(copy, " [title]", ". ");
    drop_brackets(copy);
    replace(copy, "  ", " ");
    return copy;
}

char *clean_capitalize(const char *text) {
    size_t n = strlen(text), written = 0;
    if (n && strstr(text + 1, CAPITAL_SIGMA))
        return NULL;
    locale_t letters = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
    if (!letters) // a C library without it: ASCII's letters alone
        letters = newlocale(LC_CTYPE_MASK, "C", NULL);
    wctrans_t title = wctrans_l("totitle", letters); // 0: the C library does not know it
    char *out = base_alloc(2 * n + 1);               // a letter of 2 bytes may become one of 3
    for (size_t at = 0, bytes; at < n; at += bytes) {
        wint_t letter = unicode_at((const uint8_t *)text + at, &bytes);
        if (at)
            letter = towlower_l(letter, letters);
        else
            letter = title ? towctrans_l(letter, title, letters) : towupper_l(letter, letters);
        written += unicode_put((uint8_t *)out + written, letter);
    }
    out[written] = 0;
    freelocale(letters);
    return out;
}

char *clean_query(const char *label, const char *a, const char *b) {
    char *capital = clean_capitalize(b);
    if (!capital)
        return NULL;
    char *query = base_format("%s: %s %s", label, a, capital), *clean = clean_text(query);
    free(query);
    free(capital);
    return clean;
}
