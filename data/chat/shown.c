// Formats ids for the log: see shown.h.
#include "data/chat/shown.h"
#include "data/text/text.h"

#include <ctype.h>
#include <stdlib.h>

// A token has four letters on average; a line of the log has at most a thousand bytes.
enum { OPENING_IDS = 100, CLOSING_IDS = 40, OPENING_BYTES = 450, CLOSING_BYTES = 180 };

// Returns at most `most` bytes of the text of ids, without control characters. Invalid UTF-8, from
// characters that are cut between two ids, becomes "?".
static char *shown(const struct Tokenizer *t, const int32_t *ids, size_t count, size_t most) {
    size_t bytes, at = 0, n = 0;
    char *text = tokenizer_decode(t, ids, count, &bytes);
    for (size_t valid; (valid = at + text_find_invalid(text + at, bytes - at)) < bytes; at = valid)
        text[valid] = '?';
    char *line = base_alloc(most + 2);
    for (size_t i = 0; i < bytes && n < most; i++) {
        bool newline = text[i] == '\n';
        if (newline)
            line[n++] = '\\';
        line[n++] = newline ? 'n' : iscntrl((unsigned char)text[i]) ? '?' : text[i];
    }
    line[text_find_invalid(line, n)] = 0;
    free(text);
    return line;
}

char *shown_ids(const struct Tokenizer *t, const int32_t *ids, size_t count) {
    bool whole = count <= OPENING_IDS + CLOSING_IDS;
    size_t opening = whole ? count : OPENING_IDS, closing = whole ? 0 : CLOSING_IDS;
    char *open = shown(t, ids, opening, whole ? OPENING_BYTES + CLOSING_BYTES : OPENING_BYTES);
    char *end = shown(t, ids + count - closing, closing, CLOSING_BYTES);
    char *line = base_format("\"%s%s%s\"", open, whole ? "" : " ... ", end);
    free(open);
    free(end);
    return line;
}
