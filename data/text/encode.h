// Encodes a whole text by several threads, with the same ids as one thread.
//
// The text is cut where its tokenizer allows it, into stretches that are encoded separately; their
// ids are passed on in order. Called by prepare.c.
#ifndef DATA_TEXT_ENCODE_H
#define DATA_TEXT_ENCODE_H
#include "data/text/tokenizer.h"

// Takes the ids of the next stretch. A result other than 0 ends the encoding, and is returned.
// `done`: bytes of the text until now.
typedef int IdsTaker(void *context, const struct Ids *ids, size_t done, struct Error *e);

// Encodes valid UTF-8 as one text, after tokenizer_begin, if there is one. Uses at most `threads`
// threads, including the caller's; 0: as many as there are cores. Errors: those of
// tokenizer_encode, the taker's.
int encode_text(const struct Tokenizer *t, const char *text, size_t bytes, size_t threads,
                IdsTaker *take, void *context, struct Error *e);

#endif
