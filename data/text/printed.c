// The text of ids, whole or as it grows: see printed.h.
#include "data/text/printed.h"
#include "data/text/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

char *printed_text(const struct Tokenizer *t, const int32_t *ids, size_t count, size_t *bytes) {
    char *text = tokenizer_decode(t, ids, count, bytes);
    for (size_t i = 0; i < *bytes; i++)
        if (iscntrl((unsigned char)text[i]) && text[i] != '\n' && text[i] != '\t')
            text[i] = '?';
    return text;
}

// Counts the bytes at the end of a text that may be the beginning of a character.
static size_t unfinished_bytes(const char *text, size_t bytes) {
    for (size_t n = 1; n < 4 && n <= bytes; n++) {
        unsigned char c = (unsigned char)text[bytes - n];
        size_t whole = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        if ((c & 0xc0) != 0x80)
            return whole > n ? n : 0;
    }
    return 0;
}

char *printed_more(struct PrintedStream *s, const struct Tokenizer *t, const int32_t *ids,
                   size_t count, bool ends, size_t *bytes) {
    size_t n;
    char *text = printed_text(t, ids + s->ids, count - s->ids, &n);
    char *more = base_alloc(s->held_bytes + n + 1);
    memcpy(more, s->held, s->held_bytes);
    memcpy(more + s->held_bytes, text, n);
    free(text);
    n += s->held_bytes;
    s->ids = count;
    s->held_bytes = ends ? 0 : unfinished_bytes(more, n);
    *bytes = n - s->held_bytes;
    memcpy(s->held, more + *bytes, s->held_bytes);
    more[*bytes] = 0;
    return more;
}

char *printed_mend(const char *text, size_t bytes) {
    static const char MARK[] = "\xef\xbf\xbd";
    char *mended = base_alloc(3 * bytes + 1), *to = mended;
    while (bytes) {
        size_t valid = text_find_invalid(text, bytes), plain = strnlen(text, valid);
        memcpy(to, text, plain);
        to += plain;
        text += plain;
        bytes -= plain;
        if (!bytes)
            break;
        memcpy(to, MARK, 3);
        to += 3;
        text++;
        bytes--;
    }
    *to = 0;
    return mended;
}
