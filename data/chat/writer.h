// Encodes text and control tokens, written one after another, to ids and a mask.
//
// Text is kept until a control token or the end comes, and then encoded whole. A token counts if
// any of its bytes counts. Used by template.c and example.c.
#ifndef DATA_CHAT_WRITER_H
#define DATA_CHAT_WRITER_H
#include "data/text/tokenizer.h"

// Token ids, of which ids.data[i] counts where counts[i] is 1. masked_free() it.
struct Masked {
    struct Ids ids;
    uint8_t *counts;
    size_t room;
};
void masked_append(struct Masked *m, int32_t id, bool counts);
void masked_free(struct Masked *m);

struct CountedBytes {
    size_t begin, end; // offsets in the text
};

struct Writer {
    const struct Tokenizer *t;
    struct Masked *out;
    bool raw; // control tokens in text are recognised (tokenizer_encode)
    char *text;
    size_t bytes, room;
    struct CountedBytes *counted;   // the bytes of the text that count: sorted, disjoint
    size_t stretches, stretch_room; // of `counted`
};

// Appends text, which counts or does not.
void write_text(struct Writer *w, const char *text, size_t bytes, bool counts);

// Appends a form's string, in which control tokens are recognised, and {bos} and {eos} are the
// tokenizer's. `ends`: it counts up to and with its first control token; else nothing of it counts.
// Errors: -EINVAL (encoding).
int write_form(struct Writer *w, const char *string, bool ends, struct Error *e);

// Encodes the text that is left. Errors: -EINVAL (encoding).
int write_end(struct Writer *w, struct Error *e);

void write_free(struct Writer *w);

// Returns the first control token in a form's string; -1: there is none.
int32_t writer_find_control(const struct Tokenizer *t, const char *string);

#endif
