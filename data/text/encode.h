// A whole text to ids, by several threads: the same ids as from one.
//
// The text is cut where its tokenizer allows it, into stretches that are encoded each by itself,
// and their ids are handed on in their order. Called by prepare.c.
#ifndef DATA_TEXT_ENCODE_H
#define DATA_TEXT_ENCODE_H
#include "data/text/tokenizer.h"

// Takes the ids of the next stretch; other than 0 ends it all, and is its result. `done`: bytes of
// the text until now.
typedef int IdsTaker(void *context, const struct Ids *ids, size_t done, struct Error *e);

// Encodes valid UTF-8 as one text, behind the id that begins one (tokenizer_begin), if there is
// such. At most `threads` threads, the caller's among them; 0: as many as there are cores. Errors:
// those of tokenizer_encode, the taker's.
int encode_text(const struct Tokenizer *t, const char *text, size_t bytes, size_t threads,
                IdsTaker *take, void *context, struct Error *e);

#endif
