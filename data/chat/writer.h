// Text and control tokens, written one behind the other, to ids and a mask.
//
// Text is kept until a control token or the end comes, and encoded whole then. Which of its tokens
// count follows from the bytes that each stands for. Used by template.c and example.c.
#ifndef DATA_CHAT_WRITER_H
#define DATA_CHAT_WRITER_H
#include "data/chat/masked.h"
#include "data/text/tokenizer.h"

struct CountedBytes {
    size_t begin, end; // bytes of the text
};

struct Writer {
    const struct Tokenizer *t;
    struct Masked *out;
    bool raw; // text is encoded with its control tokens (tokenizer_encode); false: plainly
    char *text;
    size_t bytes, room;
    struct CountedBytes *counted; // what counts of the text, in order, apart from each other
    size_t stretches, stretch_room;
};

// Appends text, which counts or does not.
void write_text(struct Writer *w, const char *text, size_t bytes, bool counts);

// Appends a form's string: what is written as a control token there is one, and {bos} and {eos} are
// the tokenizer's. The string counts up to its first control token and with it, where `ends`; else
// nothing of it does. Errors: -EINVAL (encoding).
int write_form(struct Writer *w, const char *string, bool ends, struct Error *e);

// Encodes what is left. Errors: -EINVAL (encoding).
int write_end(struct Writer *w, struct Error *e);

void write_free(struct Writer *w);

// The first control token in a form's string; -1: there is none.
int32_t write_control_of(const struct Tokenizer *t, const char *string);

#endif
