// The text of ids as people and files get it: whole, or piece by piece while the ids are drawn.
//
// A token may end inside of a UTF-8 character, and a model may draw bytes that are none. A terminal
// gets no half character, and a file of JSON no byte that is not UTF-8.
//
// Used by data/flags/texts.c, data/chat/ and whoever prints an answer as it grows.
#ifndef DATA_TEXT_PRINTED_H
#define DATA_TEXT_PRINTED_H
#include "data/text/tokenizer.h"

// Returns the text of ids, *bytes long, with "?" for control characters but newlines and tabs;
// free() it.
char *printed_text(const struct Tokenizer *t, const int32_t *ids, size_t count, size_t *bytes);

// How much of a growing list of ids is printed. Begins as {0}.
struct PrintedStream {
    size_t ids;   // whose text was returned, or is held back
    char held[4]; // the first bytes of a character that is not complete yet
    size_t held_bytes;
};

// Returns what printed_text of `ids`, all so far, adds to what the calls before returned, *bytes
// long; free() it. A character that is not complete is held back for the next call; `ends`: no id
// follows, and nothing is held back. All pieces joined are printed_text of all ids.
char *printed_more(struct PrintedStream *s, const struct Tokenizer *t, const int32_t *ids,
                   size_t count, bool ends, size_t *bytes);

// Returns a copy in which each zero byte, and each that is not UTF-8, is U+FFFD; free() it.
char *printed_mend(const char *text, size_t bytes);

#endif
